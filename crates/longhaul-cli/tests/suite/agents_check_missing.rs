//! Problems around an agent, such as missing servers and programs, are reported early and with a
//! command that helps.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use super::project::Project;

/// A project with one additional agent.
fn project_with_agent(front: &str, body: &str) -> Project {
    let project = Project::new();
    let agent = format!("---\nmodel: scripted/chat\n{front}\n---\n{body}\n");
    project.write("agents/odd.md", &agent);
    project
}

/// Runs `agents check`, asserts the exit code and returns the output.
fn check_output(project: &Project, code: i32) -> String {
    let output = project.run(&["agents", "check", "odd"], code);
    format!("{}{}", output.out, output.err)
}

#[test]
fn an_unconfigured_mcp_server_is_a_problem() {
    let project = project_with_agent("tools: [vault_list, mcp:ev]", "You.");
    let output = check_output(&project, 2);
    let prefix = "agents/odd.md:3:21: `mcp:ev` needs an MCP server, but ";
    assert!(output.contains(&format!("{prefix}there is no `.mcp.json`")), "{output}");
    assert!(output.contains("1 problem; runs can't continue until"), "{output}");
    let json: Value = {
        let output = project.run(&["agents", "check", "odd", "--json"], 2);
        serde_json::from_str(&output.out).unwrap()
    };
    assert_eq!(json["problems"][0]["kind"], "missing");
    project.write(".mcp.json", "{ \"mcpServers\": ");
    let output = check_output(&project, 2);
    assert!(output.contains(&format!("{prefix}.mcp.json:1:")), "{output}");
    project.write(".mcp.json", "{ \"mcpServers\": {} }");
    assert!(check_output(&project, 2).contains("lists no server"), "{output}");
    project.write(".mcp.json", "{ \"mcpServers\": { \"ev\": { \"command\": \"true\" } } }");
    check_output(&project, 0);
    // `mcp:*` is valid in a project without servers, but not with an invalid file.
    let project = project_with_agent("tools: [\"mcp:*\"]", "You.");
    check_output(&project, 0);
    project.write(".mcp.json", "{");
    check_output(&project, 2);
}

#[test]
fn a_model_that_can_never_run_is_a_problem() {
    let project = Project::new();
    for (model, expected) in [
        (
            "anthropc/x",
            "2:8: the model `anthropc/x` can't be used: There is no provider `anthropc`. Did you mean `anthropic`?",
        ),
        (
            "[scripted/chat, scripted/gone]",
            "2:24: the model `scripted/gone` can't be used: there is no script: write scripts/gone.yaml",
        ),
        ("scripted/broken", "2:8: the model `scripted/broken` can't be used: scripts/broken.yaml"),
        ("cassette/gone", "2:8: the model `cassette/gone` can't be used: there is no cassette "),
        ("cassette/bad", "2:8: the model `cassette/bad` can't be used: "),
        (
            "fastt",
            "2:8: the model `fastt` can't be used: There is no model `fastt`. Did you mean `fast`?",
        ),
        (
            "fast",
            "2:8: the model `fast` can't be used: There is no provider `opnai`. Did you mean `openai`?",
        ),
    ] {
        project.write("longhaul.toml", "[models]\nfast = \"opnai/gpt\"\n");
        project.write("scripts/broken.yaml", "replies: 7\n");
        project.write(".longhaul/cassettes/bad.jsonl", "nonsense\n");
        project.write("agents/odd.md", &format!("---\nmodel: {model}\n---\nYou.\n"));
        let output = check_output(&project, 2);
        assert!(output.contains(&format!("agents/odd.md:{expected}")), "{output}");
        assert!(!output.contains("note: the agent's model"), "{output}");
    }
    // A short name that no agent uses is checked, too.
    project.write("agents/odd.md", "---\nmodel: scripted/chat\n---\nYou.\n");
    check_output(&project, 0);
    let output = project.run(&["agents", "check"], 2).out;
    let expected = "longhaul.toml:2:1: the short name `fast` in `[models]` can't be used: There is no provider `opnai`";
    assert!(output.contains(expected), "{output}");
    project.write("longhaul.toml", "");
    project.run(&["agents", "check"], 0);
    // A missing key is a note.
    project.write("agents/odd.md", "---\nmodel: anthropic/claude-x\n---\nYou.\n");
    let output = check_output(&project, 0);
    assert!(
        output.contains("note: the agent's model `anthropic/claude-x` can't be used"),
        "{output}"
    );
}

#[test]
fn an_invalid_entry_of_the_mcp_file_affects_only_its_own_users() {
    let project = project_with_agent("tools: [mcp:good]", "You.");
    let mcp = r#"{ "mcpServers": {
  "good": { "command": "true" },
  "my docs": { "command": "true" },
  "empty": {}
} }"#;
    project.write(".mcp.json", mcp);
    check_output(&project, 0);
    let uses_all = project_with_agent("tools: [\"mcp:*\"]", "You.");
    uses_all.write(".mcp.json", mcp);
    check_output(&uses_all, 0);
    let name_problem = ".mcp.json:3:14: \"my docs\" is not a valid server name";
    let output = project.run(&["agents", "check"], 2);
    assert_eq!(output.out.matches(name_problem).count(), 1, "{}", output.out);
    assert!(!output.out.contains("built-in"), "{}", output.out);
    assert!(output.err.contains("2 problems"), "{}", output.err);
    project.write("agents/odd.md", "---\nmodel: scripted/chat\ntools: [mcp:empty]\n---\nYou.\n");
    let output = check_output(&project, 2);
    let expected = "agents/odd.md:3:9: `mcp:empty` needs the MCP server `empty`, but .mcp.json:4:12: server `empty`: `command` is missing";
    assert!(output.contains(expected), "{output}");
    let list = project.run(&["mcp", "ls", "--json"], 0).json();
    let statuses: Vec<_> = list["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| {
            (
                server["name"].as_str().unwrap().to_owned(),
                server["status"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let status = |name: &str, status: &str| (name.to_owned(), status.to_owned());
    assert_eq!(
        statuses,
        [status("good", "not_trusted"), status("my docs", "broken"), status("empty", "broken")]
    );
    let reason = list["servers"][1]["problems"][0].as_str().unwrap();
    assert!(reason.starts_with(name_problem), "{reason}");
}

#[test]
fn a_missing_executable_is_a_problem_or_a_note() {
    let project = project_with_agent("perception: { command: [./look, -v] }", "You.");
    let output = check_output(&project, 2);
    assert!(output.contains("agents/odd.md:3:25: `./look` does not exist"), "{output}");
    project.write("look", "#!/bin/sh\necho 1\n");
    let output = check_output(&project, 2);
    assert!(output.contains("`./look` is not executable (run chmod +x"), "{output}");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path().join("look"), mode).unwrap();
    check_output(&project, 0);
    let project = project_with_agent("perception: { command: [no-such-program] }", "You.");
    let output = check_output(&project, 0);
    assert!(output.contains("note: at 3:25: `no-such-program` was not found in PATH"), "{output}");
    check_output(&project_with_agent("perception: { command: [sh, look] }", "You."), 0);
}

#[test]
fn a_prompt_with_an_include_is_a_problem() {
    let project = project_with_agent("tools: []", "You.\n{% include \"other.md\" %}");
    let output = check_output(&project, 2);
    assert!(
        output.contains("agents/odd.md:6:4: in the template: `include` would load"),
        "{output}"
    );
}

#[test]
fn a_run_with_an_unrenderable_prompt_must_be_cancelled() {
    let project = project_with_agent("tools: []", "Tidy {{ input.room.name }}.");
    let output = project.run(&["run", "odd", "{}", "--no-input"], 3);
    assert!(output.err.contains("cancel this run"), "{}", output.err);
    assert!(!output.err.contains("longhaul resume"), "{}", output.err);
    // No answer can help and nobody is there to cancel the run, so the command does not wait.
    for args in
        [["run", "odd", "{}"].as_slice(), &["run", "odd", "{}", "--json"], &["watch", "@last"]]
    {
        let output = project.run(args, 3);
        assert!(output.err.contains("cancel this run"), "{}", output.err);
        assert!(!output.err.contains("--no-input"), "{}", output.err);
    }
    let why = project.run(&["why", "@last"], 0);
    let why = format!("{}{}", why.out, why.err);
    assert!(why.contains("longhaul cancel run_"), "{why}");
    let gates = project.run(&["gates", "show", "@last"], 0).out;
    let hint = "no answer can unblock the run. To cancel it: longhaul cancel run_";
    assert!(gates.contains(hint), "{gates}");
}

#[test]
fn a_rules_file_that_links_out_of_the_project_is_reported() {
    let outside_dir = tempfile::tempdir().unwrap();
    std::fs::write(outside_dir.path().join("rules.md"), "Be kind.").unwrap();
    let project = project_with_agent("tools: []", "You.");
    let link = project.path().join("AGENTS.md");
    symlink(outside_dir.path().join("rules.md"), link).unwrap();
    let output = check_output(&project, 2);
    let expected =
        "AGENTS.md:1:1: the file is a link that leads out of the project or to a hidden file: put";
    assert!(output.contains(expected) && !output.contains("schemas"), "{output}");
}

#[test]
fn claude_agents_in_subfolders_are_loaded_and_reported() {
    let project = Project::new();
    let agent = "---\nname: deep\nmodel: scripted/chat\ncolor: red\n---\nYou.\n";
    project.write(".claude/agents/team/review/x.md", agent);
    project.write("agents/team/lost.md", "---\n---\nYou.\n");
    let stdout = project.run(&["agents", "check"], 0).out;
    assert!(stdout.contains("agents/team: note: the files in this folder are ignored"), "{stdout}");
    assert!(stdout.contains(".claude/agents/team/review/x.md: note: "), "{stdout}");
    for args in [["run", "deep", "x", "--json"], ["submit", "deep", "x", "--json"]] {
        let stdout = project.run(&args, 0);
        assert_eq!(stdout.json()["agent"], "deep");
        assert!(stdout.err.contains("note: unknown field"), "{}", stdout.err);
    }
    let stdout = project.run(&["run", "deep", "x", "--quiet"], 0);
    assert!(!stdout.err.contains("note:"), "{}", stdout.err);
}

/// A project whose agent uses a trusted server.
fn project_with_server(server: &Value) -> Project {
    let project = project_with_agent("tools: [mcp:ev]", "You.");
    let file = json!({ "mcpServers": { "ev": server } });
    project.write(".mcp.json", &file.to_string());
    project.run(&["trust", "--yes"], 0);
    project
}

#[test]
fn an_unreachable_mcp_server_is_reported_without_library_messages() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let project = project_with_server(&json!({ "type": "http", "url": url }));
    let stderr = project.run(&["run", "odd", "x", "--no-input"], 3).err;
    assert!(stderr.contains(&format!("the server is running at {url}. Run")), "{stderr}");
    for raw in ["ERROR", "Trouble", "worker quit", "?."] {
        assert!(!stderr.contains(raw), "{raw}: {stderr}");
    }
    let stderr = project.run(&["mcp", "check"], 5);
    let stderr = format!("{}{}", stderr.out, stderr.err);
    assert!(stderr.contains("Connection refused"), "{stderr}");
    assert!(!stderr.contains("ERROR") && !stderr.contains("Trouble"), "{stderr}");
}

#[test]
fn a_slow_mcp_server_is_reported_while_a_run_waits() {
    let project = project_with_server(&json!({ "command": "sleep", "args": ["600"] }));
    let expected = "waiting   for the MCP server `ev` to answer";
    let output = project.run_and_interrupt(&["run", "odd", "x"], &[expected]);
    assert_eq!(output.code, 130, "{output:?}");
    let expected = "ev: no response yet; waiting up to 75 s";
    project.run_and_interrupt(&["mcp", "check"], &[expected]);
}
