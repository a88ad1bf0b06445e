//! Agent files of Claude Code as found in practice, and the rules of a project.

use longhaul_project::agents::built_in::BuiltInAgent;
use longhaul_project::agents::loaded_agents::{AgentSource, LoadedAgent, LoadedAgents};

use super::agents::{load_files, load_folder, problem_texts};

/// Loads a Claude Code agent from `.claude/agents/a.md`.
fn load_claude_agent(text: &str) -> LoadedAgent {
    let (_folder, loaded) = load_files(&[(".claude/agents/a.md", text.as_bytes())]);
    assert_eq!(problem_texts(&loaded), [""; 0], "{text}");
    assert_eq!(loaded.agents.len(), 1, "{loaded:?}");
    loaded.agents[0].clone()
}

fn assert_tools_and_notes(front: &str, tools: &[&str], notes: &[&str]) {
    let loaded_agent = load_claude_agent(&format!("---\n{front}\n---\nYou review.\n"));
    assert_eq!(loaded_agent.agent.tools, tools, "{front}");
    for note in notes {
        assert!(
            loaded_agent.notes.iter().any(|text| text.contains(note)),
            "{note}: {:#?}",
            loaded_agent.notes
        );
    }
    assert_eq!(loaded_agent.notes.len(), notes.len(), "{front}: {:#?}", loaded_agent.notes);
}

#[test]
fn a_file_with_a_colon_in_a_sentence_is_read() {
    let text = r#"---
name: code-reviewer
description: Use this agent when: code was written. Examples: <example>Context: "a thing" user: 'x'\nassistant: "y"</example>
tools: Read, Grep, Glob
model: sonnet
color: red
---

You review code. Write `{{ verdict }}` and {% raw %} as they are {# always.
"#;
    let loaded_agent = load_claude_agent(text);
    let agent = &loaded_agent.agent;
    assert_eq!(loaded_agent.source, AgentSource::Claude);
    assert_eq!(agent.name.as_str(), "code-reviewer");
    assert!(agent.description.starts_with("Use this agent when: code was written. Examples:"));
    assert_eq!(agent.tools, ["read_file", "search_files", "list_files"]);
    assert_eq!(agent.models, ["sonnet"]);
    let body = "You review code. Write `{{ verdict }}` and {% raw %} as they are {# always.";
    assert_eq!(longhaul_project::agents::escape::unescape_template_syntax(&agent.prompt), body);
    let rendered = minijinja::Environment::new().render_str(&agent.prompt, ()).unwrap();
    assert_eq!(rendered, body);
    let notes = loaded_agent.notes.join("\n");
    for description in [
        "not valid YAML at 3:",
        "`model: sonnet`: the short name",
        "`Read` maps to read_file",
        "ignored: `color`",
    ] {
        assert!(notes.contains(description), "{description}: {notes}");
    }
}

#[test]
fn claude_tools_are_mapped_or_left_out_with_a_note() {
    let read_only_tools = ["read_file", "list_files", "search_files"];
    assert_tools_and_notes("name: a", &read_only_tools, &["gets the read-only ones"]);
    assert_tools_and_notes("name: a\ntools: \"*\"", &read_only_tools, &["gets the read-only ones"]);
    assert_tools_and_notes("name: a\ntools:", &read_only_tools, &["gets the read-only ones"]);
    assert_tools_and_notes("name: a\ntools: []", &[], &[]);
    assert_tools_and_notes(
        "tools: [Read, Edit, MultiEdit, mcp__github__create_issue]",
        &["read_file", "edit_file", "mcp:github/create_issue"],
        &[
            "`Read` maps to read_file, `Edit` maps to edit_file, `MultiEdit` maps to edit_file, `mcp__github__create_issue` maps to mcp:github/create_issue",
        ],
    );
    assert_tools_and_notes(
        "tools: Bash, WebFetch, Task, WebSearch, TodoWrite, NotebookEdit, Read(src/**), Bash(git log:*, x), read_file",
        &["read_file"],
        &[
            "`Bash` is left out: commands need a sandbox",
            "`WebFetch` is left out: this build has no tool `http_fetch`",
            "`Task` is left out: this build has no tool `run_agent`",
            "`WebSearch` is left out: unknown tool",
            "`TodoWrite` is left out",
            "`NotebookEdit` is left out",
            "`Read(src/**)` is left out: such limits are not supported",
            "`Bash(git log:*, x)` is left out: such limits",
        ],
    );
    assert_tools_and_notes(
        "tools: Bash\nsandbox: { isolation: none }",
        &["shell"],
        &["`Bash` maps to shell"],
    );
    // Also if a colon in a sentence forces line-by-line parsing.
    assert_tools_and_notes(
        "description: Use when: asked\ntools: Bash\nsandbox: { isolation: none }",
        &["shell"],
        &["parsed line by line", "`Bash` maps to shell"],
    );
    assert_tools_and_notes(
        "tools: Bash, Read\nsandbox: yes",
        &["read_file"],
        &["`Bash` is left out", "`Read` maps to read_file", "`sandbox` is ignored"],
    );
}

#[test]
fn disallowed_tools_are_removed_however_they_are_listed() {
    assert_tools_and_notes(
        "tools: Read, Edit\ndisallowedTools: Edit",
        &["read_file"],
        &["`Read` maps to read_file, `Edit` maps to edit_file", "`disallowedTools` removes Edit"],
    );
    for list in [" [Edit(a: *), Write]", "\n  - Edit(a: *)\n- Write"] {
        assert_tools_and_notes(
            &format!("tools: Read, Edit, Write\ndisallowedTools:{list}"),
            &["read_file"],
            &[
                "and was parsed line by line",
                "`Write` is left out",
                "`Read` maps to read_file, `Edit` maps to edit_file",
                "`disallowedTools` removes Edit(a: *), Write",
            ],
        );
    }
}

#[test]
fn claude_models_are_mapped_by_the_project() {
    let models = |model: &str| {
        let loaded_agent = load_claude_agent(&format!("---\ntools: []\nmodel: {model}\n---\n"));
        (loaded_agent.agent.models, loaded_agent.notes.join("\n"))
    };
    let check = |model: &str, expected: &[&str], note: &str| {
        let (found_models, notes) = models(model);
        assert_eq!(found_models, expected, "{model}");
        assert!(notes.contains(note) && notes.is_empty() == note.is_empty(), "{model}: {notes}");
    };
    check("inherit", &[], "`model: inherit`: the project's default");
    check("sonnet", &["sonnet"], "the short name in `[models]`");
    check("opus", &[], "`[models]` has no `opus`");
    check("haiku", &[], "`[models]` has no `haiku`");
    check(
        "claude-opus-4-1",
        &["anthropic/claude-opus-4-1"],
        "the model `anthropic/claude-opus-4-1` is used",
    );
    check("openai/gpt-5", &["openai/gpt-5"], "");
}

#[test]
fn other_claude_fields_are_read_or_noted() {
    let loaded_agent = load_claude_agent(
        "---\nname: 7\ntools: []\nmaxTurns: 9\nskills: none\npermissionMode: plan\nhooks: { a: [] }\n---\n",
    );
    assert_eq!(loaded_agent.agent.name.as_str(), "7");
    assert_eq!(loaded_agent.agent.max_turns, Some(9));
    let notes = loaded_agent.notes.join("\n");
    assert!(notes.contains("unknown skill `none`"), "{notes}");
    assert!(notes.contains("ignored: `permissionMode`, `hooks`"), "{notes}");
}

#[test]
fn an_invalid_claude_agent_is_reported() {
    let files: &[(&str, &[u8])] = &[
        (".claude/agents/README.md", b"# Our agents\n"),
        (".claude/agents/open.md", b"---\nname: open\n"),
        (".claude/agents/bytes.md", b"---\nname: \xff\n---\nHi"),
        (".claude/agents/deep/x.md", b"---\n---\nHi"),
        (".claude/agents/!!.md", b"---\nname: no name\n---\nHi"),
    ];
    let (_folder, loaded) = load_files(files);
    assert_eq!(
        problem_texts(&loaded),
        [
            ".claude/agents/!!.md:2:7: `no name` is not a valid agent name: use letters, digits, `-`, `_` and `.`",
            ".claude/agents/bytes.md:2:7: the file is not UTF-8: save it as UTF-8",
            ".claude/agents/open.md:1:1: the front matter is not closed: add a line `---` below it",
        ]
    );
    let names: Vec<&str> = loaded.agents.iter().map(|one| one.agent.name.as_str()).collect();
    assert_eq!(names, ["x"]);
    assert_eq!(loaded.notes[0].1, "it has no front matter, so it is not an agent");
}

#[test]
fn a_name_with_spaces_is_replaced_by_one_made_from_the_file_s_name() {
    let (_folder, loaded) = load_files(&[
        (".claude/agents/benchmark-suite.md", b"---\nname: Benchmark Suite\n---\nHi"),
        (".claude/agents/db/DB Architect.md", b"---\nname: DB Architect\n---\nHi"),
        (".claude/agents/Pair Programming (v2).md", b"---\ndescription: Two.\n---\nHi"),
        (".claude/agents/other.md", b"---\nname: plain\n---\nHi"),
        ("agents/not this.md", b"---\n---\nHi"),
    ]);
    let names: Vec<&str> = loaded.agents.iter().map(|one| one.agent.name.as_str()).collect();
    assert_eq!(names, ["benchmark-suite", "db-architect", "pair-programming-v2", "plain"]);
    assert_eq!(loaded.problems.len(), 1, "{loaded:?}");
    let (path, note) = &loaded.notes[0];
    assert_eq!(path.to_str(), Some(".claude/agents"));
    let expected = "the name of an agent has no spaces, so names are made from the file names: \
        `Pair Programming (v2)` is `pair-programming-v2`, `Benchmark Suite` is `benchmark-suite`, \
        `DB Architect` is `db-architect`";
    assert_eq!(note, expected);
    assert_eq!(loaded.notes.len(), 1);
}

#[test]
fn claude_md_is_read_where_there_is_no_agents_md() {
    let check = |files: &[(&str, &[u8])], rules: &str, note: Option<&str>| {
        let (_folder, loaded) = load_files(files);
        assert_eq!(problem_texts(&loaded), [""; 0]);
        assert_eq!(loaded.agents[0].agent.project_rules, rules, "{files:?}");
        assert_eq!(loaded.notes.first().map(|(_, note)| note.as_str()), note);
    };
    let agent: (&str, &[u8]) = ("agents/a.md", b"---\n---\nOurs.");
    let claude: (&str, &[u8]) = ("CLAUDE.md", b"Be brief.\n");
    let note = "the rules of all agents, because there is no AGENTS.md";
    check(&[agent, claude], "Be brief.", Some(note));
    check(&[agent, claude, ("AGENTS.md", b"Ours.")], "Ours.", None);
    check(&[agent, claude, (".claude/CLAUDE.md", b"Theirs.")], "Be brief.", Some(note));
    let imports = "the rules of all agents, because there is no AGENTS.md; its lines `@FILE` are \
        not followed";
    check(&[agent, (".claude/CLAUDE.md", b"@docs/a.md\n")], "@docs/a.md", Some(imports));
}

fn hidden_agents(loaded: &LoadedAgents) -> Vec<String> {
    let hidden = loaded.hidden.iter();
    hidden
        .map(|one| format!("{} {} by {}", one.name, one.path.display(), one.hidden_by.display()))
        .collect()
}

#[test]
fn project_agents_hide_claude_agents_which_hide_built_in_ones() {
    let files: &[(&str, &[u8])] = &[
        ("agents/plan.md", b"---\n---\nOurs."),
        (".claude/agents/planner.md", b"---\nname: plan\n---\nTheirs."),
        (".claude/agents/review.md", b"---\nname: review\n---\nTheirs."),
        (".claude/agents/review2.md", b"---\nname: review\n---\nTheirs, too."),
    ];
    let (folder, _) = load_files(files);
    let built_in = ["plan", "review", "fix"].map(|name| BuiltInAgent {
        script: "",
        name,
        file: "---\n---\nBuilt in.",
    });
    let loaded = load_folder(folder.path(), &built_in);
    let prompts: Vec<&str> = loaded.agents.iter().map(|one| one.agent.prompt.as_str()).collect();
    assert_eq!(prompts, ["Built in.", "Ours.", "Theirs."]);
    assert_eq!(
        hidden_agents(&loaded),
        [
            "plan .claude/agents/planner.md by agents/plan.md",
            "review .claude/agents/review2.md by .claude/agents/review.md",
            "plan built-in/plan.md by agents/plan.md",
            "review built-in/review.md by .claude/agents/review.md",
        ]
    );
}

#[test]
fn agents_md_applies_to_every_agent() {
    let files: &[(&str, &[u8])] = &[
        ("agents/a.md", b"---\n---\nOurs."),
        (".claude/agents/b.md", b"---\n---\nTheirs."),
        ("AGENTS.md", b"\xef\xbb\xbf# Rules\r\n\r\nBe {{ kind }}.\r\n"),
        ("sub/AGENTS.md", b"Not read."),
    ];
    let (folder, loaded) = load_files(files);
    assert_eq!(problem_texts(&loaded), [""; 0]);
    assert_eq!(loaded.agents.len(), 2);
    for one in &loaded.agents {
        assert_eq!(one.agent.project_rules, "# Rules\n\nBe {{ kind }}.");
    }
    let built_in = [BuiltInAgent { script: "", name: "c", file: "---\n---\nBuilt in." }];
    let agent_with_rules =
        load_folder(folder.path(), &built_in).find_loaded_agent("c").unwrap().agent.clone();
    assert_eq!(agent_with_rules.project_rules, "# Rules\n\nBe {{ kind }}.");
    std::fs::remove_file(folder.path().join("AGENTS.md")).unwrap();
    let agent_without_rules =
        load_folder(folder.path(), &built_in).find_loaded_agent("c").unwrap().agent.clone();
    assert_ne!(agent_with_rules.definition_hash(), agent_without_rules.definition_hash());
}

#[test]
fn unreadable_project_rules_block_every_agent() {
    let long_text = "x".repeat((256 << 10) + 1);
    for (rules, expected) in
        [(&b"\xff"[..], "not UTF-8"), (long_text.as_bytes(), "longer than 262144 bytes")]
    {
        let (_folder, loaded) =
            load_files(&[("agents/a.md", b"---\n---\nOurs."), ("AGENTS.md", rules)]);
        let error = loaded.find_loaded_agent("a").unwrap_err().to_string();
        assert!(error.contains("AGENTS.md:1:1: ") && error.contains(expected), "{error}");
        assert_eq!(loaded.to_agent_registry().agents().count(), 0);
    }
}

#[test]
fn problems_are_in_the_order_of_the_folders() {
    let (_folder, loaded) = load_files(&[
        ("agents/bad.md", b"no front matter"),
        ("agents/worse.md", b"no front matter"),
        (".claude/agents", b"a file where a folder is expected"),
    ]);
    let paths: Vec<String> =
        loaded.problems.iter().map(|problem| problem.path.display().to_string()).collect();
    assert_eq!(paths, ["agents/bad.md", "agents/worse.md", ".claude/agents"]);
}
