//! The effective settings, by path and as typed values. All defaults are in the table in `schema`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use longhaul_core::duration;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::GateTimeout;
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::policy::spend_cap::SpendCap;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::agent::RunPolicyDefaults;
use longhaul_model::prices::{PriceError, PriceTable};
use longhaul_model::providers::built_in::ApiFormat;
use longhaul_model::providers::{ProviderSettings, RequestHeaders};
use longhaul_tool::FileLocation;
use serde_json::Value as Json;

use crate::config::env::Env;
use crate::config::price_overrides;
use crate::config::schema::SECRETS_KEY;
use crate::config::spend_caps::parse_spend_caps;
use crate::config::value::Setting;

/// Environment variable with the path of the file in which the crash probe tools record their
/// calls. If it is not set, these tools, which crash tests use, are disabled.
pub const CRASH_PROBE_FILE_VAR: &str = "LONGHAUL_TOOLS_CRASH_PROBE_FILE";

/// The effective settings of a project, each with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Folder of the project, or the working directory if there is no project.
    pub root: PathBuf,
    /// Whether `root` is the folder of a project.
    pub has_project: bool,
    /// The project's configuration file. `None` means that the project has none.
    pub project_file: Option<PathBuf>,
    /// Path of the user's configuration file, which may not exist. `None` means that the home
    /// folder is unknown or that no files are read.
    pub user_file: Option<PathBuf>,
    /// Folder for the user's state outside projects. `None` means that the home folder is unknown.
    pub state_folder: Option<PathBuf>,
    /// Settings by path, such as `worker.lease`.
    pub settings: BTreeMap<String, Setting>,
    /// Environment variables, such as API keys.
    pub env: Env,
    /// Remarks for the user about the settings that are not errors.
    pub notes: Vec<String>,
}

/// Location of the store: a file or a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// Location of a SQLite file.
    Sqlite(FileLocation),
    /// URL of a Postgres server.
    Postgres(String),
}

/// Settings of a worker (the process that drives runs).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Maximum number of runs that are driven at the same time.
    pub concurrency: usize,
    /// How long a worker's claim on a run is valid without renewal.
    pub lease: Millis,
    /// How often a worker without work checks the store for new work.
    pub poll: Millis,
    /// Number of crashes at the same point of a run after which the run is blocked. 0 means that it
    /// is never blocked.
    pub crash_limit: u32,
    /// Inboxes from which the worker takes runs.
    pub inboxes: Vec<String>,
}

/// Settings of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Address that the server listens on.
    pub listen: String,
    /// Host names that are allowed in the `Host` header, besides the listen address.
    pub hosts: Vec<String>,
    /// Maximum number of requests per second and API key. `None` means that the setting is missing
    /// or 0.
    pub rate: Option<NonZeroU32>,
    /// Whether programs on this machine may submit and steer runs without an API key.
    pub open_loopback: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelAliases {
    /// Model of the alias `default`. `None` means that the settings do not set it.
    pub default: Option<String>,
    /// Models by alias, including `default`.
    pub aliases: BTreeMap<String, String>,
}

impl Config {
    /// Returns the path of the project's data folder, in which the runtime keeps its own files.
    pub fn data_folder(&self) -> PathBuf {
        self.data_folder_location().path()
    }

    /// Returns the location of the data folder for file access that does not follow the project's
    /// symbolic links.
    pub fn data_folder_location(&self) -> FileLocation {
        let data = self.text("data").unwrap_or_default();
        self.resolve_configured_path(Path::new(data))
    }

    /// Returns the location of a file that a setting names. A relative path is resolved below the
    /// root without following symbolic links. Only the user can choose a path outside the root.
    pub(crate) fn resolve_configured_path(&self, path: &Path) -> FileLocation {
        let location = FileLocation::below_root(&self.root, path);
        location.unwrap_or_else(|| FileLocation::Anywhere(self.root.join(path)))
    }

    /// Returns the location of the store. A relative path is resolved below the root.
    pub fn store_url(&self) -> StoreUrl {
        match self.text("store.url") {
            None => StoreUrl::Sqlite(self.data_folder_location().join("longhaul.db")),
            Some(url) => match url.strip_prefix("sqlite:") {
                Some(path) => {
                    // Other programs write an absolute path as `sqlite:///x`.
                    let path = path.strip_prefix("//").unwrap_or(path);
                    StoreUrl::Sqlite(self.resolve_configured_path(Path::new(path)))
                }
                None => StoreUrl::Postgres(url.to_owned()),
            },
        }
    }

    /// Returns the path of the file in which the crash probe tools record their calls, for crash
    /// tests. `None` means that these tools are disabled. Only the process environment can enable
    /// them.
    pub fn crash_test_effect_log_path(&self) -> Option<PathBuf> {
        let file = self.env.process_var(CRASH_PROBE_FILE_VAR)?;
        Some(self.root.join(file))
    }

    pub fn worker_settings(&self) -> WorkerSettings {
        let concurrency = self.integer("worker.concurrency").unwrap_or_default();
        WorkerSettings {
            concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
            lease: self.duration("worker.lease").unwrap_or_default(),
            poll: self.duration("worker.poll").unwrap_or_default(),
            crash_limit: self.integer("worker.crash_limit").map_or(0, saturating_u32),
            inboxes: self.text_list("worker.inboxes"),
        }
    }

    pub fn server_settings(&self) -> ServerSettings {
        let rate = self.integer("server.rate").map(saturating_u32);
        ServerSettings {
            listen: self.text("server.listen").unwrap_or_default().to_owned(),
            hosts: self.text_list("server.hosts"),
            rate: rate.and_then(NonZeroU32::new),
            open_loopback: self.boolean("server.open_loopback"),
        }
    }

    /// Returns the spend caps: limits on money, tokens or runs per day, week or month.
    pub fn spend_caps(&self) -> Vec<SpendCap> {
        let caps = self.json("caps").map(|caps| parse_spend_caps(caps).unwrap_or_default());
        caps.unwrap_or_default()
    }

    /// Returns the default limits for runs whose agent and task set none.
    pub fn run_policy_defaults(&self) -> RunPolicyDefaults {
        let integer_u32 = |path| self.integer(path).map(saturating_u32);
        let duration = |path| self.duration(path).unwrap_or_default();
        RunPolicyDefaults {
            budget: Budget {
                micro_usd: self.float("budget.usd").map(usd_to_micros),
                tokens: self.integer("budget.tokens"),
                turns: integer_u32("budget.turns"),
                active: self.duration("budget.active_time"),
                warn_percent: fraction_to_percent(self.float("budget.warn_at").unwrap_or_default()),
            },
            retry: RetryPolicy {
                max_retries: integer_u32("retry.max_retries").unwrap_or_default(),
                initial_delay: duration("retry.initial_delay"),
                max_delay: duration("retry.max_delay"),
                multiplier_percent: factor_to_percent(
                    self.float("retry.multiplier").unwrap_or_default(),
                ),
                soft_timeout: self.duration("retry.soft_timeout"),
                hard_timeout: self.duration("retry.hard_timeout"),
                outage: duration("retry.outage"),
            },
            gate_timeout: match self.duration("gates.timeout") {
                Some(timeout) => GateTimeout::After(timeout),
                None => GateTimeout::Never,
            },
            lane_depth_max: integer_u32("lanes.depth").unwrap_or_default(),
            collect_window: duration("lanes.collect"),
        }
    }

    pub fn model_aliases(&self) -> ModelAliases {
        let names = self.settings_below("models").filter_map(|(name, setting)| {
            Some((name.to_owned(), setting.value.as_str()?.to_owned()))
        });
        let names: BTreeMap<String, String> = names.collect();
        ModelAliases { default: names.get("default").cloned(), aliases: names }
    }

    /// Returns the configured providers by name.
    pub fn provider_settings(&self) -> BTreeMap<String, ProviderSettings> {
        let names = self.settings_below("providers").filter_map(|(path, _)| path.split('.').next());
        let names: BTreeSet<&str> = names.collect();
        names.into_iter().map(|name| (name.to_owned(), self.settings_of_provider(name))).collect()
    }

    fn settings_of_provider(&self, name: &str) -> ProviderSettings {
        let path = |key: &str| format!("providers.{name}.{key}");
        let key_env = path("key_env");
        let headers = path("headers");
        let headers = self.settings_below(&headers).filter_map(|(name, setting)| {
            Some((name.to_owned(), setting.value.as_secret()?.reveal().to_owned()))
        });
        let fields = path("fields");
        let fields = self.settings_below(&fields).filter_map(|(name, setting)| {
            Some((name.to_owned(), setting.value.as_json()?.clone()))
        });
        ProviderSettings {
            api: self.text(&path("api")).and_then(ApiFormat::from_name),
            base_url: self.text(&path("base_url")).map(str::to_owned),
            key_env: { self.settings.contains_key(&key_env) }.then(|| self.text_list(&key_env)),
            headers: RequestHeaders(headers.collect()),
            fields: fields.collect(),
            quirks: self.text_list(&path("quirks")),
            connect_timeout: self.duration(&path("connect_timeout")),
            first_byte_timeout: self.duration(&path("first_byte_timeout")),
            idle_timeout: self.duration(&path("idle_timeout")),
        }
    }

    /// Returns the price table: built-in prices, with the overrides in the settings.
    ///
    /// # Errors
    /// A price override is invalid.
    pub fn price_table(&self) -> Result<PriceTable, PriceError> {
        let mut prices = PriceTable::load_built_in()?;
        for (model, (price_override, _)) in price_overrides::collect_price_overrides(&self.settings)
        {
            prices.set_price_override(model, price_override)?;
        }
        Ok(prices)
    }

    /// Returns the default agent of each inbox, for tasks that name no agent.
    pub fn default_agents_by_inbox(&self) -> BTreeMap<String, String> {
        let agents = self.settings_below("inboxes").filter_map(|(path, setting)| {
            let agent = setting.value.as_str()?;
            Some((path.strip_suffix(".agent")?.to_owned(), agent.to_owned()))
        });
        agents.collect()
    }

    /// Returns how long runs are kept after they have ended.
    pub fn run_retention(&self) -> Millis {
        self.duration("retention.runs").unwrap_or_default()
    }

    /// Returns the names of the variables whose values are secrets.
    pub fn secret_names(&self) -> Vec<String> {
        let mut names = self.text_list(SECRETS_KEY);
        let with_hosts = self.settings_below("secrets");
        let with_hosts = with_hosts.filter_map(|(path, _)| path.strip_suffix(".hosts"));
        for name in with_hosts {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Returns the settings below a path, each with its path relative to that path.
    pub fn settings_below<'a>(
        &'a self,
        path: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Setting)> {
        self.settings.iter().filter_map(move |(name, setting)| {
            Some((name.strip_prefix(path)?.strip_prefix('.')?, setting))
        })
    }

    /// Returns the value of the setting at this path as JSON. `None` means that it is unset or a
    /// secret.
    fn json(&self, setting_path: &str) -> Option<&Json> {
        self.settings.get(setting_path)?.value.as_json()
    }

    /// Returns the text of the setting at this path. `None` means that the setting is unset.
    pub fn text(&self, setting_path: &str) -> Option<&str> {
        self.json(setting_path)?.as_str()
    }

    /// Returns the list of texts of the setting at this path. It is empty if the setting is unset.
    pub fn text_list(&self, setting_path: &str) -> Vec<String> {
        let setting = self.settings.get(setting_path);
        setting.map(|setting| setting.value.to_text_list()).unwrap_or_default()
    }

    /// Returns the boolean of the setting at this path, or `false` if the setting is unset.
    pub fn boolean(&self, setting_path: &str) -> bool {
        self.json(setting_path).and_then(Json::as_bool).unwrap_or_default()
    }

    /// Returns the integer of the setting at this path. `None` means that the setting is unset.
    pub fn integer(&self, setting_path: &str) -> Option<u64> {
        self.json(setting_path)?.as_u64()
    }

    /// Returns the number of the setting at this path. `None` means that the setting is unset.
    pub fn float(&self, setting_path: &str) -> Option<f64> {
        self.json(setting_path)?.as_f64()
    }

    /// Returns the duration of the setting at this path. `None` means that the setting is unset.
    pub fn duration(&self, setting_path: &str) -> Option<Millis> {
        duration::parse_duration(self.text(setting_path)?)
    }
}

fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Converts dollars to micro-dollars, rounded.
pub(crate) fn usd_to_micros(usd: f64) -> MicroUsd {
    MicroUsd((usd * 1e6).round() as u64)
}

/// Converts a fraction from 0 to 1 to percent, rounded.
pub(crate) fn fraction_to_percent(fraction: f64) -> u8 {
    (fraction * 100.0).round() as u8
}

/// Converts a factor such as 1.5 to percent, rounded.
pub(crate) fn factor_to_percent(factor: f64) -> u32 {
    (factor * 100.0).round() as u32
}
