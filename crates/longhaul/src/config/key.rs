//! The one table of everything that can be set.
//!
//! Never: two places for one key. Checks, defaults and names in the environment
//! are made from here.

use crate::config::kind::Kind;
use crate::config::known::APIS;

/// The setting that says where `send_message` delivers.
pub const DELIVER: &str = "tools.send_message.deliver";

/// The setting that says where `log_interaction` writes.
pub const LOG_FILE: &str = "tools.log_interaction.file";

/// The folders of other users whose projects are used. Only the user's own file and the real
/// environment may name them.
pub const TRUST_FOLDERS: &str = "trust.folders";

/// The variables whose values are secrets. Every layer adds to them.
pub const SECRETS: &str = "secrets.names";

/// One thing that can be set.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its path; `*` stands for any name.
    pub path: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// What holds when nobody says anything, in TOML; none: it is not set.
    pub default: Option<&'static str>,
}

/// Names in the environment that are not made from the path.
const OWN_NAMES: &[(&str, &str)] = &[
    ("store.url", "LONGHAUL_STORE"),
    ("server.listen", "LONGHAUL_LISTEN"),
];

const fn key(path: &'static str, kind: Kind) -> Key {
    Key {
        path,
        kind,
        default: None,
    }
}

impl Key {
    const fn or(self, default: &'static str) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}

const SANDBOXES: Kind = Kind::NotYet("sandboxes");

const ATTEMPT_TIMEOUTS: Kind =
    Kind::NotYet("time limits of one attempt (`budget.active_time` limits a run)");

/// All of them, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    // The folder for what the runtime keeps.
    key("data", Kind::Text).or("\".longhaul\""),
    // Where runs are kept. Without a word that is in the data folder, wherever that lies.
    key("store.url", Kind::Store),
    // Where the server listens.
    key("server.listen", Kind::Address).or("\"127.0.0.1:4180\""),
    // Further names allowed in the Host header.
    key("server.hosts", Kind::Texts).or("[]"),
    // Requests a second for each key; the machine's own has no rate.
    key("server.rate", Kind::Count).or("1000"),
    // Whether programs on this machine may submit and steer without a key.
    key("server.open_loopback", Kind::Flag).or("false"),
    // Runs in flight.
    key("worker.concurrency", Kind::Count).or("256"),
    // How long a claim holds without renewal.
    key("worker.lease", Kind::SpanFrom(1_000)).or("\"15s\""),
    // How often an idle worker looks for work.
    key("worker.poll", Kind::SpanFrom(10)).or("\"1s\""),
    // A run is blocked after so many crashes of its worker at the same place; 0: never.
    key("worker.crash_limit", Kind::Whole).or("3"),
    // The inboxes that this worker serves.
    key("worker.inboxes", Kind::Texts).or("[\"default\"]"),
    // Who serves tasks that name no agent.
    key("inboxes.*.agent", Kind::Text),
    // What comes in from other services.
    key("hooks", Kind::NotYet("inbound webhooks")),
    // Who runs sandboxes.
    key("sandbox.provider", SANDBOXES),
    // Sandboxes that run at once.
    key("sandbox.max_running", SANDBOXES),
    // An idle sandbox stops after this.
    key("sandbox.idle_stop", SANDBOXES),
    // Any sandbox stops after this.
    key("sandbox.auto_stop", SANDBOXES),
    // A stopped sandbox is kept this long.
    key("sandbox.keep", SANDBOXES),
    // Further attempts of a run.
    key("retry.max_retries", Kind::Whole).or("1"),
    // The wait before the first of them.
    key("retry.initial_delay", Kind::Span).or("\"1s\""),
    // The longest wait.
    key("retry.max_delay", Kind::Span).or("\"5s\""),
    // The wait grows by this factor.
    key("retry.multiplier", Kind::Factor).or("2.0"),
    // An attempt is overdue after this much active time.
    key("retry.soft_timeout", ATTEMPT_TIMEOUTS),
    // An attempt ends after this much active time.
    key("retry.hard_timeout", ATTEMPT_TIMEOUTS),
    // How long a provider that may come back is waited for.
    key(
        "retry.outage",
        Kind::NotYet("waits for a provider that is down"),
    ),
    // Dollars for a whole tree of runs.
    key("budget.usd", Kind::Money).or("5.0"),
    // Active time of a run.
    key("budget.active_time", Kind::Span).or("\"4h\""),
    // Turns of a run.
    key("budget.turns", Kind::Count).or("200"),
    // Tokens for a whole tree of runs.
    key("budget.tokens", Kind::Count),
    // From this share on the agent is told to wrap up.
    key("budget.warn_at", Kind::Share).or("0.9"),
    // How long ended runs are kept.
    key("retention.runs", Kind::Span).or("\"90d\""),
    // Which wire format it speaks.
    key("providers.*.api", Kind::Choice(APIS)),
    // Its address, as its own SDK takes it.
    key("providers.*.base_url", Kind::Url),
    // The variables that may hold its key.
    key("providers.*.key_env", Kind::EnvNames),
    // A further header of every request; its value is never shown.
    key("providers.*.headers.*", Kind::Header),
    // A further field of every request, sent as it is.
    key("providers.*.fields.*", Kind::Any),
    // How long a connection may take; 10s unless it is said.
    key("providers.*.connect_timeout", Kind::Span),
    // How long an answer may take to begin; 2m unless it is said.
    key("providers.*.first_byte_timeout", Kind::Span),
    // How long an answer may stand still; 1m unless it is said.
    key("providers.*.idle_timeout", Kind::Span),
    // Where this server differs from others that speak its format.
    key("providers.*.quirks", Kind::Texts),
    // A short name for a model; `default` is used where none is named.
    key("models.*", Kind::Text),
    // Dollars for a million tokens read.
    key("prices.*.input", Kind::Price),
    // Dollars for a million tokens written.
    key("prices.*.output", Kind::Price),
    // Dollars for a million tokens read from a cache; as input unless it is said.
    key("prices.*.cached", Kind::Price),
    // Dollars for a million tokens written to a cache; as input unless it is said.
    key("prices.*.cache_write", Kind::Price),
    // How many tokens fit into the model, question and reply together.
    key("prices.*.window", Kind::Count),
    // The most tokens of one reply.
    key("prices.*.max_output", Kind::Count),
    // Variables that a sandbox may get; redacted everywhere.
    key(SECRETS, Kind::EnvNames).or("[]"),
    // Projects of other users that are used all the same; not for a project's own file.
    key(TRUST_FOLDERS, Kind::Texts).or("[]"),
    // Where events are sent.
    key("webhooks", Kind::NotYet("outbound webhooks")),
    // Caps beside the budget of each run.
    key(
        "caps",
        Kind::NotYet("caps over time, people, agents and models"),
    ),
    // What tools and perception may ask beyond public hosts at ports 80 and 443, such as
    // 127.0.0.1:8080.
    key("outbound.allow", Kind::Texts).or("[]"),
    // Where messages go: file:PATH, webhook:URL or command:PROGRAM ARG.
    key(DELIVER, Kind::Any),
    // The file that interactions are written to.
    key(LOG_FILE, Kind::Any),
];

/// What stands at a path.
#[derive(Debug, Clone, Copy)]
pub enum Found {
    /// A key: its value is read.
    Key(&'static Key),
    /// Keys stand below it.
    Table,
    /// Nothing of ours.
    Unknown,
}

/// Looks a path up.
pub fn find(path: &[&str]) -> Found {
    let mut found = Found::Unknown;
    for key in KEYS {
        let pattern: Vec<&str> = key.path.split('.').collect();
        let alike = pattern.iter().zip(path);
        let fits = alike.clone().all(|(want, have)| fits(want, have));
        if !fits || pattern.len() < path.len() {
            continue;
        }
        if pattern.len() == path.len() {
            return Found::Key(key);
        }
        found = Found::Table;
    }
    found
}

fn fits(want: &str, have: &str) -> bool {
    want == have || want == "*"
}

/// The paths that could stand in the place of an unknown one: its known siblings.
pub fn siblings(path: &[&str]) -> Vec<String> {
    let Some((_, parents)) = path.split_last() else {
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for key in KEYS {
        let pattern: Vec<&str> = key.path.split('.').collect();
        let beside = pattern.len() > parents.len()
            && pattern
                .iter()
                .zip(parents)
                .all(|(want, have)| fits(want, have));
        let name = pattern.get(parents.len()).copied().unwrap_or("*");
        if beside && name != "*" {
            let said = parents.iter().chain([&name]).copied().collect::<Vec<_>>();
            names.push(said.join("."));
        }
    }
    names.dedup();
    names
}

impl Key {
    /// Its name in the environment; none where the path has free names.
    pub fn env(&self) -> Option<String> {
        let own = OWN_NAMES.iter().find(|(path, _)| *path == self.path);
        own.map(|(_, name)| (*name).to_owned())
            .or_else(|| self.made_env())
    }

    /// The name that would be made from its path.
    pub(crate) fn made_env(&self) -> Option<String> {
        let made = || format!("LONGHAUL_{}", self.path.to_uppercase().replace('.', "_"));
        (!self.path.contains('*')).then(made)
    }
}
