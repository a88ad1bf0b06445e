//! What is amiss around an agent is told early, in words for people, with a command
//! that fits.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use super::project::Project;

/// A project with one agent more.
fn project_with_agent(front: &str, body: &str) -> Project {
    let project = Project::new();
    let agent = format!("---\nmodel: scripted/chat\n{front}\n---\n{body}\n");
    project.write("agents/odd.md", &agent);
    project
}

/// What `agents check` prints of it, with this exit code.
fn check_output(project: &Project, code: i32) -> String {
    let said = project.run(&["agents", "check", "odd"], code);
    format!("{}{}", said.out, said.err)
}

#[test]
fn an_unconfigured_mcp_server_is_a_problem() {
    let project = project_with_agent("tools: [vault_list, mcp:ev]", "You.");
    let said = check_output(&project, 2);
    let place = "agents/odd.md:3:21: `mcp:ev` is a tool of an MCP server, and ";
    assert!(said.contains(&format!("{place}there is no `.mcp.json`")), "{said}");
    assert!(said.contains("1 problem; runs wait until"), "{said}");
    let told: Value = {
        let said = project.run(&["agents", "check", "odd", "--json"], 2);
        serde_json::from_str(&said.out).unwrap()
    };
    assert_eq!(told["problems"][0]["kind"], "missing");
    project.write(".mcp.json", "{ \"mcpServers\": ");
    let said = check_output(&project, 2);
    assert!(said.contains(&format!("{place}.mcp.json:1:")), "{said}");
    project.write(".mcp.json", "{ \"mcpServers\": {} }");
    assert!(check_output(&project, 2).contains("names none"), "{said}");
    project.write(".mcp.json", "{ \"mcpServers\": { \"ev\": { \"command\": \"true\" } } }");
    check_output(&project, 0);
    // Every server of a project without any is none; of a broken file nobody knows.
    let project = project_with_agent("tools: [\"mcp:*\"]", "You.");
    check_output(&project, 0);
    project.write(".mcp.json", "{");
    check_output(&project, 2);
}

#[test]
fn a_missing_executable_is_a_problem_or_a_note() {
    let project = project_with_agent("perception: { command: [./look, -v] }", "You.");
    let said = check_output(&project, 2);
    assert!(said.contains("agents/odd.md:3:25: `./look` is not there"), "{said}");
    project.write("look", "#!/bin/sh\necho 1\n");
    let said = check_output(&project, 2);
    assert!(said.contains("`./look` may not be run (chmod +x"), "{said}");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path().join("look"), mode).unwrap();
    check_output(&project, 0);
    let project = project_with_agent("perception: { command: [no-such-program] }", "You.");
    let said = check_output(&project, 0);
    assert!(
        said.contains("note: at 3:25: there is no program `no-such-program` where PATH leads"),
        "{said}"
    );
    check_output(&project_with_agent("perception: { command: [sh, look] }", "You."), 0);
}

#[test]
fn a_prompt_with_an_include_is_a_problem() {
    let project = project_with_agent("tools: []", "You.\n{% include \"other.md\" %}");
    let said = check_output(&project, 2);
    assert!(said.contains("agents/odd.md:6:4: the template: `include` would load"), "{said}");
}

#[test]
fn a_run_with_an_unrenderable_prompt_must_be_cancelled() {
    let project = project_with_agent("tools: []", "Tidy {{ input.room.name }}.");
    let said = project.run(&["run", "odd", "{}", "--no-input"], 3);
    assert!(said.err.contains("cancel this run"), "{}", said.err);
    assert!(!said.err.contains("longhaul answer"), "{}", said.err);
    // Nobody is there to cancel it, and no answer helps: nothing is waited for.
    for args in
        [["run", "odd", "{}"].as_slice(), &["run", "odd", "{}", "--json"], &["watch", "@last"]]
    {
        let said = project.run(args, 3);
        assert!(said.err.contains("cancel this run"), "{}", said.err);
        assert!(!said.err.contains("--no-input"), "{}", said.err);
    }
    let why = project.run(&["why", "@last"], 0);
    let why = format!("{}{}", why.out, why.err);
    assert!(why.contains("longhaul cancel run_"), "{why}");
    let gates = project.run(&["gates", "show", "@last"], 0).out;
    assert!(gates.contains("no answer helps: longhaul cancel run_"), "{gates}");
}

#[test]
fn a_rules_file_that_links_out_of_the_project_is_reported() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("rules.md"), "Be kind.").unwrap();
    let project = project_with_agent("tools: []", "You.");
    let link = project.path().join("AGENTS.md");
    symlink(outside.path().join("rules.md"), link).unwrap();
    let said = check_output(&project, 2);
    let words = "AGENTS.md:1:1: is a link that leads out of the project or to a hidden file: put";
    assert!(said.contains(words) && !said.contains("schemas"), "{said}");
}

#[test]
fn claude_agents_in_subfolders_are_loaded_and_reported() {
    let project = Project::new();
    let agent = "---\nname: deep\nmodel: scripted/chat\ncolor: red\n---\nYou.\n";
    project.write(".claude/agents/team/review/x.md", agent);
    project.write("agents/team/lost.md", "---\n---\nYou.\n");
    let said = project.run(&["agents", "check"], 0).out;
    assert!(said.contains("agents/team: note: what is in it is not read"), "{said}");
    assert!(said.contains(".claude/agents/team/review/x.md: note: "), "{said}");
    for args in [["run", "deep", "x", "--json"], ["submit", "deep", "x", "--json"]] {
        let said = project.run(&args, 0);
        assert_eq!(said.json()["agent"], "deep");
        assert!(said.err.contains("note: without a meaning here"), "{}", said.err);
    }
    let said = project.run(&["run", "deep", "x", "--quiet"], 0);
    assert!(!said.err.contains("note:"), "{}", said.err);
}

/// A project whose agent uses a server, which is trusted.
fn project_with_server(server: &Value) -> Project {
    let project = project_with_agent("tools: [mcp:ev]", "You.");
    let file = json!({ "mcpServers": { "ev": server } });
    project.write(".mcp.json", &file.to_string());
    project.run(&["trust", "--yes"], 0);
    project
}

#[test]
fn an_unreachable_mcp_server_is_reported_without_library_messages() {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", door.local_addr().unwrap());
    drop(door);
    let project = project_with_server(&json!({ "type": "http", "url": url }));
    let said = project.run(&["run", "odd", "x", "--no-input"], 3).err;
    assert!(said.contains(&format!("Is it running at {url}? Look with")), "{said}");
    for raw in ["ERROR", "Trouble", "worker quit", "?."] {
        assert!(!said.contains(raw), "{raw}: {said}");
    }
    let said = project.run(&["mcp", "check"], 5);
    let said = format!("{}{}", said.out, said.err);
    assert!(said.contains("Connection refused"), "{said}");
    assert!(!said.contains("ERROR") && !said.contains("Trouble"), "{said}");
}

#[test]
fn a_slow_mcp_server_is_reported_while_a_run_waits() {
    let project = project_with_server(&json!({ "command": "sleep", "args": ["600"] }));
    let words = "waiting   for the MCP server `ev` to answer";
    let said = project.run_and_interrupt(&["run", "odd", "x"], &[words]);
    assert_eq!(said.code, 130, "{said:?}");
    let words = "ev: no answer yet; it is waited for, 75 s at most";
    project.run_and_interrupt(&["mcp", "check"], &[words]);
}
