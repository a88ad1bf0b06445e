//! The one table of everything that can be set.
//!
//! Never: two places for one key. Checks, defaults, names in the environment
//! and documents are made from here.

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
    /// What it is for, in a sentence.
    pub about: &'static str,
}

/// Names in the environment that are not made from the path.
const OWN_NAMES: &[(&str, &str)] = &[
    ("store.url", "LONGHAUL_STORE"),
    ("server.listen", "LONGHAUL_LISTEN"),
];

const fn key(path: &'static str, kind: Kind, about: &'static str) -> Key {
    Key {
        path,
        kind,
        default: None,
        about,
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
    key("data", Kind::Text, "the folder for what the runtime keeps").or("\".longhaul\""),
    // Without a word the store lies in the data folder, wherever that is.
    key("store.url", Kind::Store, "where runs are kept"),
    key("server.listen", Kind::Address, "where the server listens").or("\"127.0.0.1:4180\""),
    key(
        "server.hosts",
        Kind::Texts,
        "further names allowed in the Host header",
    )
    .or("[]"),
    key(
        "server.rate",
        Kind::Count,
        "requests a second for each key; the machine's own has no rate",
    )
    .or("1000"),
    key(
        "server.open_loopback",
        Kind::Flag,
        "whether programs on this machine may submit and steer without a key",
    )
    .or("false"),
    key("worker.concurrency", Kind::Count, "runs in flight").or("256"),
    key(
        "worker.lease",
        Kind::SpanFrom(1_000),
        "how long a claim holds without renewal",
    )
    .or("\"15s\""),
    key(
        "worker.poll",
        Kind::SpanFrom(10),
        "how often an idle worker looks for work",
    )
    .or("\"1s\""),
    key(
        "worker.crash_limit",
        Kind::Whole,
        "a run is blocked after so many crashes of its worker at the same place; 0: never",
    )
    .or("3"),
    key(
        "worker.inboxes",
        Kind::Texts,
        "the inboxes that this worker serves",
    )
    .or("[\"default\"]"),
    key(
        "inboxes.*.agent",
        Kind::Text,
        "who serves tasks that name no agent",
    ),
    key(
        "hooks",
        Kind::NotYet("inbound webhooks"),
        "what comes in from other services",
    ),
    key("sandbox.provider", SANDBOXES, "who runs sandboxes"),
    key("sandbox.max_running", SANDBOXES, "sandboxes that run at once"),
    key(
        "sandbox.idle_stop",
        SANDBOXES,
        "an idle sandbox stops after this",
    ),
    key(
        "sandbox.auto_stop",
        SANDBOXES,
        "any sandbox stops after this",
    ),
    key(
        "sandbox.keep",
        SANDBOXES,
        "a stopped sandbox is kept this long",
    ),
    key(
        "retry.max_retries",
        Kind::Whole,
        "further attempts of a run",
    )
    .or("1"),
    key(
        "retry.initial_delay",
        Kind::Span,
        "the wait before the first of them",
    )
    .or("\"1s\""),
    key("retry.max_delay", Kind::Span, "the longest wait").or("\"5s\""),
    key(
        "retry.multiplier",
        Kind::Factor,
        "the wait grows by this factor",
    )
    .or("2.0"),
    key(
        "retry.soft_timeout",
        ATTEMPT_TIMEOUTS,
        "an attempt is overdue after this much active time",
    ),
    key(
        "retry.hard_timeout",
        ATTEMPT_TIMEOUTS,
        "an attempt ends after this much active time",
    ),
    key(
        "retry.outage",
        Kind::NotYet("waits for a provider that is down"),
        "how long a provider that may come back is waited for",
    ),
    key(
        "budget.usd",
        Kind::Money,
        "dollars for a whole tree of runs",
    )
    .or("5.0"),
    key("budget.active_time", Kind::Span, "active time of a run").or("\"4h\""),
    key("budget.turns", Kind::Count, "turns of a run").or("200"),
    key(
        "budget.tokens",
        Kind::Count,
        "tokens for a whole tree of runs",
    ),
    key(
        "budget.warn_at",
        Kind::Share,
        "from this share on the agent is told to wrap up",
    )
    .or("0.9"),
    key("retention.runs", Kind::Span, "how long ended runs are kept").or("\"90d\""),
    key(
        "providers.*.api",
        Kind::Choice(APIS),
        "which wire format it speaks",
    ),
    key(
        "providers.*.base_url",
        Kind::Url,
        "its address, as its own SDK takes it",
    ),
    key(
        "providers.*.key_env",
        Kind::EnvNames,
        "the variables that may hold its key",
    ),
    key(
        "providers.*.headers.*",
        Kind::Header,
        "a further header of every request; its value is never shown",
    ),
    key(
        "providers.*.fields.*",
        Kind::Any,
        "a further field of every request, sent as it is",
    ),
    key(
        "providers.*.connect_timeout",
        Kind::Span,
        "how long a connection may take; 10s unless it is said",
    ),
    key(
        "providers.*.first_byte_timeout",
        Kind::Span,
        "how long an answer may take to begin; 2m unless it is said",
    ),
    key(
        "providers.*.idle_timeout",
        Kind::Span,
        "how long an answer may stand still; 1m unless it is said",
    ),
    key(
        "providers.*.quirks",
        Kind::Texts,
        "where this server differs from others that speak its format",
    ),
    key(
        "models.*",
        Kind::Text,
        "a short name for a model; `default` is used where none is named",
    ),
    key(
        "prices.*.input",
        Kind::Price,
        "dollars for a million tokens read",
    ),
    key(
        "prices.*.output",
        Kind::Price,
        "dollars for a million tokens written",
    ),
    key(
        "prices.*.cached",
        Kind::Price,
        "dollars for a million tokens read from a cache; as input unless it is said",
    ),
    key(
        "prices.*.cache_write",
        Kind::Price,
        "dollars for a million tokens written to a cache; as input unless it is said",
    ),
    key(
        "prices.*.window",
        Kind::Count,
        "how many tokens fit into the model, question and reply together",
    ),
    key(
        "prices.*.max_output",
        Kind::Count,
        "the most tokens of one reply",
    ),
    key(
        SECRETS,
        Kind::EnvNames,
        "variables that a sandbox may get; redacted everywhere",
    )
    .or("[]"),
    key(
        TRUST_FOLDERS,
        Kind::Texts,
        "projects of other users that are used all the same; not for a project's own file",
    )
    .or("[]"),
    key(
        "webhooks",
        Kind::NotYet("outbound webhooks"),
        "where events are sent",
    ),
    key(
        "caps",
        Kind::NotYet("caps over time, people, agents and models"),
        "caps beside the budget of each run",
    ),
    key(
        "outbound.allow",
        Kind::Texts,
        "what tools and perception may ask beyond public hosts at ports 80 and 443, such as 127.0.0.1:8080",
    )
    .or("[]"),
    key(
        DELIVER,
        Kind::Any,
        "where messages go: file:PATH, webhook:URL or command:PROGRAM ARG",
    ),
    key(
        LOG_FILE,
        Kind::Any,
        "the file that interactions are written to",
    ),
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
