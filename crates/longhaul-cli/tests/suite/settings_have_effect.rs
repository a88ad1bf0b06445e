//! Every key of `longhaul.toml` and of an agent's file has an effect, or is refused with a message.
//!
//! The keys come from the tables that the parsers use. A new key fails these tests until a sample
//! here shows its effect. `observable_settings` and `effective_definition` contain only what the
//! runtime uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::agent::{Agent, BudgetPatch, RunPolicyDefaults};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::sandboxes::SandboxSettings;
use longhaul_model::providers::Providers;
use longhaul_project::assemble::sandboxes::sandbox_registry;
use longhaul_project::assemble::trusted_tools::OutboundTools;
use longhaul_project::assemble::worker_options;
use longhaul_project::config::load::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::schema::{SETTING_KEYS, TRUST_FOLDERS_KEY};
use longhaul_project::config::settings::Config;
use longhaul_project::config::value_kind::SettingValueKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::agents::{agent, load_files, problems};

/// Settings files that set each key to a value other than its default.
const NON_DEFAULT_VALUES: &[(&str, &str)] = &[
    ("data", "data = \"elsewhere\""),
    ("store.url", "[store]\nurl = \"sqlite:other.db\""),
    ("server.listen", "[server]\nlisten = \"127.0.0.1:1\""),
    ("server.hosts", "[server]\nhosts = [\"a.example\"]"),
    ("server.rate", "[server]\nrate = 7"),
    ("server.open_loopback", "[server]\nopen_loopback = true"),
    ("worker.concurrency", "[worker]\nconcurrency = 3"),
    ("worker.lease", "[worker]\nlease = \"20s\""),
    ("worker.poll", "[worker]\npoll = \"2s\""),
    ("worker.crash_limit", "[worker]\ncrash_limit = 9"),
    ("worker.inboxes", "[worker]\ninboxes = [\"mail\"]"),
    ("lanes.depth", "[lanes]\ndepth = 7"),
    ("lanes.collect", "[lanes]\ncollect = \"7s\""),
    ("gates.timeout", "[gates]\ntimeout = \"never\""),
    ("inboxes.*.agent", "[inboxes.mail]\nagent = \"a\""),
    ("retry.max_retries", "[retry]\nmax_retries = 2"),
    ("retry.initial_delay", "[retry]\ninitial_delay = \"2s\""),
    ("retry.max_delay", "[retry]\nmax_delay = \"3s\""),
    ("retry.multiplier", "[retry]\nmultiplier = 3.0"),
    ("retry.soft_timeout", "[retry]\nsoft_timeout = \"1m\""),
    ("retry.hard_timeout", "[retry]\nhard_timeout = \"1m\""),
    ("retry.outage", "[retry]\noutage = \"0s\""),
    ("budget.usd", "[budget]\nusd = 1"),
    ("budget.active_time", "[budget]\nactive_time = \"1h\""),
    ("budget.turns", "[budget]\nturns = 1"),
    ("budget.tokens", "[budget]\ntokens = 1"),
    ("budget.warn_at", "[budget]\nwarn_at = 0.5"),
    ("retention.runs", "[retention]\nruns = \"1d\""),
    ("providers.*.api", "[providers.openai]\napi = \"chat\""),
    ("providers.*.base_url", "[providers.openai]\nbase_url = \"http://127.0.0.1:1\""),
    ("providers.*.key_env", "[providers.openai]\nkey_env = \"K\""),
    ("providers.*.headers.*", "[providers.openai.headers]\nx-a = \"b\""),
    ("providers.*.fields.*", "[providers.openai.fields]\nseed = 1"),
    ("providers.*.connect_timeout", "[providers.openai]\nconnect_timeout = \"1s\""),
    ("providers.*.first_byte_timeout", "[providers.openai]\nfirst_byte_timeout = \"1s\""),
    ("providers.*.idle_timeout", "[providers.openai]\nidle_timeout = \"1s\""),
    ("providers.*.quirks", "[providers.moonshot]\nquirks = [\"text_only\"]"),
    ("models.*", "[models]\nfast = \"ollama/x\""),
    ("prices.*.input", "[prices.\"a/b\"]\ninput = 1\noutput = 1"),
    ("prices.*.output", "[prices.\"a/b\"]\ninput = 1\noutput = 2"),
    ("prices.*.cached", "[prices.\"a/b\"]\ninput = 1\noutput = 1\ncached = 0.5"),
    ("prices.*.cache_write", "[prices.\"a/b\"]\ninput = 1\noutput = 1\ncache_write = 2"),
    ("prices.*.window", "[prices.\"openai/gpt-5\"]\nwindow = 777000"),
    ("prices.*.max_output", "[prices.\"openai/gpt-5\"]\nmax_output = 777"),
    ("sandbox.provider", "[sandbox]\nprovider = \"docker\""),
    ("sandbox.image", "[sandbox]\nimage = \"rust\""),
    ("sandbox.max_running", "[sandbox]\nmax_running = 3"),
    ("sandbox.idle_stop", "[sandbox]\nidle_stop = \"7m\""),
    ("sandbox.auto_stop", "[sandbox]\nauto_stop = \"7m\""),
    ("sandbox.keep", "[sandbox]\nkeep = \"7m\""),
    ("secrets.*.hosts", "[secrets.TOKEN]\nhosts = [\"a.example\"]"),
    ("secrets.names", "[secrets]\nnames = [\"TOKEN\"]"),
    ("caps", "[[caps]]\nwindow = \"day\"\nusd = 50.0\n"),
    ("outbound.allow", "[outbound]\nallow = [\"127.0.0.1:8080\"]"),
    ("tools.send_message.deliver", "[tools.send_message]\ndeliver = \"file:x.jsonl\""),
    ("tools.log_interaction.file", "[tools.log_interaction]\nfile = \"x.jsonl\""),
];

/// A folder with this settings file as the user's own, so that nothing needs trust.
fn env_with_user_file(toml: &str) -> (TempDir, ProcessEnv) {
    let folder = tempfile::tempdir().unwrap();
    let user_folder = folder.path().join("home/.config/longhaul");
    fs::create_dir_all(&user_folder).unwrap();
    fs::write(user_folder.join("longhaul.toml"), toml).unwrap();
    let process_env = ProcessEnv {
        cwd: folder.path().to_path_buf(),
        home: Some(folder.path().join("home")),
        env: [("TOKEN".to_owned(), "a-secret-of-the-test".to_owned())].into(),
        ..ProcessEnv::default()
    };
    (folder, process_env)
}

/// Returns the retry delays in order, for a few more attempts than are configured, the timeouts of an
/// attempt and the wait for an unavailable provider.
fn retry_delays(retry: RetryPolicy) -> Vec<Option<Millis>> {
    let longer_retry = RetryPolicy { max_retries: retry.max_retries + 4, ..retry };
    let delays = (1..9).map(|attempt| longer_retry.delay_after(attempt));
    delays.chain([retry.soft_timeout, retry.hard_timeout, Some(retry.outage)]).collect()
}

/// Returns everything that parts of the runtime get from the configuration.
fn observable_settings(config: &Config) -> String {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let providers =
        Providers::new(&config.provider_settings(), |name| config.env.var(name).map(str::to_owned));
    let registry = sandbox_registry(config, &clock);
    let sandboxes = registry.settings();
    let headers: Vec<_> =
        providers.as_slice().iter().map(|provider| provider.unredacted_headers()).collect();
    let settings = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        config.data_folder(),
        config.store_url(),
        config.server_settings(),
        worker_options(config),
        config.default_agents_by_inbox(),
        config.run_policy_defaults().budget,
        (
            retry_delays(config.run_policy_defaults().retry),
            config.run_policy_defaults().lane_depth_max,
            config.run_policy_defaults().collect_window,
            config.run_policy_defaults().gate_timeout,
            config.spend_caps(),
        ),
        providers,
        headers,
        config.model_aliases(),
        config.price_table(),
        config.secret_names(),
        (config.text("tools.send_message.deliver"), config.text("tools.log_interaction.file")),
        OutboundTools::new(config, &clock).map(|out| out.client),
        SandboxSettings { store: String::new(), ..sandboxes.clone() },
        sandboxes.secrets.iter().map(|secret| (&secret.name, &secret.hosts)).collect::<Vec<_>>(),
    );
    settings.replace(config.root.to_str().unwrap(), "ROOT")
}

#[test]
fn every_setting_has_an_effect_or_is_refused() {
    let samples: BTreeMap<&str, &str> = NON_DEFAULT_VALUES.iter().copied().collect();
    let read_settings = |toml: &str| {
        let (_folder, process_env) = env_with_user_file(toml);
        load(&process_env, &[]).map(|config| observable_settings(&config))
    };
    let default = read_settings("").unwrap();
    assert_eq!(read_settings("").unwrap(), default, "the result is deterministic");
    let mut known_settings = BTreeSet::from([default]);
    for key in SETTING_KEYS {
        if let SettingValueKind::Unsupported(_) = key.kind {
            assert_unsupported(key.path, key.env_var_name().as_deref());
        } else if key.path != TRUST_FOLDERS_KEY {
            let toml = samples.get(key.path);
            let toml = toml
                .unwrap_or_else(|| panic!("add a sample that shows the effect of `{}`", key.path));
            let settings = read_settings(toml).unwrap_or_else(|error| panic!("{toml}: {error}"));
            assert!(known_settings.insert(settings), "`{}` has no effect", key.path);
        }
    }
}

/// Asserts that an unsupported key is refused wherever it is set.
fn assert_unsupported(path: &str, variable: Option<&str>) {
    for value in ["\"1m\"", "7", "[]", "{ a = 1 }"] {
        let (_folder, process_env) = env_with_user_file(&format!("{path} = {value}"));
        let error = load(&process_env, &[]).unwrap_err().to_string();
        let message = format!("`{path}`: the setting has no effect, because ");
        assert!(error.contains(&message), "{error}");
        assert!(error.ends_with("not supported by this build yet: remove it"), "{error}");
    }
    let (_folder, mut process_env) = env_with_user_file("");
    let variable = variable.expect("the key has an environment variable");
    process_env.env.insert(variable.to_owned(), "7".to_owned());
    let error = load(&process_env, &[]).unwrap_err().to_string();
    assert!(error.starts_with(variable), "{error}");
    assert!(error.contains("not supported by this build yet"), "{error}");
}

#[test]
fn unsupported_tables_are_refused() {
    for (toml, expected) in [
        (
            "[hooks.github]\ninbox = \"mail\"\nsecret_env = \"A\"\n",
            "`hooks`: the setting has no effect, because inbound webhooks are not supported by this build yet: remove it",
        ),
        (
            "[[webhooks]]\nurl = \"https://a.b\"\n[[webhooks]]\nurl = \"https://a.c\"\n",
            "`webhooks`: the setting has no effect, because outbound webhooks are not supported by this build yet: remove it",
        ),
    ] {
        let (_folder, process_env) = env_with_user_file(toml);
        let error = load(&process_env, &[]).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// What happens to a key of an agent's file.
enum KeyEffect {
    /// It changes the agent.
    Applied,
    /// The only valid value is the default.
    Default,
    /// It is not supported yet.
    Unsupported,
}

use KeyEffect::{Applied, Default as SetToDefault, Unsupported};

/// A key, a value for it, and what happens to them.
type KeyCase = (&'static str, &'static str, KeyEffect);

/// The keys of each table of an agent's file, with a value for each. In the front matter around
/// them `@` marks their position.
const TABLES: &[(&str, &[KeyCase])] = &[
    (
        "@",
        &[
            ("name", "a", SetToDefault),
            ("description", "x", Applied),
            ("model", "a/b", Applied),
            ("idle_model", "a/b", Applied),
            ("tools", "[read_file]", Applied),
            ("skills", "[]", SetToDefault),
            ("max_turns", "7", Applied),
            ("maxTurns", "7", Applied),
            ("sandbox", "{ isolation: none }", Applied),
            ("budget", "{ turns: 7 }", Applied),
            ("retry", "{ max_retries: 7 }", Applied),
            ("approve", "[{ tool: a, allow: true }]", Applied),
            ("effects", "[{ tool: a, class: pure }]", Applied),
            ("guards", "off", Applied),
            ("keep_open", "1h", Applied),
            ("in_doubt", "fail", Applied),
            ("ask_human", "{ timeout: never }", Applied),
            ("approve_result", "true", Applied),
            ("lane", "x", Applied),
            ("lane_on_park", "release", Applied),
            ("lane_busy", "steer", Applied),
            ("context", "[recipient]", Applied),
            ("perception", "{ url: \"http://a.example\" }", Applied),
            ("output", "{ schema: { type: object } }", Applied),
            ("events", "{ idle_tick: x }", Applied),
            ("outcome", "{ rubric: \"Be short.\" }", Applied),
            ("compaction", "{ at: 0.8 }", Applied),
            ("children", "{ agents: [b] }", Applied),
        ],
    ),
    (
        "budget: { @ }",
        &[
            ("usd", "1", Applied),
            ("active_time", "1h", Applied),
            ("turns", "1", Applied),
            ("tokens", "1", Applied),
            ("warn_at", "0.5", Applied),
        ],
    ),
    (
        "retry: { @ }",
        &[
            ("max_retries", "2", Applied),
            ("initial_delay", "2s", Applied),
            ("max_delay", "3s", Applied),
            ("multiplier", "3", Applied),
            ("soft_timeout", "1m", Applied),
            ("hard_timeout", "1m", Applied),
            ("outage", "0s", Applied),
        ],
    ),
    (
        "sandbox: { @ }",
        &[
            ("isolation", "none", Applied),
            ("provider", "docker", Applied),
            ("image", "rust", Applied),
            ("network", "[a.example]", Applied),
            ("cache", "[cargo]", Applied),
            ("min_isolation", "landlock", Applied),
            ("memory_mb", "512", Applied),
            ("cpus", "2", Applied),
            ("idle_stop", "2m", Applied),
            ("auto_stop", "2m", Applied),
            ("keep", "2m", Applied),
            ("volume", "{ name: a, path: /a }", Applied),
            ("env_file", "true", Applied),
            ("only_for_repo", "true", Applied),
        ],
    ),
    ("sandbox: { volume: { @, path: /a } }", &[("name", "a", Applied)]),
    ("sandbox: { volume: { @, name: a } }", &[("path", "/a", Applied)]),
    (
        "approve: [{ tool: a, ask: b, @ }]",
        &[
            ("match", "x", Applied),
            ("always", "true", Applied),
            ("timeout", "3h", Applied),
            ("on_timeout", "fail", Applied),
            ("in_doubt", "fail", Applied),
            ("approvers", "2", Applied),
            ("remind", "1m", Applied),
            ("paths", "[src]", Unsupported),
            ("then", "[{ after: 1h, to: b }]", Applied),
            ("tags", "[b]", Applied),
        ],
    ),
    (
        "approve: [{ tool: a, @ }]",
        &[("ask", "x", Applied), ("allow", "true", Applied), ("deny", "x", Applied)],
    ),
    (
        "approve: [{ tool: a, ask: b, approvers: { @ } }]",
        &[("count", "2", Applied), ("not", "submitter", Applied)],
    ),
    ("approve: [{ ask: b, @ }]", &[("tool", "x", Applied)]),
    ("approve: [{ tool: a, ask: b, then: [{ @, to: c }] }]", &[("after", "1h", Applied)]),
    ("approve: [{ tool: a, ask: b, then: [{ after: 1h, @ }] }]", &[("to", "x", Applied)]),
    (
        "approve_result: { @ }",
        &[
            ("ask", "x", Applied),
            ("timeout", "never", Applied),
            ("on_timeout", "fail", Applied),
            ("approvers", "2", Applied),
            ("tags", "[b]", Applied),
        ],
    ),
    ("ask_human: { @ }", &[("timeout", "3h", Applied)]),
    ("effects: [{ tool: a, class: pure, @ }]", &[("match", "x", Applied), ("key", "x", Applied)]),
    ("effects: [{ class: pure, @ }]", &[("tool", "x", Applied)]),
    ("effects: [{ tool: a, @ }]", &[("class", "once", Applied)]),
    (
        "guards: { @ }",
        &[
            ("identical_calls", "3", Applied),
            ("no_progress", "3", Applied),
            ("repeated_text", "off", Applied),
            ("compactions", "off", Applied),
        ],
    ),
    ("children: { @ }", &[("agents", "[b]", Applied), ("on_cancel", "keep", Applied)]),
    ("compaction: { @ }", &[("at", "0.5", Applied), ("keep", "\"the plan\"", Applied)]),
    ("perception: { url: \"http://a.example\", @ }", &[("every", "turn", Applied)]),
    (
        "perception: { @ }",
        &[("url", "\"http://b.example\"", Applied), ("command", "[./look]", Applied)],
    ),
    ("output: { @ }", &[("schema", "{ type: object }", Applied)]),
];

/// Returns what the engine uses of an agent: its definition, with the retry settings replaced by
/// the delays, and the default sandbox in place of none.
fn effective_definition(agent: &Agent) -> Value {
    let mut definition: Value = serde_json::from_slice(&agent.definition_blob().content).unwrap();
    let policy = agent.run_policy(&RunPolicyDefaults::default(), BudgetPatch::default());
    definition["retry"] = json!(format!("{:?}", retry_delays(policy.retry)));
    definition["sandbox"] = json!(agent.sandbox.clone().unwrap_or_default());
    definition
}

/// Returns the keys of a table, as listed in the error for an unknown key.
fn known_keys(table: &str) -> BTreeSet<String> {
    let found = problems(&agent_file(table, "zzqq: 1"));
    let refusal = found.iter().find_map(|problem| {
        let (_, list) = problem.split_once("unknown key `zzqq`, expected one of ")?;
        Some(list.to_owned())
    });
    let list = refusal.unwrap_or_else(|| panic!("{table}: {found:?}"));
    list.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

/// Returns the field that contains the keys of a table.
fn innermost_table(table: &str) -> &str {
    let inner =
        ["approvers: {", "then: [{", "volume: {"].iter().find(|inner| table.contains(*inner));
    let table = inner.copied().unwrap_or(table);
    table.split(':').next().unwrap_or_default()
}

fn agent_file(table: &str, entry: &str) -> String {
    format!("---\n{}\n---\nHello.\n", table.replace('@', entry))
}

#[test]
fn every_field_of_an_agent_has_an_effect_or_is_refused() {
    let default_definition = effective_definition(&agent(""));
    let mut covered_keys: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (table, fields) in TABLES {
        for (key, value, expectation) in *fields {
            covered_keys.entry(innermost_table(table)).or_default().insert((*key).to_owned());
            let entry = format!("{key}: {value}");
            match expectation {
                Applied | SetToDefault => {
                    let definition = effective_definition(&agent(&table.replace('@', &entry)));
                    let is_default = matches!(expectation, SetToDefault);
                    assert_eq!(definition == default_definition, is_default, "{table} {entry}");
                }
                Unsupported => {
                    let found = problems(&agent_file(table, &entry));
                    let message = format!("`{key}` is not supported by this build yet");
                    assert_eq!(found.len(), 1, "{found:?}");
                    assert!(found[0].contains(&message), "{found:?}");
                }
            }
        }
    }
    for (table, _) in TABLES {
        assert_eq!(known_keys(table), covered_keys[innermost_table(table)], "{table}");
    }
}

/// The fields of Claude Code's agent files, from its documentation. The same file serves Claude
/// Code, so an unsupported field is a note and not an error.
#[test]
fn every_claude_field_is_applied_or_noted() {
    let load = |front: &str| {
        let text = format!("---\n{front}\n---\nHello.\n");
        let (_folder, loaded) = load_files(&[(".claude/agents/a.md", text.as_bytes())]);
        assert_eq!(loaded.problems, []);
        let loaded_agent = &loaded.agents[0];
        (effective_definition(&loaded_agent.agent), loaded_agent.notes.join("\n"))
    };
    let (default_definition, _) = load("");
    for (key, value) in [
        ("name", "b"),
        ("description", "x"),
        ("tools", "Edit"),
        ("disallowedTools", "Read"),
        ("model", "sonnet"),
        ("permissionMode", "plan"),
        ("maxTurns", "7"),
        ("skills", "none"),
        ("mcpServers", "[a]"),
        ("hooks", "{ a: [] }"),
        ("memory", "user"),
        ("background", "true"),
        ("effort", "low"),
        ("isolation", "worktree"),
        ("color", "red"),
    ] {
        let (definition, notes) = load(&format!("{key}: {value}"));
        let is_reported = notes.contains(&format!("`{key}`"));
        assert!(definition != default_definition || is_reported, "{key}: {notes}");
    }
}
