//! Fields of agent files that configure the runtime: valid and invalid values.

use std::fs;
use std::os::unix::fs::symlink;

use longhaul_core::event::run::CompactionPolicy;
use longhaul_core::policy::ChildCancelPolicy;
use longhaul_core::policy::gate::GateTimeout;
use longhaul_core::time::Millis;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::{
    ChildRunsConfig, GradingConfig, LoopGuardConfig, PerceptionConfig, PerceptionInterval,
    PerceptionSource,
};
use longhaul_project::agents::check::agent_warnings;

use super::agents::{agent, assert_problems, load_files, load_folder, problem_texts, problems};

#[test]
fn idle_models_are_parsed_like_models() {
    assert_eq!(agent("idle_model: fast").idle_models, ["fast"]);
    assert_eq!(agent("idle_model: [a/b, c/d]").idle_models, ["a/b", "c/d"]);
    let empty = "2:13: `idle_model` is empty: name a model, or remove the line";
    assert_problems("idle_model: []", &[empty]);
    assert_problems("idle_model: 7", &["2:13: `idle_model` is 7: write text in quotes"]);
}

#[test]
fn children_name_agents_and_what_a_cancel_does() {
    assert_eq!(agent("max_turns: 3").children, ChildRunsConfig::default());
    let config = agent("children: { agents: [a, b], on_cancel: keep }").children;
    assert_eq!(
        (config.agents, config.on_cancel),
        (vec!["a".into(), "b".into()], ChildCancelPolicy::Keep)
    );
    assert_problems(
        "children: { agents: [] }",
        &["2:21: `agents` is empty: name an agent, or remove `run_agent` from `tools`"],
    );
    assert_problems(
        "children: { agnets: [a] }",
        &["2:13: unknown key `agnets`, did you mean `agents`?"],
    );
}

#[test]
fn a_question_mark_defers_tools() {
    let deferred = agent("tools: [mcp:github?, read_file, \"mcp__billing__pay?\"]");
    assert_eq!(deferred.tools, ["mcp:github", "read_file", "mcp:billing/pay"]);
    assert_eq!(deferred.deferred_tools, ["mcp:github", "mcp:billing/pay"]);
    assert_problems(
        "tools: [mcp:github?, mcp:github]",
        &["2:22: `mcp:github` is listed with and without `?`: remove one"],
    );
    assert_problems(
        "tools: [read_fil?]",
        &["2:9: unknown tool `read_fil`, did you mean `read_file`?"],
    );
}

#[test]
fn an_outcome_has_a_rubric_as_text_or_file() {
    let outcome =
        agent("outcome: { rubric: \"Is it short?\", grader: fast, max_rounds: 10 }").outcome;
    let expected = |rubric: &str, grader: Option<&str>, max_rounds| {
        let (rubric, grader) = (rubric.to_owned(), grader.map(str::to_owned));
        Some(GradingConfig { rubric, grader, max_rounds })
    };
    assert_eq!(outcome, expected("Is it short?", Some("fast"), 10));
    let file = b"---\noutcome: { rubric: ./rubrics/a.md }\n---\nWork.\n";
    let load_rubric =
        |rubric: &[u8]| load_files(&[("agents/a.md", file), ("rubrics/a.md", rubric)]).1;
    let loaded = load_rubric(b"- Short.\n");
    assert_eq!(loaded.agents[0].agent.outcome, expected("- Short.", None, 3));
    let changed = load_rubric(b"- Long.\n");
    let version = |loaded: &longhaul_project::agents::loaded_agents::LoadedAgents| {
        loaded.agents[0].agent.definition_hash()
    };
    assert_ne!(version(&loaded), version(&changed), "the rubric is a part of the version");
    let message =
        "`outcome` needs a `rubric`: the path of a file such as ./rubric.md, or the text itself";
    for (front, expected) in [
        ("outcome: { grader: fast }", format!("2:1: {message}")),
        (
            "outcome: { rubric: ./none.md }",
            "2:20: the rubric `./none.md` can't be used: the file does not exist".to_owned(),
        ),
        (
            "outcome: { rubric: ../../etc/hosts.txt }",
            "2:20: the rubric `../../etc/hosts.txt` can't be used: the path leads out of the project: name a file inside the project".to_owned(),
        ),
        (
            "outcome: { rubric: x, max_rounds: 0 }",
            "2:35: `max_rounds` is 0: write a whole number, 1 or more".to_owned(),
        ),
        ("outcome: { rubric: x, max_rounds: 11 }", "2:35: `max_rounds` is above 10".to_owned()),
        (
            "outcome: { rubric: x, graders: a }",
            "2:23: unknown key `graders`, did you mean `grader`?".to_owned(),
        ),
    ] {
        assert_problems(front, &[&expected]);
    }
}

#[test]
fn guards_are_a_number_or_off() {
    let calls = |front: &str| agent(front).guards.unwrap().identical_calls;
    assert_eq!(calls("guards: { identical_calls: 2 }"), Some(2));
    assert_eq!(calls("guards: { identical_calls: off }"), None);
    assert_eq!(agent("guards: off").guards, Some(LoopGuardConfig::OFF));
    let default = LoopGuardConfig::default();
    assert_eq!(
        agent("guards: { no_progress: 9, repeated_text: off }").guards,
        Some(LoopGuardConfig { no_progress: Some(9), repeated_text: None, ..default })
    );
    assert_problems(
        "guards: { identical_calls: 1 }",
        &["2:28: `identical_calls` is 1: write a whole number, 2 or more"],
    );
    assert_problems(
        "guards: { identical_calls: of }",
        &["2:28: unknown value for `identical_calls`: `of`, did you mean `off`?"],
    );
    assert_problems(
        "guards: {}",
        &["2:9: `guards` is empty: write `identical_calls: 16`, or `guards: off`"],
    );
    assert_problems(
        "guards: on",
        &["2:9: unknown value for `guards`: `on`, expected one of `off`"],
    );
    assert_problems(
        "guards: true",
        &["2:9: `guards` is true: write a table such as `guards: { identical_calls: ... }`"],
    );
}

#[test]
fn compaction_has_a_threshold_and_a_text() {
    let compaction = agent("compaction: { at: 0.8, keep: \"the plan, verbatim\" }").compaction;
    let keep = Some("the plan, verbatim".to_owned());
    assert_eq!(compaction, Some(CompactionPolicy { at_percent: Some(80), keep }));
    assert_eq!(problems("compaction: { at: 0.99 }").len(), 1);
    assert_eq!(problems("compaction: { at: 0 }").len(), 1);
    assert_eq!(problems(&format!("compaction: {{ keep: {} }}", "x".repeat(5_000))).len(), 1);
    assert_eq!(problems("compaction: { kep: x }").len(), 1);
}

#[test]
fn perception_is_parsed() {
    let perception = |front: &str| agent(front).perception.unwrap();
    assert_eq!(
        perception("perception: { command: [./look, -v, -v], every: turn }"),
        PerceptionConfig {
            source: PerceptionSource::Command(vec!["./look".into(), "-v".into(), "-v".into()]),
            every: PerceptionInterval::Turn,
        }
    );
    let url = "https://example.com/look?x=1";
    assert_eq!(
        perception(&format!("perception: {{ url: \"{url}\" }}")),
        PerceptionConfig {
            source: PerceptionSource::Url(url.into()),
            every: PerceptionInterval::Run,
        }
    );
    let message = "2:1: `perception` needs one of `command` and `url`";
    assert_problems("perception: { every: run }", &[message]);
    assert_problems("perception: { command: [a], url: \"http://a\" }", &[message]);
    assert_problems(
        "perception: { command: ./look }",
        &["2:24: `command` is \"./look\": write a list such as `command: [...]`"],
    );
    assert_problems(
        "perception: { command: [] }",
        &["2:24: `command` is empty: write `command: [./look]`"],
    );
    assert_problems(
        "perception: { command: [a, 7] }",
        &["2:28: `command[1]` is 7: write text in quotes"],
    );
    for invalid_url in ["ftp://a", "look", "http://", "javascript:alert(1)", "file:///etc/passwd"] {
        assert_problems(
            &format!("perception: {{ url: \"{invalid_url}\" }}"),
            &["2:20: `url` is not valid: write one that starts with http:// or https://"],
        );
    }
    assert_problems(
        "perception: { url: \"http://a\", every: day }",
        &["2:39: unknown value for `every`: `day`, expected one of `run`, `turn`"],
    );
}

#[test]
fn events_are_parsed_as_templates() {
    let events = agent("events:\n  idle_tick: Think.\n  \"a b\": \"{{ actor.name }} came\"").events;
    assert_eq!(events["idle_tick"], "Think.");
    assert_eq!(events["a b"], "{{ actor.name }} came");
    assert_problems(
        "events: [a]",
        &["2:9: `events` must be a table: write `KIND: \"text for the model\"`"],
    );
    assert_problems("events: { a: 7 }", &["2:14: `a` is 7: write text in quotes"]);
    let found = problems("---\nevents: { a: \"{{ x\", b: \"{% for %}\" }\n---\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("2:14: `a`: invalid template: "), "{found:?}");
}

#[test]
fn mcp_tools_and_claude_tool_names_are_parsed() {
    assert_eq!(
        agent("tools: [mcp:github, mcp:linear/list_issues, mcp__a__b, Read, read_file, Grep]")
            .tools,
        ["mcp:github", "mcp:linear/list_issues", "mcp:a/b", "read_file", "search_files"]
    );
    assert_problems(
        "tools: [\"mcp:\"]",
        &[
            "2:9: `mcp:` is not a valid MCP tool name: write `mcp:SERVER`, `mcp:SERVER/TOOL` or `mcp:*`",
        ],
    );
    let found = problems("---\ntools: [WebFetch]\n---\n");
    assert!(found[0].starts_with("2:9: unknown tool `WebFetch`"), "{found:?}");
}

/// Loads an agent with this schema file.
fn agent_with_schema(schema: &[u8]) -> Result<Agent, String> {
    let agent: &[u8] = b"---\noutput: { schema: ./schemas/a.json }\n---\nHello.";
    let (_folder, loaded) = load_files(&[("agents/a.md", agent), ("schemas/a.json", schema)]);
    match loaded.find_loaded_agent("a") {
        Ok(loaded_agent) => Ok(loaded_agent.agent.clone()),
        Err(_) => Err(problem_texts(&loaded).join("\n")),
    }
}

#[test]
fn a_schema_is_part_of_the_agent() {
    let agent_with = |schema: &str| agent_with_schema(schema.as_bytes()).unwrap();
    let first = agent_with(r#"{ "type": "object", "properties": { "a": { "type": "integer" } } }"#);
    let output = first.output.as_ref().unwrap().as_str();
    assert_eq!(output, r#"{"properties":{"a":{"type":"integer"}},"type":"object"}"#);
    // Whitespace and the order of keys do not change the schema.
    let reordered = agent_with(r#"{"properties":{"a":{"type":"integer"}},"type":"object"}"#);
    assert_eq!(first.definition_hash(), reordered.definition_hash());
    let changed =
        agent_with(r#"{ "type": "object", "properties": { "a": { "type": "string" } } }"#);
    assert_ne!(first.definition_hash(), changed.definition_hash());
    let definition = Agent::parse_agent_definition(&first.definition_blob().content).unwrap();
    assert_eq!(definition, first);
    let inline =
        agent("output: { schema: { type: object, properties: { a: { type: integer } } } }");
    assert_eq!(inline.output, first.output);
    // Recursive schemas are valid: the recursion ends where the data ends.
    for schema in [
        r##"{ "properties": { "next": { "$ref": "#" } } }"##,
        r##"{ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "items": { "$ref": "#/$defs/a" } } }, "$ref": "#/$defs/a" }"##,
    ] {
        agent_with(schema);
    }
}

#[test]
fn an_invalid_schema_is_refused_with_its_position() {
    let assert_refused = |schema: &[u8], expected: &str| {
        let error = agent_with_schema(schema).unwrap_err();
        assert!(error.starts_with("agents/a.md:2:19: the schema `./schemas/a.json` "), "{error}");
        assert!(error.contains(expected), "{expected}: {error}");
    };
    assert_refused(b"{\n  \"type\": }", "is not valid JSON: ./schemas/a.json:2:11");
    assert_refused(b"", "is not valid JSON");
    assert_refused(b"\xff", "is not valid JSON");
    assert_refused(b"[]", "is not a schema");
    assert_refused(b"true", "is not a schema");
    assert_refused(br#"{ "type": 7 }"#, "is not a valid JSON Schema");
    assert_refused(br#"{ "type": "objekt" }"#, "is not a valid JSON Schema");
    assert_refused(br#"{ "pattern": "(" }"#, "is not a valid JSON Schema");
    let keys: Vec<String> = (0..65).map(|at| format!("\"{at}\": {{}}")).collect();
    let many_patterns = format!("{{ \"patternProperties\": {{ {} }} }}", keys.join(", "));
    assert_refused(many_patterns.as_bytes(), "the schema contains more than 64 patterns");
    assert_refused(br##"{ "$ref": "#/$defs/none" }"##, "is not a valid JSON Schema");
    let own_address = br##"{ "$id": "https://example.com/a.json", "$ref": "https://example.com/a.json#/$defs/a", "$defs": { "a": {} } }"##;
    assert_refused(own_address, "external references are not fetched");
    for cyclic_schema in [
        r##"{ "$ref": "#" }"##,
        r##"{ "allOf": [{ "$ref": "#" }] }"##,
        r##"{ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#" } } }"##,
        r##"{ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }"##,
    ] {
        assert_refused(cyclic_schema.as_bytes(), "has a cycle: ");
    }
    let refs = |n: usize| vec![format!(r##"{{ "$ref": "#/$defs/d{n}" }}"##); 8].join(", ");
    let defs = (0..12).map(|n| format!(r#""d{n}": {{ "allOf": [{}] }}"#, refs(n + 1)));
    let defs: Vec<String> = defs.chain(["\"d12\": {}".to_owned()]).collect();
    let huge_schema =
        format!(r##"{{ "$ref": "#/$defs/d0", "$defs": {{ {} }} }}"##, defs.join(", "));
    assert_refused(huge_schema.as_bytes(), "too large: the schema has more than");
    for external_ref in
        ["other.json", "file:///etc/passwd", "http://127.0.0.1:1/x", "https://example.com/a"]
    {
        let schema = format!(r#"{{ "items": {{ "$ref": "{external_ref}" }} }}"#);
        assert_refused(schema.as_bytes(), "external references are not fetched");
    }
    let long_schema = format!("{{\"title\": \"{}\"}}", "x".repeat(300_000));
    assert_refused(long_schema.as_bytes(), "longer than 262144 bytes");
    let deep_schema = format!("{}1{}", "{\"not\":".repeat(200), "}".repeat(200));
    assert_refused(deep_schema.as_bytes(), "is not valid JSON");
    assert_problems(
        "output: {}",
        &["2:1: `output` needs a `schema`: the path of a file, or the schema itself"],
    );
    assert_problems(
        "output: ./a.json",
        &["2:9: `output` is \"./a.json\": write a table such as `output: { schema: ... }`"],
    );
    let found = problems("---\noutput: { schema: { type: 7 } }\n---\n");
    assert!(
        found[0].starts_with("2:19: `schema`: the schema is not a valid JSON Schema"),
        "{found:?}"
    );
}

#[test]
fn a_deeply_nested_schema_is_accepted() {
    for depth in [60, 120] {
        let schema = format!("{}{{}}{}", "{\"not\":".repeat(depth), "}".repeat(depth));
        agent_with_schema(schema.as_bytes()).unwrap();
    }
}

#[test]
fn a_schema_is_a_file_of_the_project() {
    let (folder, loaded) =
        load_files(&[("agents/a.md", b"---\noutput: { schema: link.json }\n---\nHello.")]);
    assert_eq!(
        problem_texts(&loaded),
        ["agents/a.md:2:19: the schema `link.json` can't be used: the file does not exist"]
    );
    let outside_dir = tempfile::tempdir().unwrap();
    fs::write(outside_dir.path().join("a.json"), "{}").unwrap();
    symlink(outside_dir.path().join("a.json"), folder.path().join("link.json")).unwrap();
    let loaded = load_folder(folder.path(), &[]);
    assert!(problem_texts(&loaded)[0].contains("leads out of the project"), "{loaded:?}");
    for path in ["../a.json", "/etc/passwd", "schemas/../../a.json"] {
        let text = format!("---\noutput: {{ schema: {path} }}\n---\nHello.");
        fs::write(folder.path().join("agents/a.md"), text).unwrap();
        let loaded = load_folder(folder.path(), &[]);
        assert!(
            problem_texts(&loaded)[0].contains("leads out of the project"),
            "{path}: {loaded:?}"
        );
    }
}

#[test]
fn hostile_files_are_refused_without_hanging() {
    let assert_single_problem = |text: &str, expected: &str| {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{expected}: {found:?}");
    };
    assert_single_problem("---\nbudget:\n\tusd: 1\n---\n", "not valid YAML");
    assert_single_problem(
        "---\nname: a\ndescription: x\ndescription: y\n---\n",
        "4:1: the text is not valid YAML",
    );
    assert_single_problem("---\nname: a\nnever closed", "is not closed");
    assert_single_problem(&format!("---\n---\n{}", "x".repeat(1 << 20)), "too long");
    assert_single_problem(
        &format!("---\ndescription: \"{}\"\n---\n", "x".repeat(1 << 20)),
        "too long",
    );
    let mut bomb = "---\na0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = level - 1;
        bomb.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{before}"); 8].join(", ")
        ));
    }
    bomb.push_str("---\nHello.\n");
    assert_single_problem(&bomb, "not valid YAML");
    assert_single_problem("---\nevents: &a { x: *a }\n---\n", "not valid YAML");
}

#[test]
fn an_effect_key_is_a_template_for_a_tool_of_the_agent() {
    let found = agent(
        "sandbox: { isolation: none }\ntools: [shell]\neffects: [{ tool: shell, key: 'run:{{ input.command }}' }]",
    );
    assert_eq!(found.effects[0].key.as_deref(), Some("run:{{ input.command }}"));
    assert_eq!(found.effects[0].class, None);
    let problem = |effect: &str| problems(&format!("---\neffects: [{effect}]\n---\n\nHi.\n"));
    for (effect, expected) in [
        ("{ tool: shell }", "has no `class` and no `key`"),
        ("{ tool: shell, key: '' }", "`key`"),
        ("{ tool: shell, key: '{{ input.id' }", "`key`"),
        ("{ tool: shell, key: '{{ memory }}' }", "`memory`"),
        ("{ tool: finish, key: a }", "`key` is not possible for `finish`"),
        ("{ tool: run_agent, key: a }", "`key` is not possible for `run_agent`"),
    ] {
        let found = problem(effect);
        assert!(found.len() == 1 && found[0].contains(expected), "{effect}: {found:?}");
    }
    let keyed_agent = agent("tools: [read_file]\neffects: [{ tool: send_invoice, key: a }]");
    let expected = "`effects` has a key for the tool `send_invoice`, which the agent does not have";
    assert_eq!(agent_warnings(&keyed_agent, |_| Some(false)), [expected]);
}

#[test]
fn a_glob_of_a_rule_has_at_most_one_kibibyte() {
    let (longest, too_long) = ("a".repeat(1024), format!("*{}b", "a".repeat(14_000)));
    let problem = |position: &str| {
        format!(
            "{position}: the glob has 14002 bytes, at most 1024 are allowed: shorten it with `*`"
        )
    };
    assert_problems(&format!("approve:\n  - {{ tool: a, match: {longest}, ask: x }}"), &[]);
    assert_problems(
        &format!("approve:\n  - {{ tool: a, match: \"{too_long}\", ask: x }}"),
        &[&problem("3:23: `match`")],
    );
    assert_problems(
        &format!("approve:\n  - {{ tool: \"{too_long}\", ask: x }}"),
        &[&problem("3:13: `tool`")],
    );
    assert_problems(
        &format!("effects:\n  - {{ tool: a, match: \"{too_long}\", class: pure }}"),
        &[&problem("3:23: `match`")],
    );
}

#[test]
fn questions_wait_as_long_as_the_agent_says() {
    for (field, expected) in [
        ("", None),
        ("ask_human: { timeout: never }", Some(GateTimeout::Never)),
        ("ask_human: { timeout: 3d }", Some(GateTimeout::After(Millis::from_secs(259_200)))),
    ] {
        assert_eq!(agent(field).question_timeout, expected, "{field}");
    }
    for (field, problem) in [
        ("ask_human: {}", "`ask_human` is empty: write `ask_human: { timeout: never }`"),
        ("ask_human: { timeout: soon }", "`timeout` is \"soon\": write a duration"),
        ("ask_human: { timeout: 5000d }", "`timeout` must be at most 3650d, or `never`"),
    ] {
        let found = problems(&format!("---\n{field}\n---\nHello.\n"));
        assert_eq!(found.len(), 1, "{field}: {found:?}");
        assert!(found[0].contains(problem), "{field}: {found:?}");
    }
}
