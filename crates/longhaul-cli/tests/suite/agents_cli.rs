//! `longhaul agents` on the command line.

use std::fs;
use std::path::Path;

use super::agents::folder;
use super::cli::longhaul_in;

fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    (out, err)
}

/// Asserts that the project's own agents come first, then the built-in ones.
fn assert_listed(out: &str, version: &str) {
    let rows: Vec<String> =
        out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows[..2],
        [
            "bad project - - - broken, problems found: 1; see: longhaul agents check bad"
                .to_owned(),
            format!("tidy project scripted/tidy 1 tool {} Tidies.", &version[..8]),
        ]
    );
    let is_built_in = |line: &String| line.contains(" built-in ");
    assert!(rows.len() > 2 && rows[2..].iter().all(is_built_in), "{out}");
}

#[test]
fn agents_are_listed_checked_and_shown() {
    let folder = folder(&[
        ("tidy.md", b"---\ndescription: Tidies.\ntools: [vault_write]\nmodel: scripted/tidy\n---\nYou tidy."),
        ("bad.md", b"---\ntools: [vault_wirte]\n---\n"),
    ]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    let (out, _) = run(folder, &["agents"], 0);
    let version = agent_version(folder, "tidy");
    assert_listed(&out, &version);
    assert_eq!(run(folder, &["agents", "ls"], 0).0, out);
    let json = |args: &[&str], code| -> serde_json::Value {
        serde_json::from_str(&run(folder, args, code).0).unwrap()
    };
    assert_eq!(json(&["agents", "--json"], 0)["agents"][0]["name"], "tidy");
    let problem = "agents/bad.md:2:9: unknown tool `vault_wirte`, did you mean `vault_write`?\n";
    let (out, err) = run(folder, &["agents", "check"], 2);
    assert!(out.starts_with(problem), "{out}");
    assert!(err.contains("2 problems"), "{err}");
    assert_eq!(json(&["agents", "check", "--json"], 2)["problems"][0]["line"], 2);
    assert_eq!(run(folder, &["agents", "check", "bad"], 2).0, problem);
    let (out, _) = run(folder, &["agents", "check", "tidy"], 2);
    assert!(out.contains("`scripted/tidy` can't be used: there is no script"), "{out}");
    fs::create_dir(folder.join("scripts")).unwrap();
    fs::write(folder.join("scripts/tidy.yaml"), "replies: [{ text: Done. }]\n").unwrap();
    assert_eq!(run(folder, &["agents", "check", "tidy"], 0).0, "");
    let (_, err) = run(folder, &["agents", "check", "tidi"], 2);
    assert!(err.contains("unknown agent `tidi`, did you mean `tidy`?"), "{err}");
    let (out, _) = run(folder, &["agents", "show", "tidy"], 0);
    assert!(out.ends_with("\nYou tidy.\n"), "{out}");
    assert_eq!(json(&["agents", "show", "tidy", "--json"], 0)["agent"]["prompt"], "You tidy.");
    let (_, err) = run(folder, &["agents", "show", "bad"], 2);
    assert!(err.contains(problem.trim_end()), "{err}");
    assert!(run(folder, &["agents", "--help"], 0).0.contains("Examples:"));
    let subfolder = folder.join("src");
    fs::create_dir(&subfolder).unwrap();
    assert!(run(&subfolder, &["agents"], 0).0.contains("tidy"));
}

/// Expected output for the agent of the contract.
const SHOWN: &str = r#"name              implement
file              agents/implement.md
source            project
version           VERSION
tool size         about 360 tokens, and those of mcp:github
description       Implements an approved plan in a sandboxed clone.
models            [anthropic/claude-sonnet-4-5]
idle_models       [moonshot/kimi-k2-0905-chat]
tools             [read_file, edit_file, "mcp:github"]
context           [recipient]
budget            { caps: { usd: 10, active: 4h }, warn_percent: 90 }
retry             { max_retries: 1, hard_timeout: 4h }
max_turns         120
rules             { tool: git_push, action: { ask: "Push the branch" }, timeout: 1d, on_timeout: reject, approvers: { count: 1 }, remind: 2h }
rules             { tool: shell, match: "rm -rf *", action: { deny: "use the trash" }, on_timeout: reject, approvers: { count: 1 } }
effects           { tool: shell, match: "cargo *", class: pure }
in_doubt          ask
result_gate       { ask: "Is this result good?", timeout: 1d, on_timeout: reject, approvers: { count: 1 } }
keep_open         1h
lane              repo:{{ input.repo }}
lane_on_park      keep
skills            { name: rust-style, description: How. }
sandbox           { isolation: none }
guards            { identical_calls: 16, no_progress: 32, repeated_text: 16, compactions: 4 }
perception        { command: ["./look"], every: run }
output            {"type":"object"}
events            { idle_tick: "You have a moment to yourself. What do you do?", player_proximity: "A player named {{ actor.name }} has approached." }
project_rules     AGENTS.md or CLAUDE.md, 8 bytes

The system prompt, a Jinja template over `input`, `context`, `perception`, `memory`.
"#;

fn agent_version(folder: &Path, name: &str) -> String {
    let (out, _) = run(folder, &["agents", "show", name, "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    json["version"].as_str().unwrap().to_owned()
}

#[test]
fn every_field_is_shown() {
    let text: String = super::agents::CONTRACT
        .replace("shell, mcp:github", "mcp:github")
        .replace("sandbox: { provider", "sandbox: { isolation: none }\nprovider")
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("provider"))
        .collect();
    let folder = folder(&[("implement.md", text.as_bytes())]);
    let folder = folder.path();
    for (name, text) in [
        ("longhaul.toml", ""),
        ("schemas/pr.json", "{\"type\":\"object\"}"),
        ("AGENTS.md", "Be kind.\n"),
        (
            "skills/rust-style/SKILL.md",
            "---\nname: rust-style\ndescription: How.\n---\nShort names.\n",
        ),
    ] {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }
    let (out, _) = run(folder, &["agents", "show", "implement"], 0);
    let version = agent_version(folder, "implement");
    let out = out.replace(&version, "VERSION");
    assert_eq!(out, SHOWN);
    let (out, _) = run(folder, &["agents", "check", "implement"], 2);
    assert!(out.contains("`mcp:github` needs an MCP server"), "{out}");
    assert!(out.contains("`./look` does not exist"), "{out}");
}

#[test]
fn a_new_agent_passes_its_own_check() {
    let folder = folder(&[]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    let (out, err) = run(folder, &["agents", "new", "tidy"], 0);
    assert_eq!(out, "agents/tidy.md\n");
    assert!(err.contains("longhaul run tidy"), "{err}");
    run(folder, &["agents", "check", "tidy"], 0);
    let (_, err) = run(folder, &["agents", "new", "tidy"], 2);
    assert!(err.contains("already exists"), "{err}");
    let args =
        ["agents", "new", "second", "--tools", "edit_file,mcp:github", "--model", "fast one"];
    run(folder, &args, 0);
    let text = fs::read_to_string(folder.join("agents/second.md")).unwrap();
    assert!(text.contains("\ntools: [edit_file, mcp:github]\n"), "{text}");
    assert!(text.contains("\nmodel: \"fast one\"\n"), "{text}");
    for (name, expected) in [
        ("no name", "is not a valid agent name"),
        ("../x", "is not a valid agent name"),
        ("", "is not a valid agent name"),
        ("-x", "unexpected argument"),
        (".x", "is not a valid agent name"),
    ] {
        let (_, err) = run(folder, &["agents", "new", name], 2);
        assert!(err.contains(expected), "{name}: {err}");
    }
    let (_, err) = run(folder, &["agents", "new", "third", "--tools", "raed_file"], 2);
    assert!(err.contains("unknown tool `raed_file`, did you mean `read_file`?"), "{err}");
    assert!(!folder.join("agents/third.md").exists());
}

#[test]
fn a_new_agent_can_be_a_copy_of_another() {
    let folder = folder(&[(
        "tidy.md",
        b"---\nname: tidy\n# kept\ntools:\n  - read_file\nmodel: a/b\n---\nYou {{ input }}.\n",
    )]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    fs::create_dir_all(folder.join(".claude/agents")).unwrap();
    let claude_agent = "---\nname: reviewer\ndescription: Use when: asked\ntools: Read, Bash\ncolor: red\n---\nSay {{ this }}.\n";
    fs::write(folder.join(".claude/agents/reviewer.md"), claude_agent).unwrap();
    run(folder, &["agents", "new", "copy", "--from", "tidy", "--model", "c/d"], 0);
    let text = fs::read_to_string(folder.join("agents/copy.md")).unwrap();
    assert_eq!(
        text,
        "---\nname: copy\n# kept\ntools:\n  - read_file\nmodel: c/d\n---\nYou {{ input }}.\n"
    );
    let (_, err) = run(folder, &["agents", "new", "reviewer", "--from", "reviewer"], 0);
    assert!(err.contains("the new agent is used instead of .claude/agents/reviewer.md"), "{err}");
    let text = fs::read_to_string(folder.join("agents/reviewer.md")).unwrap();
    assert!(text.contains("\ndescription: \"Use when: asked\"\ntools: [read_file]\n"), "{text}");
    let (out, _) = run(folder, &["agents", "show", "reviewer"], 0);
    assert!(out.ends_with("Say {{ this }}.\n"), "{out}");
    let (out, _) = run(folder, &["agents"], 0);
    assert!(out.contains("hidden by agents/reviewer.md"), "{out}");
    let (_, err) = run(folder, &["agents", "new", "x", "--from", "tidi"], 2);
    assert!(err.contains("did you mean `tidy`?"), "{err}");
}

#[test]
fn a_claude_agent_runs_and_its_mappings_are_noted() {
    let project = super::project::Project::new();
    project.write("longhaul.toml", "[models]\nopus = \"scripted/plain\"\n");
    let claude_agent = "---\nname: reviewer\ndescription: Use when: asked\ntools: Read, Bash\nmodel: opus\n---\nSay {{ this }} and {% that.\n";
    project.write(".claude/agents/reviewer.md", claude_agent);
    let output = project.run(&["run", "reviewer", "milk"], 0);
    for note in ["note: `tools`: `Bash` is left out", "note: `model: opus`"] {
        assert!(output.err.contains(note), "{note}: {output:?}");
    }
    let json = project.json(&["show", "@last", "--transcript", "--json"]);
    let system = json["system"].as_str().unwrap();
    assert!(system.contains("Say {{ this }} and {% that."), "{json}");
    let output = project.run(&["run", "reviewer", "milk", "--json"], 0);
    assert!(output.err.contains("note: `model: opus`"), "{output:?}");
    let check = project.run(&["agents", "check", "reviewer"], 0);
    assert!(check.out.contains(".claude/agents/reviewer.md: note: `tools`"), "{check:?}");
}

#[test]
fn an_agent_is_checked_against_the_tools_of_the_project() {
    let agent: &[u8] = b"---\nmodel: scripted/plan\ntools: [probe_send, probe_write]\n---\nGo.\n";
    let folder = folder(&[("careful.md", agent)]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    let (out, _) = run(folder, &["agents", "check"], 2);
    assert!(out.contains("unknown tool `probe_send`"), "{out}");
    let env = [("LONGHAUL_TOOLS_CRASH_PROBE_FILE", "crash_probe.jsonl")];
    let output = longhaul_in(folder, &["agents", "check"], &env);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    // Only one of the two must not be repeated, and no rule covers it.
    assert!(text.contains("probe_send"), "{text}");
    assert!(!text.contains("probe_write"), "{text}");
}

#[test]
fn file_names_are_escaped_in_output() {
    let folder = folder(&[]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    let name = "bad\u{1b}[2J\u{202e}\nfaked";
    let subfolder = folder.join("agents").join(name);
    fs::create_dir_all(&subfolder).unwrap();
    fs::write(subfolder.join("x.md"), "").unwrap();
    fs::write(folder.join(format!("agents/{name}.md")), "---\n---\n").unwrap();
    for (args, code) in [(&["agents"][..], 0), (&["agents", "check"], 2)] {
        let (out, err) = run(folder, args, code);
        for text in [out, err] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{args:?}: {text:?}");
            assert!(!text.contains("\nfaked"), "{args:?}: {text:?}");
        }
    }
    let (out, _) = run(folder, &["agents", "check"], 2);
    for expected in [
        r"agents/bad\u{1b}[2J·\nfaked.md:1:1: `bad\u{1b}[2J·\nfaked` is not a valid agent name",
        r"agents/bad\u{1b}[2J·\nfaked: note: the files in this folder are ignored",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
}

#[test]
fn every_model_of_the_list_is_checked() {
    let folder = folder(&[]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    fs::create_dir(folder.join("scripts")).unwrap();
    let script = "replies: [{ text: Done. }]\n";
    fs::write(folder.join("scripts/tidy.yaml"), script).unwrap();
    fs::create_dir_all(folder.join("agents")).unwrap();
    for (models, expected) in [
        ("scripted/tidy", None),
        (
            "[scripted/tidy, openai/x]",
            Some(
                "the agent's model `openai/x` can't be used. There is no key for `openai`: set OPENAI_API_KEY.",
            ),
        ),
        (
            "[openai/x, scripted/tidy]",
            Some("the agent's model `openai/x` can't be used. There is no key"),
        ),
    ] {
        let agent = format!("---\nmodel: {models}\n---\nYou tidy.");
        fs::write(folder.join("agents/a.md"), agent).unwrap();
        let (out, _) = run(folder, &["agents", "check"], 0);
        let notes: Vec<&str> = out.lines().filter(|line| line.contains("note:")).collect();
        match expected {
            Some(expected) => assert!(notes.len() == 1 && notes[0].contains(expected), "{out}"),
            None => assert_eq!(out, "", "{models}"),
        }
    }
    fs::write(folder.join("agents/a.md"), "---\nmodel: []\n---\nYou tidy.").unwrap();
    let (out, _) = run(folder, &["agents", "check"], 2);
    assert!(out.starts_with("agents/a.md:2:8: `model` is empty: name a model"), "{out}");
}

#[test]
fn chaos_copies_every_file_that_an_agent_uses() {
    let project = super::project::Project::new();
    let agent = "---\nmodel: anthropic/claude\nskills: [style]\noutput: { schema: ./a/b.json }\n---\nYou.\n";
    project.write("agents/real.md", agent);
    project.write("a/b.json", "{}");
    project.write("AGENTS.md", "Be kind.");
    project.write("skills/style/SKILL.md", "---\nname: style\ndescription: How.\n---\n");
    project.write(".claude/agents/theirs.md", "---\nname: theirs\nmodel: claude-x\n---\nYou.\n");
    for agent in ["real", "theirs"] {
        // The agent is refused because of its model, so its file was loaded.
        let output = project.run(&["chaos", agent], 6);
        assert!(output.err.contains("is a real model"), "{output:?}");
    }
}
