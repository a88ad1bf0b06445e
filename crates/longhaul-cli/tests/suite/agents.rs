//! Agent files: valid and invalid fields, and the messages about them.

use std::fs;
use std::path::Path;

use longhaul_core::policy::ParkedLanePolicy;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{
    ApprovalRequirement, EscalationStep, GateRuleAction, GateTimeout, GateTimeoutAction,
};
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::agent::Agent;
use longhaul_project::agents::built_in::BuiltInAgent;
use longhaul_project::agents::check::agent_warnings;
use longhaul_project::agents::load::load_all_agents;
use longhaul_project::agents::load_context::AgentLoadContext;
use longhaul_project::agents::loaded_agents::{AgentError, AgentSource, LoadedAgents};
use longhaul_project::skills;
use tempfile::TempDir;

pub(crate) const TOOLS: &[&str] =
    &["read_file", "edit_file", "list_files", "search_files", "shell", "vault_write", "finish"];

/// Every field of the contract that this build knows.
pub(crate) const CONTRACT: &str = r#"---
name: implement
description: Implements an approved plan in a sandboxed clone.
model: anthropic/claude-sonnet-4-5     # provider/model or a short name
idle_model: moonshot/kimi-k2-0905-chat
tools: [read_file, edit_file, shell, mcp:github]
skills: [rust-style]
max_turns: 120
sandbox: { provider: local, idle_stop: 2m, network: none, volume: { name: repo-cache, path: /data }, env_file: true }
budget: { usd: 10, active_time: 4h, warn_at: 0.9 }
retry: { max_retries: 1, hard_timeout: 4h }
approve:
  - { tool: git_push, ask: "Push the branch", timeout: 24h, on_timeout: reject, approvers: 1, remind: 2h }
  - { tool: shell, match: "rm -rf *", deny: "use the trash" }
effects: [{ tool: shell, match: "cargo *", class: pure }]
guards: { identical_calls: 16 }
keep_open: 1h
in_doubt: ask
approve_result: true
lane: "repo:{{ input.repo }}"
lane_on_park: keep
lane_busy: enqueue
context: [recipient]
perception: { command: [./look], every: run }
output: { schema: ./schemas/pr.json }
events:
  player_proximity: "A player named {{ actor.name }} has approached."
  idle_tick: "You have a moment to yourself. What do you do?"
---
The system prompt, a Jinja template over `input`, `context`, `perception`, `memory`.
"#;

pub(crate) fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join("agents").join(name), text).unwrap();
    }
    folder
}

/// Loads a project with these files.
pub(crate) fn load_files(files: &[(&str, &[u8])]) -> (TempDir, LoadedAgents) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let loaded = load_folder(folder.path(), &[]);
    (folder, loaded)
}

/// Loads the project in this folder.
pub(crate) fn load_folder(root: &Path, built_in: &[BuiltInAgent]) -> LoadedAgents {
    let skills = skills::load_skills(root, Path::new(""));
    load_all_agents(&AgentLoadContext {
        display_root: Path::new(""),
        built_in,
        skills: &skills.skills,
        broken_skills: &skills.broken_names,
        short_names: &["default", "sonnet", "fast"],
        ..AgentLoadContext::new(root, TOOLS)
    })
}

fn load_with_built_ins(files: &[(&str, &[u8])], built_in: &[BuiltInAgent]) -> LoadedAgents {
    load_folder(folder(files).path(), built_in)
}

pub(crate) fn problem_texts(loaded: &LoadedAgents) -> Vec<String> {
    loaded.problems.iter().map(ToString::to_string).collect()
}

/// Returns the problems of a file `a.md`, without its name.
pub(crate) fn problems(text: &str) -> Vec<String> {
    let loaded = load_with_built_ins(&[("a.md", text.as_bytes())], &[]);
    let texts = problem_texts(&loaded);
    let name = |line: &String| line.strip_prefix("agents/a.md:").unwrap().to_owned();
    texts.iter().map(name).collect()
}

pub(crate) fn agent(front: &str) -> Agent {
    let text = format!("---\n{front}\n---\nHello.\n");
    let loaded = load_with_built_ins(&[("a.md", text.as_bytes())], &[]);
    assert_eq!(problem_texts(&loaded), [""; 0], "{front}");
    loaded.agents[0].agent.clone()
}

pub(crate) fn assert_problems(front: &str, expected: &[&str]) {
    assert_eq!(problems(&format!("---\n{front}\n---\nHello.\n")), expected, "{front}");
}

#[test]
fn the_contract_file_loads() {
    let skill: &[u8] = b"---\nname: rust-style\ndescription: How Rust is written here.\n---\n";
    let files: &[(&str, &[u8])] = &[
        ("agents/implement.md", CONTRACT.as_bytes()),
        ("schemas/pr.json", b"{\"type\": \"object\"}"),
        ("skills/rust-style/SKILL.md", skill),
    ];
    let (_folder, loaded) = load_files(files);
    assert_eq!(problem_texts(&loaded), Vec::<String>::new());
    let agent = &loaded.find_loaded_agent("implement").unwrap().agent;
    let sandbox = agent.sandbox_config().expect("the file has a sandbox");
    assert_eq!(sandbox.provider.as_deref(), Some("local"));
    assert_eq!(sandbox.idle_stop, Some(Millis::from_secs(120)));
    assert!(sandbox.env_file && sandbox.volume.is_some());
}

#[test]
fn fallback_models_are_read_in_order() {
    let text: &[u8] = b"---\nmodel: [fast, ollama/x]\n---\nHello.";
    let loaded = load_with_built_ins(&[("a.md", text)], &[]);
    assert_eq!(problem_texts(&loaded), [""; 0]);
    assert_eq!(loaded.find_loaded_agent("a").unwrap().agent.models, ["fast", "ollama/x"]);
}

#[test]
fn supported_fields_of_the_contract_are_read() {
    let unsupported_keys = ["skills", "sandbox", "output"];
    let text: String = CONTRACT
        .replace(", shell, mcp:github", "")
        .split_inclusive('\n')
        .filter(|line| !unsupported_keys.iter().any(|key| line.starts_with(key)))
        .collect();
    let loaded = load_with_built_ins(&[("implement.md", text.as_bytes())], &[]);
    assert_eq!(problem_texts(&loaded), [""; 0]);
    let found = loaded.find_loaded_agent("implement").unwrap();
    assert_eq!(found.source, AgentSource::Project);
    let agent = &found.agent;
    assert_eq!(agent.models, ["anthropic/claude-sonnet-4-5"]);
    assert_eq!(agent.tools, ["read_file", "edit_file"]);
    assert_eq!(agent.max_turns, Some(120));
    assert_eq!(agent.budget.caps.micro_usd, Some(MicroUsd(10_000_000)));
    assert_eq!(agent.budget.caps.active, Some(Millis::from_secs(4 * 3600)));
    assert_eq!(agent.budget.warn_percent, Some(90));
    assert_eq!(agent.retry.max_retries, Some(1));
    let [push, shell] = agent.rules.as_slice() else {
        panic!("{:?}", agent.rules);
    };
    assert_eq!(push.action, GateRuleAction::Ask("Push the branch".into()));
    assert_eq!(push.timeout, Some(GateTimeout::After(Millis::from_secs(24 * 3600))));
    assert_eq!(push.remind, Some(Millis::from_secs(2 * 3600)));
    assert_eq!(push.on_timeout, GateTimeoutAction::Reject);
    assert_eq!(shell.match_glob.as_deref(), Some("rm -rf *"));
    assert_eq!(shell.action, GateRuleAction::Deny("use the trash".into()));
    assert_eq!(agent.effects[0].class, Some(EffectClass::Pure));
    assert_eq!(agent.keep_open, Some(Millis::from_secs(3600)));
    assert_eq!(agent.in_doubt, Some(InDoubtPolicy::Ask));
    assert!(agent.result_gate.is_some());
    assert_eq!(agent.lane.as_deref(), Some("repo:{{ input.repo }}"));
    assert_eq!(agent.lane_on_park, ParkedLanePolicy::Keep);
    assert_eq!(agent.context, ["recipient"]);
    assert!(agent.prompt.starts_with("The system prompt"));
}

#[test]
fn a_minimal_agent_file_is_enough() {
    let empty = agent("");
    assert_eq!(empty.name.as_str(), "a");
    assert_eq!(empty.prompt, "Hello.");
    assert_eq!(agent("# only a comment").definition_hash(), empty.definition_hash());
    assert_eq!(agent("maxTurns: 7").max_turns, Some(7));
    assert_eq!(agent("model: [fast]").models, ["fast"]);
    assert_eq!(agent("keep_open: 1h 30m").keep_open, Some(Millis::from_secs(5400)));
    assert!(agent("approve_result: false").result_gate.is_none());
    let result = agent(
        "approve_result: { ask: Ship it?, timeout: never, approvers: { count: 2, not: submitter }, tags: [release] }",
    )
    .result_gate
    .unwrap();
    assert_eq!((result.ask.as_str(), result.timeout), ("Ship it?", Some(GateTimeout::Never)));
    assert_eq!((result.approvers.count, result.tags), (2, vec!["release".to_owned()]));
    let rules = agent(
        "approve:\n- { tool: a, ask: x, timeout: never, remind: 48h, then: [{ after: 6h, to: lead }], tags: [money] }",
    )
    .rules;
    assert_eq!(rules[0].timeout, Some(GateTimeout::Never));
    assert_eq!(rules[0].tags, ["money"]);
    let lead = EscalationStep { after: Millis::from_secs(6 * 3600), to: "lead".to_owned() };
    assert_eq!(rules[0].escalation, [lead]);
    let rules = agent(
        "approve:\n- { tool: a, ask: x, approvers: { count: 2, not: submitter }, always: true }\n- { tool: '*', allow: true, in_doubt: tell }",
    )
    .rules;
    let requirement = ApprovalRequirement { count: 2, not_submitter: true };
    assert_eq!(rules[0].approvers, requirement);
    assert!(rules[0].always);
    assert_eq!(rules[1].action, GateRuleAction::Allow);
    assert_eq!(rules[1].in_doubt, Some(InDoubtPolicy::Tell));
}

#[test]
fn line_endings_and_a_byte_order_mark_do_not_change_the_version() {
    let unix = "---\nname: a\n---\nOne.\nTwo.\n";
    let windows = format!("\u{feff}{}", unix.replace('\n', "\r\n"));
    let version = |text: &str| {
        let loaded = load_with_built_ins(&[("a.md", text.as_bytes())], &[]);
        assert_eq!(problem_texts(&loaded), [""; 0]);
        loaded.agents[0].agent.definition_hash()
    };
    assert_eq!(version(unix), version(&windows));
}

#[test]
fn every_problem_of_a_file_is_reported_with_its_position() {
    assert_problems(
        "descripton: x\nmax_turns: many\nin_doubt: aks\ntools: [raed_file, edit_file, edit_file]\nbudget: { usd: -1, active_tiem: 4h }",
        &[
            "2:1: unknown key `descripton`, did you mean `description`?",
            "3:12: `max_turns` is \"many\": write a whole number, 1 or more",
            "4:11: unknown value for `in_doubt`: `aks`, did you mean `ask`?",
            "5:9: unknown tool `raed_file`, did you mean `read_file`?",
            "5:31: `tools` lists `edit_file` twice",
            "6:16: `usd` is -1: write a number from 0.000001 to 1000000000",
            "6:20: unknown key `active_tiem`, did you mean `active_time`?",
        ],
    );
}

#[test]
fn invalid_values_are_refused() {
    assert_problems(
        "name: b",
        &[
            "2:7: the name `b` differs from the file name: rename the file to `b.md` or write `name: a`",
        ],
    );
    assert_problems("name: 7", &["2:7: `name` is 7: write text in quotes"]);
    assert_problems("model:", &["2:6: `model` has no value: write text"]);
    assert_problems("model: []", &["2:8: `model` is empty: name a model, or remove the line"]);
    assert_problems(
        "approve_result: yes",
        &["2:17: `approve_result` is \"yes\": write true or false"],
    );
    assert_problems(
        "keep_open: 1",
        &["2:12: `keep_open` is 1: write a duration such as 15s, 2m, 1h 30m or 90d"],
    );
    assert_problems("max_turns: 0", &["2:12: `max_turns` is 0: write a whole number, 1 or more"]);
    assert_problems(
        "max_turns: 99999999999",
        &["2:12: `max_turns` is 99999999999: write a whole number, 1 or more"],
    );
    assert_problems(
        "max_turns: 1\nmaxTurns: 2",
        &["3:1: `max_turns` and `maxTurns` are the same: write one of them"],
    );
    assert_problems(
        "tools: read_file",
        &["2:8: `tools` is \"read_file\": write a list such as `tools: [...]`"],
    );
    assert_problems(
        "budget: { usd: 0 }",
        &["2:16: `usd` is 0: write a number from 0.000001 to 1000000000"],
    );
    assert_problems(
        "budget: 5",
        &["2:9: `budget` is 5: write a table such as `budget: { usd: ... }`"],
    );
    assert_problems(
        "lane_on_park: hold",
        &["2:15: unknown value for `lane_on_park`: `hold`, expected one of `keep`, `release`"],
    );
    assert_problems(
        "lane_busy: drop",
        &["2:12: unknown value for `lane_busy`: `drop`, expected one of `enqueue`, `steer`, \
           `collect`, `interrupt`, `reject`"],
    );
    assert_problems(
        "- a",
        &["2:1: `front matter` is a list: write a table such as `front matter: { name: ... }`"],
    );
}

#[test]
fn a_rule_has_exactly_one_action() {
    assert_problems(
        "approve:\n  - { tool: a }",
        &[
            "3:5: `approve[0]` has no decision: write one of `ask: \"...\"`, `allow: true`, `deny: \"...\"`",
        ],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, deny: y }",
        &["3:24: `approve[0]` has more than one of `ask`, `allow` and `deny`: keep one"],
    );
    assert_problems(
        "approve:\n  - { ask: x }",
        &["3:5: `approve[0]` names no tool: write `tool: NAME` or `tool: \"*\"`"],
    );
    assert_problems(
        "approve:\n  - { tool: a, allow: false }",
        &["3:23: `allow: false` is not valid: write `deny: \"reason\"`"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, timeout: 1h, remind: 2h }",
        &["3:45: `remind` never fires: the gate expires after 1h"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, approvers: 0 }",
        &["3:35: `approvers` is 0: write a whole number, 1 or more"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, timeout: never, on_timeout: fail }",
        &["3:40: `on_timeout` has no effect: the gate never expires"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, then: [{ to: b }] }",
        &["3:31: `then[0]` must be written as { after: 6h, to: NAME }"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, paths: [src] }",
        &["3:24: `paths` is not supported by this build yet: remove it"],
    );
    assert_problems(
        "effects: [{ tool: shell, class: prue }]",
        &["2:33: unknown value for `class`: `prue`, did you mean `pure`?"],
    );
}

#[test]
fn the_times_and_tags_of_a_gate_are_limited() {
    assert_problems(
        "approve:\n  - { tool: a, ask: x, remind: 1ms }",
        &["3:32: `remind` must be at least 1m"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, timeout: 1m, then: [{ after: 6h, to: b }] }",
        &["3:53: `after` never fires: the gate expires after 1m"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, timeout: 99999999999d }",
        &["3:33: `timeout` must be at most 3650d, or `never`"],
    );
    assert_problems(
        "approve:\n  - { tool: a, ask: x, timeout: never, remind: 3651d }",
        &["3:48: `remind` must be at most 3650d"],
    );
    let tags = "a gate has at most 20 tags of 1 to 200 bytes, without control characters and other than `submit_again`";
    let (many, long) = (["a"; 21].join(", "), "a".repeat(201));
    for list in ["submit_again", "\"a\\nb\"", many.as_str(), long.as_str()] {
        assert_problems(
            &format!("approve_result: {{ tags: [{list}] }}"),
            &[&format!("2:25: {tags}")],
        );
        assert_problems(
            &format!("approve:\n  - {{ tool: a, ask: x, tags: [{list}] }}"),
            &[&format!("3:30: {tags}")],
        );
    }
}

#[test]
fn templates_are_compiled_early() {
    let found = problems("---\nlane: \"{{ input.repo\"\n---\n\nOne.\nTwo {% if %}.\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("2:7: `lane`: invalid template: "), "{found:?}");
    assert!(found[1].starts_with("6:1: invalid template: "), "{found:?}");
    let found = problems("---\n---\n{{ perception }}");
    assert_eq!(
        found,
        [
            "3:4: in the template: unknown name `perception`, expected one of `input`, `context`, `memory`, `previous`, `steps`"
        ]
    );
    let found = problems("---\nlane: \"x:{{ inptu }}\"\n---\nOne.\n{{ memroy }}\n");
    assert_eq!(
        found,
        [
            "2:7: `lane`: in the template: unknown name `inptu`, did you mean `input`?",
            "5:4: in the template: unknown name `memroy`, did you mean `memory`?",
        ]
    );
}

#[test]
fn invalid_front_matter_is_one_problem_with_its_position() {
    let assert_single_problem = |text: &str, expected: &str| {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{found:?}");
    };
    assert_single_problem("# Read me\n", "1:1: an agent file starts with a line `---`");
    assert_single_problem("---\nname: [a\n---\n", "2:7: the text is not valid YAML: ");
    assert_single_problem("---\nname: a\nname: a\n---\n", "3:1: the text is not valid YAML: ");
    let deep_yaml = format!("---\ncontext: {}{}\n---\n", "[".repeat(40), "]".repeat(40));
    assert_single_problem(&deep_yaml, "2:");
    let loaded = load_with_built_ins(&[("a.md", b"---\nname: \xff\n---\n")], &[]);
    assert_eq!(
        problem_texts(&loaded),
        ["agents/a.md:2:7: the file is not UTF-8: save it as UTF-8"]
    );
}

#[test]
fn a_broken_file_stops_only_its_own_agent() {
    let files: &[(&str, &[u8])] = &[
        ("good.md", b"---\n---\nHello."),
        ("bad.md", b"---\nnam: bad\n---\n"),
        ("bad name.md", b"---\n---\n"),
        (".hidden.md", b"nothing"),
        ("notes.txt", b"nothing"),
    ];
    let loaded = load_with_built_ins(files, &[]);
    assert!(loaded.find_loaded_agent("good").is_ok());
    assert_eq!(loaded.to_agent_registry().agents().count(), 1);
    assert!(matches!(loaded.find_loaded_agent("bad"), Err(AgentError::Broken { .. })));
    let error = loaded.find_loaded_agent("goood").unwrap_err().to_string();
    assert_eq!(error, "unknown agent `goood`, did you mean `good`?");
    let names: Vec<&str> = loaded.broken.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["bad", "bad name"]);
}

#[test]
fn a_project_s_file_hides_a_built_in_agent_even_when_broken() {
    let built_in = |name| BuiltInAgent { script: "", name, file: "---\n---\nBuilt in." };
    let built_in = [built_in("plan"), built_in("review"), built_in("fix")];
    let files: &[(&str, &[u8])] = &[("plan.md", b"---\n---\nOurs."), ("fix.md", b"broken")];
    let loaded = load_with_built_ins(files, &built_in);
    assert_eq!(loaded.find_loaded_agent("plan").unwrap().agent.prompt, "Ours.");
    assert_eq!(loaded.find_loaded_agent("review").unwrap().source, AgentSource::BuiltIn);
    assert!(loaded.find_loaded_agent("fix").is_err());
    let hidden: Vec<String> = loaded
        .hidden
        .iter()
        .map(|one| format!("{} by {}", one.name, one.hidden_by.display()))
        .collect();
    assert_eq!(hidden, ["plan by agents/plan.md", "fix by agents/fix.md"]);
}

#[test]
fn a_once_tool_without_a_rule_is_noted() {
    let is_once = |tool: &str| Some(matches!(tool, "vault_write" | "edit_file"));
    let warnings = |front: &str| agent_warnings(&agent(front), is_once);
    let found = warnings("tools: [edit_file, read_file]");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("calls of `edit_file` can't be undone and no rule covers them"));
    assert_eq!(warnings("tools: [edit_file]\napprove: [{ tool: 'e*', allow: true }]"), [""; 0]);
    let effects = "tools: [edit_file]\neffects: [{ tool: edit_file, class: pure }]";
    assert_eq!(warnings(effects), [""; 0]);
    let effects =
        "tools: [edit_file]\neffects: [{ tool: edit_file, match: 'docs/*', class: pure }]";
    assert_eq!(warnings(effects).len(), 1);
    let found = warnings("tools: [read_file]\napprove: [{ tool: raed_file, ask: x }]");
    assert_eq!(
        found,
        [
            "a rule names the tool `raed_file`, which the agent does not have, did you mean `read_file`?"
        ]
    );
}
