//! The settings that hold, by path and as the types that the runtime wants.
//!
//! Never: a default of its own. What holds without a word is in the table of keys.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::time::Millis;
use longhaul_core::usage::Micros;
use longhaul_engine::agent::Defaults;
use longhaul_model::prices::{BadPrice, Prices};
use longhaul_tool::Location;
use serde_json::{Map, Value as Json};

use crate::config::env::Env;
use crate::config::key::SECRETS;
use crate::config::own_prices;
use crate::config::value::{Setting, Value};

/// The variable that switches the witness tools on.
pub const WITNESS_FILE: &str = "LONGHAUL_TOOLS_WITNESS_FILE";

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
    pub state: Option<PathBuf>,
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
pub struct Worker {
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
pub struct Server {
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
pub struct Models {
    /// The one that is used where none is named.
    pub default: Option<String>,
    /// All short names, `default` among them.
    pub names: BTreeMap<String, String>,
}

impl Config {
    /// The folder for what the runtime keeps.
    pub fn data(&self) -> PathBuf {
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
    pub fn store(&self) -> StoreUrl {
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
    pub fn witness_file(&self) -> Option<PathBuf> {
        let file = self.env.real(WITNESS_FILE)?;
        Some(self.root.join(file))
    }

    /// How a worker works.
    pub fn worker(&self) -> Worker {
        let concurrency = self.whole("worker.concurrency").unwrap_or_default();
        Worker {
            concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
            lease: self.span("worker.lease").unwrap_or_default(),
            poll: self.span("worker.poll").unwrap_or_default(),
            crash_limit: self.whole("worker.crash_limit").map_or(0, small),
            inboxes: self.texts("worker.inboxes"),
        }
    }

    /// How the server serves.
    pub fn server(&self) -> Server {
        let rate = self.whole("server.rate").map(small);
        Server {
            listen: self.text("server.listen").unwrap_or_default().to_owned(),
            hosts: self.texts("server.hosts"),
            rate: rate.and_then(NonZeroU32::new),
            open_loopback: self.flag("server.open_loopback"),
        }
    }

    /// What binds a run where neither agent nor task says otherwise.
    pub fn defaults(&self) -> Defaults {
        let small = |path| self.whole(path).map(small);
        let span = |path| self.span(path).unwrap_or_default();
        Defaults {
            budget: Budget {
                micros: self.real("budget.usd").map(micros),
                tokens: self.whole("budget.tokens"),
                turns: small("budget.turns"),
                active: self.span("budget.active_time"),
                warn_percent: percent(self.real("budget.warn_at").unwrap_or_default()),
            },
            retry: RetryPolicy {
                max_retries: small("retry.max_retries").unwrap_or_default(),
                initial_delay: span("retry.initial_delay"),
                max_delay: span("retry.max_delay"),
                multiplier_percent: hundredths(self.real("retry.multiplier").unwrap_or_default()),
                ..RetryPolicy::default()
            },
        }
    }

    /// Models by short name.
    pub fn models(&self) -> Models {
        let names = self.below("models").filter_map(|(name, setting)| {
            let Value::Text(model) = &setting.value else {
                return None;
            };
            Some((name.to_owned(), model.clone()))
        });
        let names: BTreeMap<String, String> = names.collect();
        Models {
            default: names.get("default").cloned(),
            names,
        }
    }

    /// What models cost: the table of this build, and what is set here.
    ///
    /// # Errors
    /// A price of the project's own can't be used.
    pub fn prices(&self) -> Result<Prices, BadPrice> {
        let mut prices = Prices::built_in()?;
        for (model, (own, _)) in own_prices::own(&self.settings) {
            prices.set(model, own)?;
        }
        Ok(prices)
    }

    /// Who serves an inbox's tasks that name no agent, by inbox.
    pub fn inboxes(&self) -> BTreeMap<String, String> {
        let agents = self.below("inboxes").filter_map(|(path, setting)| {
            let Value::Text(agent) = &setting.value else {
                return None;
            };
            Some((path.strip_suffix(".agent")?.to_owned(), agent.clone()))
        });
        agents.collect()
    }

    /// How long ended runs are kept.
    pub fn retention(&self) -> Millis {
        self.span("retention.runs").unwrap_or_default()
    }

    /// Names of variables whose values are secrets.
    pub fn secrets(&self) -> Vec<String> {
        self.texts(SECRETS)
    }

    /// The settings of a tool, as they were written.
    pub fn tool(&self, name: &str) -> Map<String, Json> {
        let all = self.below("tools").filter_map(|(path, setting)| {
            let key = path.strip_prefix(name)?.strip_prefix('.')?;
            let Value::Any(json) = &setting.value else {
                return None;
            };
            Some((key.to_owned(), json.clone()))
        });
        all.collect()
    }

    /// The settings below a path, without it in their names.
    pub fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a Setting)> {
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
    pub fn texts(&self, path: &str) -> Vec<String> {
        let Some(Value::Texts(texts)) = self.settings.get(path).map(|setting| &setting.value)
        else {
            return Vec::new();
        };
        texts.clone()
    }

    /// Yes or no; no unless it is set.
    pub fn flag(&self, path: &str) -> bool {
        let set = self.settings.get(path).map(|setting| &setting.value);
        matches!(set, Some(Value::Flag(true)))
    }

    /// A whole number.
    pub fn whole(&self, path: &str) -> Option<u64> {
        let Value::Whole(whole) = &self.settings.get(path)?.value else {
            return None;
        };
        Some(*whole)
    }

    /// A number.
    pub fn real(&self, path: &str) -> Option<f64> {
        let Value::Real(real) = &self.settings.get(path)?.value else {
            return None;
        };
        Some(*real)
    }

    /// A span of time.
    pub fn span(&self, path: &str) -> Option<Millis> {
        let Value::Span(span) = &self.settings.get(path)?.value else {
            return None;
        };
        Some(*span)
    }
}

fn small(whole: u64) -> u32 {
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// Dollars as the millionths that are counted.
pub(crate) fn micros(usd: f64) -> Micros {
    Micros((usd * 1e6).round() as u64)
}

/// A share as the percent that is kept.
pub(crate) fn percent(share: f64) -> u8 {
    (share * 100.0).round() as u8
}

/// A factor as the hundredths that are kept.
pub(crate) fn hundredths(factor: f64) -> u32 {
    (factor * 100.0).round() as u32
}
