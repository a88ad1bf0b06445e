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
    assert!(output.contains("1 problem; runs wait until"), "{output}");
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
