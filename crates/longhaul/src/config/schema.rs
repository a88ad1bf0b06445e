//! The one table of everything that can be set.
//!
//! Never: two places for one key. Checks, defaults and names in the environment
//! are made from here.

use crate::config::built_in_providers::API_NAMES;
use crate::config::value_kind::ValueKind;

/// The setting that says where `send_message` delivers.
pub const DELIVER_KEY: &str = "tools.send_message.deliver";

/// The setting that says where `log_interaction` writes.
pub const LOG_FILE_KEY: &str = "tools.log_interaction.file";

/// The folders of other users whose projects are used. Only the user's own file and the real
/// environment may name them.
pub const TRUST_FOLDERS_KEY: &str = "trust.folders";

/// The variables whose values are secrets. Every layer adds to them.
pub const SECRETS_KEY: &str = "secrets.names";

/// One thing that can be set.
#[derive(Debug, Clone, Copy)]
pub struct SettingKey {
    /// Its path; `*` stands for any name.
    pub path: &'static str,
    /// What may stand there.
    pub kind: ValueKind,
    /// What holds when nobody says anything, in TOML; none: it is not set.
    pub default: Option<&'static str>,
}

/// Names in the environment that are not made from the path.
const ENV_NAME_OVERRIDES: &[(&str, &str)] =
    &[("store.url", "LONGHAUL_STORE"), ("server.listen", "LONGHAUL_LISTEN")];

const fn key(path: &'static str, kind: ValueKind) -> SettingKey {
    SettingKey { path, kind, default: None }
}

impl SettingKey {
    const fn with_default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

const SANDBOX_UNSUPPORTED: ValueKind = ValueKind::Unsupported("sandboxes");

const ATTEMPT_TIMEOUTS_UNSUPPORTED: ValueKind =
    ValueKind::Unsupported("time limits of one attempt (`budget.active_time` limits a run)");

/// All of them, in the order in which they are shown.
pub const SETTING_KEYS: &[SettingKey] = &[
    // The folder for what the runtime keeps.
    key("data", ValueKind::Text).with_default("\".longhaul\""),
    // Where runs are kept. Without a word that is in the data folder, wherever that lies.
    key("store.url", ValueKind::StoreUrl),
    // Where the server listens.
    key("server.listen", ValueKind::HostPort).with_default("\"127.0.0.1:4180\""),
    // Further names allowed in the Host header.
    key("server.hosts", ValueKind::TextList).with_default("[]"),
    // Requests a second for each key; the machine's own has no rate.
    key("server.rate", ValueKind::PositiveInt).with_default("1000"),
    // Whether programs on this machine may submit and steer without a key.
    key("server.open_loopback", ValueKind::Boolean).with_default("false"),
    // Runs in flight.
    key("worker.concurrency", ValueKind::PositiveInt).with_default("256"),
    // How long a claim holds without renewal.
    key("worker.lease", ValueKind::MinDuration(1_000)).with_default("\"15s\""),
    // How often an idle worker looks for work.
    key("worker.poll", ValueKind::MinDuration(10)).with_default("\"1s\""),
    // A run is blocked after so many crashes of its worker at the same place; 0: never.
    key("worker.crash_limit", ValueKind::UnsignedInt).with_default("3"),
    // The inboxes that this worker serves.
    key("worker.inboxes", ValueKind::TextList).with_default("[\"default\"]"),
    // Who serves tasks that name no agent.
    key("inboxes.*.agent", ValueKind::Text),
    // What comes in from other services.
    key("hooks", ValueKind::Unsupported("inbound webhooks")),
    // Who runs sandboxes.
    key("sandbox.provider", SANDBOX_UNSUPPORTED),
    // Sandboxes that run at once.
    key("sandbox.max_running", SANDBOX_UNSUPPORTED),
    // An idle sandbox stops after this.
    key("sandbox.idle_stop", SANDBOX_UNSUPPORTED),
    // Any sandbox stops after this.
    key("sandbox.auto_stop", SANDBOX_UNSUPPORTED),
    // A stopped sandbox is kept this long.
    key("sandbox.keep", SANDBOX_UNSUPPORTED),
    // Further attempts of a run.
    key("retry.max_retries", ValueKind::UnsignedInt).with_default("1"),
    // The wait before the first of them.
    key("retry.initial_delay", ValueKind::Duration).with_default("\"1s\""),
    // The longest wait.
    key("retry.max_delay", ValueKind::Duration).with_default("\"5s\""),
    // The wait grows by this factor.
    key("retry.multiplier", ValueKind::Factor).with_default("2.0"),
    // An attempt is overdue after this much active time.
    key("retry.soft_timeout", ATTEMPT_TIMEOUTS_UNSUPPORTED),
    // An attempt ends after this much active time.
    key("retry.hard_timeout", ATTEMPT_TIMEOUTS_UNSUPPORTED),
    // How long a provider that may come back is waited for.
    key("retry.outage", ValueKind::Unsupported("waits for a provider that is down")),
    // Dollars for a whole tree of runs.
    key("budget.usd", ValueKind::Usd).with_default("5.0"),
    // Active time of a run.
    key("budget.active_time", ValueKind::Duration).with_default("\"4h\""),
    // Turns of a run.
    key("budget.turns", ValueKind::PositiveInt).with_default("200"),
    // Tokens for a whole tree of runs.
    key("budget.tokens", ValueKind::PositiveInt),
    // From this share on the agent is told to wrap up.
    key("budget.warn_at", ValueKind::Fraction).with_default("0.9"),
    // How long ended runs are kept.
    key("retention.runs", ValueKind::Duration).with_default("\"90d\""),
    // Which wire format it speaks.
    key("providers.*.api", ValueKind::Choice(API_NAMES)),
    // Its address, as its own SDK takes it.
    key("providers.*.base_url", ValueKind::Url),
    // The variables that may hold its key.
    key("providers.*.key_env", ValueKind::EnvNames),
    // A further header of every request; its value is never shown.
    key("providers.*.headers.*", ValueKind::HeaderValue),
    // A further field of every request, sent as it is.
    key("providers.*.fields.*", ValueKind::Any),
    // How long a connection may take; 10s unless it is said.
    key("providers.*.connect_timeout", ValueKind::Duration),
    // How long an answer may take to begin; 2m unless it is said.
    key("providers.*.first_byte_timeout", ValueKind::Duration),
    // How long an answer may stand still; 1m unless it is said.
    key("providers.*.idle_timeout", ValueKind::Duration),
    // Where this server differs from others that speak its format.
    key("providers.*.quirks", ValueKind::TextList),
    // A short name for a model; `default` is used where none is named.
    key("models.*", ValueKind::Text),
    // Dollars for a million tokens read.
    key("prices.*.input", ValueKind::Price),
    // Dollars for a million tokens written.
    key("prices.*.output", ValueKind::Price),
    // Dollars for a million tokens read from a cache; as input unless it is said.
    key("prices.*.cached", ValueKind::Price),
    // Dollars for a million tokens written to a cache; as input unless it is said.
    key("prices.*.cache_write", ValueKind::Price),
    // How many tokens fit into the model, question and reply together.
    key("prices.*.window", ValueKind::PositiveInt),
    // The most tokens of one reply.
    key("prices.*.max_output", ValueKind::PositiveInt),
    // Variables that a sandbox may get; redacted everywhere.
    key(SECRETS_KEY, ValueKind::EnvNames).with_default("[]"),
    // Projects of other users that are used all the same; not for a project's own file.
    key(TRUST_FOLDERS_KEY, ValueKind::TextList).with_default("[]"),
    // Where events are sent.
    key("webhooks", ValueKind::Unsupported("outbound webhooks")),
    // Caps beside the budget of each run.
    key("caps", ValueKind::Unsupported("caps over time, people, agents and models")),
    // What tools and perception may ask beyond public hosts at ports 80 and 443, such as
    // 127.0.0.1:8080.
    key("outbound.allow", ValueKind::TextList).with_default("[]"),
    // Where messages go: file:PATH, webhook:URL or command:PROGRAM ARG.
    key(DELIVER_KEY, ValueKind::Any),
    // The file that interactions are written to.
    key(LOG_FILE_KEY, ValueKind::Any),
];

/// What stands at a path.
#[derive(Debug, Clone, Copy)]
pub enum PathLookup {
    /// A key: its value is read.
    Key(&'static SettingKey),
    /// Keys stand below it.
    Table,
    /// Nothing of ours.
    Unknown,
}

/// Looks a path up.
pub fn lookup(path: &[&str]) -> PathLookup {
    let mut found = PathLookup::Unknown;
    for key in SETTING_KEYS {
        let pattern: Vec<&str> = key.path.split('.').collect();
        let alike = pattern.iter().zip(path);
        let fits = alike.clone().all(|(want, have)| segment_matches(want, have));
        if !fits || pattern.len() < path.len() {
            continue;
        }
        if pattern.len() == path.len() {
            return PathLookup::Key(key);
        }
        found = PathLookup::Table;
    }
    found
}

fn segment_matches(want: &str, have: &str) -> bool {
    want == have || want == "*"
}

/// The paths that could stand in the place of an unknown one: its known siblings.
pub fn siblings(path: &[&str]) -> Vec<String> {
    let Some((_, parents)) = path.split_last() else {
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for key in SETTING_KEYS {
        let pattern: Vec<&str> = key.path.split('.').collect();
        let beside = pattern.len() > parents.len()
            && pattern.iter().zip(parents).all(|(want, have)| segment_matches(want, have));
        let name = pattern.get(parents.len()).copied().unwrap_or("*");
        if beside && name != "*" {
            let said = parents.iter().chain([&name]).copied().collect::<Vec<_>>();
            names.push(said.join("."));
        }
    }
    names.dedup();
    names
}

impl SettingKey {
    /// Its name in the environment; none where the path has free names.
    pub fn env_name(&self) -> Option<String> {
        let own = ENV_NAME_OVERRIDES.iter().find(|(path, _)| *path == self.path);
        own.map(|(_, name)| (*name).to_owned()).or_else(|| self.derived_env_name())
    }

    /// The name that would be made from its path.
    pub(crate) fn derived_env_name(&self) -> Option<String> {
        let made = || format!("LONGHAUL_{}", self.path.to_uppercase().replace('.', "_"));
        (!self.path.contains('*')).then(made)
    }
}
