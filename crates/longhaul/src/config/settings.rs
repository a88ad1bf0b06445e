//! The settings that hold, by path and as the types that the runtime wants.
//!
//! Never: a default of its own. What holds without a word is in the table of keys.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::agent::Defaults;
use longhaul_model::prices::{PriceError, PriceTable};
use longhaul_tool::Location;
use serde_json::{Map, Value as Json};

use crate::config::env::Env;
use crate::config::price_overrides;
use crate::config::schema::SECRETS_KEY;
use crate::config::value::{Setting, Value};

/// The variable that switches the witness tools on.
pub const CRASH_PROBE_FILE_VAR: &str = "LONGHAUL_TOOLS_CRASH_PROBE_FILE";

/// Everything that is set, each with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The project's folder, or the current one where there is no project.
    pub root: PathBuf,
    /// Whether there is a project.
    pub in_project: bool,
    /// The project's file, if it has one.
    pub project_file: Option<PathBuf>,
    /// Where the user's own file is or would be.
    pub user_file: Option<PathBuf>,
    /// The folder in which the user's programs remember things, if there is one.
    pub state_folder: Option<PathBuf>,
    /// The settings by path, such as `worker.lease`.
    pub settings: BTreeMap<String, Setting>,
    /// The variables of the environment, for keys and what else is named there.
    pub env: Env,
    /// What a person should know though it is no fault.
    pub notes: Vec<String>,
}

/// Where runs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this file.
    Sqlite(Location),
    /// At this server.
    Postgres(String),
}

/// How a worker works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Runs in flight.
    pub concurrency: usize,
    /// How long a claim holds without renewal.
    pub lease: Millis,
    /// How often it looks for work when idle.
    pub poll: Millis,
    /// After so many crashes at the same place a run is blocked; 0: never.
    pub crash_limit: u32,
    /// Which inboxes it serves.
    pub inboxes: Vec<String>,
}

/// How the server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Where it listens.
    pub listen: String,
    /// Further names allowed in the `Host` header.
    pub hosts: Vec<String>,
    /// Requests a second for each key; none: the value is out of range.
    pub rate: Option<NonZeroU32>,
    /// Whether programs on this machine may submit and steer without a key.
    pub open_loopback: bool,
}

/// Models by short name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelAliases {
    /// The one that is used where none is named.
    pub default: Option<String>,
    /// All short names, `default` among them.
    pub aliases: BTreeMap<String, String>,
}

impl Config {
    /// The folder for what the runtime keeps.
    pub fn data_folder(&self) -> PathBuf {
        self.data_location().path()
    }

    /// The folder for what the runtime keeps.
    pub fn data_location(&self) -> Location {
        let data = self.text("data").unwrap_or_default();
        self.location(Path::new(data))
    }

    /// The location of a file that a setting names. A relative path lies below the root, and no
    /// link leads to it. Loading has refused other paths unless the user chose them.
    pub(crate) fn location(&self, path: &Path) -> Location {
        let below = Location::below(&self.root, path);
        below.unwrap_or_else(|| Location::Anywhere(self.root.join(path)))
    }

    /// Where runs are kept; a relative file is relative to the root.
    pub fn store_url(&self) -> StoreUrl {
        match self.text("store.url") {
            None => StoreUrl::Sqlite(self.data_location().join("longhaul.db")),
            Some(url) => match url.strip_prefix("sqlite:") {
                Some(path) => {
                    // `sqlite:///x` is how other programs write an absolute file.
                    let path = path.strip_prefix("//").unwrap_or(path);
                    StoreUrl::Sqlite(self.location(Path::new(path)))
                }
                None => StoreUrl::Postgres(url.to_owned()),
            },
        }
    }

    /// The file of the witness tools, which `chaos`, `bench` and tests use. Only the real
    /// environment switches these tools on.
    pub fn crash_probe_file(&self) -> Option<PathBuf> {
        let file = self.env.process_var(CRASH_PROBE_FILE_VAR)?;
        Some(self.root.join(file))
    }

    /// How a worker works.
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

    /// How the server serves.
    pub fn server_settings(&self) -> ServerSettings {
        let rate = self.integer("server.rate").map(saturating_u32);
        ServerSettings {
            listen: self.text("server.listen").unwrap_or_default().to_owned(),
            hosts: self.text_list("server.hosts"),
            rate: rate.and_then(NonZeroU32::new),
            open_loopback: self.boolean("server.open_loopback"),
        }
    }

    /// What binds a run where neither agent nor task says otherwise.
    pub fn defaults(&self) -> Defaults {
        let small = |path| self.integer(path).map(saturating_u32);
        let span = |path| self.duration(path).unwrap_or_default();
        Defaults {
            budget: Budget {
                micro_usd: self.float("budget.usd").map(usd_to_micros),
                tokens: self.integer("budget.tokens"),
                turns: small("budget.turns"),
                active: self.duration("budget.active_time"),
                warn_percent: fraction_to_percent(self.float("budget.warn_at").unwrap_or_default()),
            },
            retry: RetryPolicy {
                max_retries: small("retry.max_retries").unwrap_or_default(),
                initial_delay: span("retry.initial_delay"),
                max_delay: span("retry.max_delay"),
                multiplier_percent: factor_to_percent(
                    self.float("retry.multiplier").unwrap_or_default(),
                ),
                ..RetryPolicy::default()
            },
        }
    }

    /// Models by short name.
    pub fn model_aliases(&self) -> ModelAliases {
        let names = self.settings_below("models").filter_map(|(name, setting)| {
            let Value::Text(model) = &setting.value else {
                return None;
            };
            Some((name.to_owned(), model.clone()))
        });
        let names: BTreeMap<String, String> = names.collect();
        ModelAliases { default: names.get("default").cloned(), aliases: names }
    }

    /// What models cost: the table of this build, and what is set here.
    ///
    /// # Errors
    /// A price of the project's own can't be used.
    pub fn prices(&self) -> Result<PriceTable, PriceError> {
        let mut prices = PriceTable::built_in()?;
        for (model, (own, _)) in price_overrides::collect(&self.settings) {
            prices.set_override(model, own)?;
        }
        Ok(prices)
    }

    /// Who serves an inbox's tasks that name no agent, by inbox.
    pub fn inbox_agents(&self) -> BTreeMap<String, String> {
        let agents = self.settings_below("inboxes").filter_map(|(path, setting)| {
            let Value::Text(agent) = &setting.value else {
                return None;
            };
            Some((path.strip_suffix(".agent")?.to_owned(), agent.clone()))
        });
        agents.collect()
    }

    /// How long ended runs are kept.
    pub fn retention(&self) -> Millis {
        self.duration("retention.runs").unwrap_or_default()
    }

    /// Names of variables whose values are secrets.
    pub fn secret_names(&self) -> Vec<String> {
        self.text_list(SECRETS_KEY)
    }

    /// The settings of a tool, as they were written.
    pub fn tool_settings(&self, name: &str) -> Map<String, Json> {
        let all = self.settings_below("tools").filter_map(|(path, setting)| {
            let key = path.strip_prefix(name)?.strip_prefix('.')?;
            let Value::Any(json) = &setting.value else {
                return None;
            };
            Some((key.to_owned(), json.clone()))
        });
        all.collect()
    }

    /// The settings below a path, without it in their names.
    pub fn settings_below<'a>(
        &'a self,
        path: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Setting)> {
        self.settings.iter().filter_map(move |(name, setting)| {
            Some((name.strip_prefix(path)?.strip_prefix('.')?, setting))
        })
    }

    /// A text.
    pub fn text(&self, path: &str) -> Option<&str> {
        let Value::Text(text) = &self.settings.get(path)?.value else {
            return None;
        };
        Some(text)
    }

    /// Texts; none are an empty list.
    pub fn text_list(&self, path: &str) -> Vec<String> {
        let Some(Value::TextList(texts)) = self.settings.get(path).map(|setting| &setting.value)
        else {
            return Vec::new();
        };
        texts.clone()
    }

    /// Yes or no; no unless it is set.
    pub fn boolean(&self, path: &str) -> bool {
        let set = self.settings.get(path).map(|setting| &setting.value);
        matches!(set, Some(Value::Boolean(true)))
    }

    /// A whole number.
    pub fn integer(&self, path: &str) -> Option<u64> {
        let Value::Integer(whole) = &self.settings.get(path)?.value else {
            return None;
        };
        Some(*whole)
    }

    /// A number.
    pub fn float(&self, path: &str) -> Option<f64> {
        let Value::Float(real) = &self.settings.get(path)?.value else {
            return None;
        };
        Some(*real)
    }

    /// A span of time.
    pub fn duration(&self, path: &str) -> Option<Millis> {
        let Value::Duration(span) = &self.settings.get(path)?.value else {
            return None;
        };
        Some(*span)
    }
}

fn saturating_u32(whole: u64) -> u32 {
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// Dollars as the millionths that are counted.
pub(crate) fn usd_to_micros(usd: f64) -> MicroUsd {
    MicroUsd((usd * 1e6).round() as u64)
}

/// A share as the percent that is kept.
pub(crate) fn fraction_to_percent(share: f64) -> u8 {
    (share * 100.0).round() as u8
}

/// A factor as the hundredths that are kept.
pub(crate) fn factor_to_percent(factor: f64) -> u32 {
    (factor * 100.0).round() as u32
}
