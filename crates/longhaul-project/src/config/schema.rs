//! The table of all settings. Validation, defaults and names of environment variables are derived
//! from it.

use crate::config::value_kind::SettingValueKind;
use longhaul_model::providers::built_in::API_NAMES;

/// Path of the setting that names the delivery target of the tool `send_message` (where messages
/// go).
pub const DELIVER_KEY: &str = "tools.send_message.deliver";

/// Path of the setting that names the file to which the tool `log_interaction` appends.
pub const LOG_FILE_KEY: &str = "tools.log_interaction.file";

/// Path of the setting that lists folders of other users whose projects may be used. Only the user
/// file and the process environment may set it.
pub const TRUST_FOLDERS_KEY: &str = "trust.folders";

/// Path of the setting that lists the variables whose values are secrets. The lists of all layers
/// are merged.
pub const SECRETS_KEY: &str = "secrets.names";

/// Names of the sandbox providers of this build. A program can register more.
pub const SANDBOX_PROVIDERS: [&str; 3] = ["local", "docker", "daytona"];

/// A setting in the table of all settings.
#[derive(Debug, Clone, Copy)]
pub struct SettingKey {
    /// Path of the setting. A part `*` matches any name.
    pub path: &'static str,
    /// Kind of the setting's value.
    pub kind: SettingValueKind,
    /// Default value in TOML. `None` means that the setting is unset by default.
    pub default: Option<&'static str>,
}

/// Settings whose environment variable is not derived from the path, each with the variable's name.
const ENV_NAME_OVERRIDES: &[(&str, &str)] =
    &[("store.url", "LONGHAUL_STORE"), ("server.listen", "LONGHAUL_LISTEN")];

const fn key(path: &'static str, kind: SettingValueKind) -> SettingKey {
    SettingKey { path, kind, default: None }
}

impl SettingKey {
    const fn with_default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

/// All settings, in the order in which they are shown.
pub const SETTING_KEYS: &[SettingKey] = &[
    // Folder for the data of the runtime.
    key("data", SettingValueKind::TEXT).with_default("\".longhaul\""),
    // Store of the runs. Default: a file in the data folder.
    key("store.url", SettingValueKind::STORE_URL),
    // Address that the server listens on.
    key("server.listen", SettingValueKind::HOST_PORT).with_default("\"127.0.0.1:4180\""),
    // Additional host names allowed in the Host header.
    key("server.hosts", SettingValueKind::TextList).with_default("[]"),
    // Maximum requests per second and key. The local key has no limit.
    key("server.rate", SettingValueKind::Integer(1)).with_default("1000"),
    // Whether programs on this machine may submit and steer runs without a key.
    key("server.open_loopback", SettingValueKind::Boolean).with_default("false"),
    // Maximum number of runs in flight.
    key("worker.concurrency", SettingValueKind::Integer(1)).with_default("256"),
    // How long a claim is valid without renewal.
    key("worker.lease", SettingValueKind::Duration(1_000)).with_default("\"15s\""),
    // How often an idle worker polls for work.
    key("worker.poll", SettingValueKind::Duration(10)).with_default("\"1s\""),
    // Number of worker crashes at the same point after which a run is blocked. 0 means never.
    key("worker.crash_limit", SettingValueKind::Integer(0)).with_default("4"),
    // Inboxes that this worker serves.
    key("worker.inboxes", SettingValueKind::TextList).with_default("[\"default\"]"),
    // Maximum number of runs in one lane. A submit to a full lane is refused.
    key("lanes.depth", SettingValueKind::Integer(1)).with_default("10000"),
    // How long a run that collects messages waits after the last one (`lane_busy: collect`).
    key("lanes.collect", SettingValueKind::Duration(1)).with_default("\"1s\""),
    // Time within which a person or program must answer, if the agent's file sets none, or "never".
    key("gates.timeout", SettingValueKind::GateTimeout).with_default("\"24h\""),
    // Agent for tasks of this inbox that name none.
    key("inboxes.*.agent", SettingValueKind::TEXT),
    key("hooks", SettingValueKind::Unsupported("inbound webhooks")),
    // Provider of the sandboxes of agents that name none.
    key("sandbox.provider", SettingValueKind::Choice(&SANDBOX_PROVIDERS)).with_default("\"local\""),
    // Image of the sandboxes of agents that name none.
    key("sandbox.image", SettingValueKind::TEXT),
    // Maximum number of sandboxes that run at once at one provider.
    key("sandbox.max_running", SettingValueKind::Integer(1)).with_default("10"),
    // Time without use after which a sandbox is stopped. Its files are kept.
    key("sandbox.idle_stop", SettingValueKind::Duration(1_000)).with_default("\"2m\""),
    // Time without use after which a remote provider stops a sandbox on its own.
    key("sandbox.auto_stop", SettingValueKind::Duration(60_000)).with_default("\"60m\""),
    // How long the files of a sandbox are kept after the end of its run.
    key("sandbox.keep", SettingValueKind::Duration(1_000)).with_default("\"24h\""),
    // Maximum number of retries of a run.
    key("retry.max_retries", SettingValueKind::Integer(0)).with_default("1"),
    // Delay before the first retry.
    key("retry.initial_delay", SettingValueKind::Duration(1)).with_default("\"1s\""),
    // Maximum delay between retries.
    key("retry.max_delay", SettingValueKind::Duration(1)).with_default("\"5s\""),
    // Factor by which the delay grows.
    key("retry.multiplier", SettingValueKind::FACTOR).with_default("2.0"),
    // Active time after which an attempt is overdue. Default: 2m for handlers and events, else none.
    key("retry.soft_timeout", SettingValueKind::Duration(1)),
    // Active time after which an attempt is ended. Default: 5m for handlers and events, else none.
    key("retry.hard_timeout", SettingValueKind::Duration(1)),
    // How long a run waits for a provider that is unavailable. "0s": the run is retried, then fails.
    key("retry.outage", SettingValueKind::Duration(0)).with_default("\"6h\""),
    // Maximum cost in dollars of a tree of runs.
    key("budget.usd", SettingValueKind::USD).with_default("5.0"),
    // Maximum active time of a run.
    key("budget.active_time", SettingValueKind::Duration(1)).with_default("\"4h\""),
    // Maximum number of turns of a run.
    key("budget.turns", SettingValueKind::Integer(1)).with_default("200"),
    // Maximum number of tokens of a tree of runs.
    key("budget.tokens", SettingValueKind::Integer(1)),
    // Fraction of the budget at which the agent is asked to finish.
    key("budget.warn_at", SettingValueKind::FRACTION).with_default("0.9"),
    // How long ended runs are kept.
    key("retention.runs", SettingValueKind::Duration(1)).with_default("\"90d\""),
    // API format of the provider.
    key("providers.*.api", SettingValueKind::Choice(API_NAMES)),
    // Base URL, as the provider's own SDK expects it.
    key("providers.*.base_url", SettingValueKind::URL),
    // Variables that may contain the API key.
    key("providers.*.key_env", SettingValueKind::EnvNames),
    // Extra header of every request. Its value is never shown.
    key("providers.*.headers.*", SettingValueKind::HeaderValue),
    // Extra field of every request, sent unchanged.
    key("providers.*.fields.*", SettingValueKind::Any),
    // Timeout for connecting. Default: 10s.
    key("providers.*.connect_timeout", SettingValueKind::Duration(1)),
    // Timeout for the first byte of a response. Default: 2m.
    key("providers.*.first_byte_timeout", SettingValueKind::Duration(1)),
    // Timeout between two parts of a response. Default: 1m.
    key("providers.*.idle_timeout", SettingValueKind::Duration(1)),
    // Differences of this server from the standard API format.
    key("providers.*.quirks", SettingValueKind::TextList),
    // Alias of a model. `default` is used if no model is named.
    key("models.*", SettingValueKind::TEXT),
    // Dollars per million input tokens.
    key("prices.*.input", SettingValueKind::Price),
    // Dollars per million output tokens.
    key("prices.*.output", SettingValueKind::Price),
    // Dollars per million tokens read from the cache. Default: the input price.
    key("prices.*.cached", SettingValueKind::Price),
    // Dollars per million tokens written to the cache. Default: the input price.
    key("prices.*.cache_write", SettingValueKind::Price),
    // Context window in tokens, request and reply together.
    key("prices.*.window", SettingValueKind::Integer(1)),
    // Maximum number of tokens of one reply.
    key("prices.*.max_output", SettingValueKind::Integer(1)),
    // Variables that a sandbox may receive. Their values are redacted everywhere.
    key(SECRETS_KEY, SettingValueKind::EnvNames).with_default("[]"),
    // Hosts that get the value of a variable from a sandbox. Not allowed in a project's own file.
    key("secrets.*.hosts", SettingValueKind::TextList),
    // Projects of other users that may be used. Not allowed in a project's own file.
    key(TRUST_FOLDERS_KEY, SettingValueKind::TextList).with_default("[]"),
    key("webhooks", SettingValueKind::Unsupported("outbound webhooks")),
    // Caps per day, week or month, in addition to the budget of each run.
    key("caps", SettingValueKind::SpendCaps),
    // Hosts that tools and perception may reach in addition to public hosts at ports 80 and 443,
    // such as 127.0.0.1:8080.
    key("outbound.allow", SettingValueKind::TextList).with_default("[]"),
    // Delivery target of messages: file:PATH, webhook:URL or command:PROGRAM ARG.
    key(DELIVER_KEY, SettingValueKind::Text(|_| true, "text, such as `file:PATH`")),
    // File for logged interactions.
    key(LOG_FILE_KEY, SettingValueKind::Text(|path| !path.trim().is_empty(), "the path of a file")),
];

/// Meaning of a path in a configuration file.
#[derive(Debug, Clone, Copy)]
pub enum SettingPathKind {
    Key(&'static SettingKey),
    /// The path is that of a table which contains settings.
    Table,
    /// The path is neither a setting nor a table.
    Unknown,
}

/// Finds out whether a path is a setting, a table or unknown.
pub fn lookup_setting_path(setting_path: &[&str]) -> SettingPathKind {
    let mut kind = SettingPathKind::Unknown;
    for key in SETTING_KEYS {
        match key.segments_after(setting_path).as_deref() {
            Some([]) => return SettingPathKind::Key(key),
            Some(_) => kind = SettingPathKind::Table,
            None => {}
        }
    }
    kind
}

/// Returns the known paths that have the same parent as this path.
pub fn sibling_setting_paths(setting_path: &[&str]) -> Vec<String> {
    let Some((_, parents)) = setting_path.split_last() else {
        return Vec::new();
    };
    let names = SETTING_KEYS.iter().filter_map(|key| {
        let name = *key.segments_after(parents)?.first()?;
        (name != "*").then(|| [parents, &[name]].concat().join("."))
    });
    let mut names: Vec<String> = names.collect();
    names.dedup();
    names
}

impl SettingKey {
    /// Returns the segments of the key's path that follow this path. `None` means that the path is
    /// not the start of the key's path.
    fn segments_after(&self, path: &[&str]) -> Option<Vec<&'static str>> {
        let segments: Vec<&str> = self.path.split('.').collect();
        let (start, rest) = segments.split_at_checked(path.len())?;
        let mut pairs = start.iter().zip(path);
        pairs.all(|(segment, name)| segment == name || *segment == "*").then(|| rest.to_vec())
    }

    /// Returns the name of the environment variable for the setting. `None` means that there is
    /// none, because the path contains `*`.
    pub fn env_var_name(&self) -> Option<String> {
        let name_override = ENV_NAME_OVERRIDES.iter().find(|(path, _)| *path == self.path);
        name_override.map(|(_, name)| (*name).to_owned()).or_else(|| self.derived_env_var_name())
    }

    /// Returns the name of the environment variable that is derived from the setting's path, even
    /// if the setting has another variable. `None` means that the path contains `*`.
    pub(crate) fn derived_env_var_name(&self) -> Option<String> {
        let env_name = || format!("LONGHAUL_{}", self.path.to_uppercase().replace('.', "_"));
        (!self.path.contains('*')).then(env_name)
    }
}
