//! What is amiss around an agent is told early, in words for people, with a command
//! that fits.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use super::project::Project;

/// A project with one agent more.
fn with(front: &str, body: &str) -> Project {
    let project = Project::new();
    let agent = format!("---\nmodel: scripted/talk\n{front}\n---\n{body}\n");
    project.write("agents/odd.md", &agent);
    project
}

/// What `agents check` prints of it, with this exit code.
fn checked(project: &Project, code: i32) -> String {
    let said = project.say(&["agents", "check", "odd"], code);
    format!("{}{}", said.out, said.err)
}

#[test]
fn a_server_that_nobody_names_is_a_problem() {
    let project = with("tools: [vault_list, mcp:ev]", "You.");
    let said = checked(&project, 2);
    let place = "agents/odd.md:3:21: `mcp:ev` is a tool of an MCP server, and ";
    assert!(
        said.contains(&format!("{place}there is no `.mcp.json`")),
        "{said}"
    );
    assert!(said.contains("1 problem; runs wait until"), "{said}");
    let told: Value = {
        let said = project.say(&["agents", "check", "odd", "--json"], 2);
        serde_json::from_str(&said.out).unwrap()
    };
    assert_eq!(told["problems"][0]["kind"], "missing");
    project.write(".mcp.json", "{ \"mcpServers\": ");
    let said = checked(&project, 2);
    assert!(said.contains(&format!("{place}.mcp.json:1:")), "{said}");
    project.write(".mcp.json", "{ \"mcpServers\": {} }");
    assert!(checked(&project, 2).contains("names none"), "{said}");
    project.write(
        ".mcp.json",
        "{ \"mcpServers\": { \"ev\": { \"command\": \"true\" } } }",
    );
    checked(&project, 0);
    // Every server of a project without any is none; of a broken file nobody knows.
    let project = with("tools: [\"mcp:*\"]", "You.");
    checked(&project, 0);
    project.write(".mcp.json", "{");
    checked(&project, 2);
}

#[test]
fn a_program_that_is_not_there_is_a_problem_or_a_note() {
    let project = with("perception: { command: [./look, -v] }", "You.");
    let said = checked(&project, 2);
    assert!(
        said.contains("agents/odd.md:3:25: `./look` is not there"),
        "{said}"
    );
    project.write("look", "#!/bin/sh\necho 1\n");
    let said = checked(&project, 2);
    assert!(said.contains("`./look` may not be run (chmod +x"), "{said}");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path().join("look"), mode).unwrap();
    checked(&project, 0);
    let project = with("perception: { command: [no-such-program] }", "You.");
    let said = checked(&project, 0);
    assert!(
        said.contains("note: at 3:25: there is no program `no-such-program` where PATH leads"),
        "{said}"
    );
    checked(&with("perception: { command: [sh, look] }", "You."), 0);
}

#[test]
fn a_prompt_that_would_load_another_is_a_problem() {
    let project = with("tools: []", "You.\n{% include \"other.md\" %}");
    let said = checked(&project, 2);
    assert!(
        said.contains("agents/odd.md:6:4: the template: `include` would load"),
        "{said}"
    );
}

#[test]
fn a_run_whose_prompt_can_not_be_made_is_to_be_cancelled() {
    let project = with("tools: []", "Tidy {{ input.room.name }}.");
    let said = project.say(&["run", "odd", "{}", "--no-input"], 3);
    assert!(said.err.contains("cancel this run"), "{}", said.err);
    assert!(!said.err.contains("longhaul answer"), "{}", said.err);
    // Nobody is there to cancel it, and no answer helps: nothing is waited for.
    for args in [
        ["run", "odd", "{}"].as_slice(),
        &["run", "odd", "{}", "--json"],
        &["watch", "@last"],
    ] {
        let said = project.say(args, 3);
        assert!(said.err.contains("cancel this run"), "{}", said.err);
        assert!(!said.err.contains("--no-input"), "{}", said.err);
    }
    let why = project.say(&["why", "@last"], 0);
    let why = format!("{}{}", why.out, why.err);
    assert!(why.contains("longhaul cancel run_"), "{why}");
    let gates = project.say(&["gates", "show", "@last"], 0).out;
    assert!(
        gates.contains("no answer helps: longhaul cancel run_"),
        "{gates}"
    );
}

#[test]
fn rules_behind_a_link_that_leads_out_are_told_so() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("rules.md"), "Be kind.").unwrap();
    let project = with("tools: []", "You.");
    let link = project.path().join("AGENTS.md");
    symlink(outside.path().join("rules.md"), link).unwrap();
    let said = checked(&project, 2);
    let words = "AGENTS.md:1:1: is a link that leads out of the project or to a hidden file: put";
    assert!(said.contains(words) && !said.contains("schemas"), "{said}");
}

#[test]
fn claude_s_agents_in_folders_are_read_and_told_of() {
    let project = Project::new();
    let agent = "---\nname: deep\nmodel: scripted/talk\ncolor: red\n---\nYou.\n";
    project.write(".claude/agents/team/review/x.md", agent);
    project.write("agents/team/lost.md", "---\n---\nYou.\n");
    let said = project.say(&["agents", "check"], 0).out;
    assert!(
        said.contains("agents/team: note: what is in it is not read"),
        "{said}"
    );
    assert!(
        said.contains(".claude/agents/team/review/x.md: note: "),
        "{said}"
    );
    for args in [
        ["run", "deep", "x", "--json"],
        ["submit", "deep", "x", "--json"],
    ] {
        let said = project.say(&args, 0);
        assert_eq!(said.json()["agent"], "deep");
        assert!(
            said.err.contains("note: without a meaning here"),
            "{}",
            said.err
        );
    }
    let said = project.say(&["run", "deep", "x", "--quiet"], 0);
    assert!(!said.err.contains("note:"), "{}", said.err);
}

/// A project whose agent uses a server, which is trusted.
fn served(server: &Value) -> Project {
    let project = with("tools: [mcp:ev]", "You.");
    let file = json!({ "mcpServers": { "ev": server } });
    project.write(".mcp.json", &file.to_string());
    project.say(&["trust", "--yes"], 0);
    project
}

#[test]
fn a_server_that_is_not_there_is_told_in_our_words_only() {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", door.local_addr().unwrap());
    drop(door);
    let project = served(&json!({ "type": "http", "url": url }));
    let said = project.say(&["run", "odd", "x", "--no-input"], 3).err;
    assert!(
        said.contains(&format!("Is it running at {url}? Look with")),
        "{said}"
    );
    for raw in ["ERROR", "Trouble", "worker quit", "?."] {
        assert!(!said.contains(raw), "{raw}: {said}");
    }
    let said = project.say(&["mcp", "check"], 5);
    let said = format!("{}{}", said.out, said.err);
    assert!(said.contains("Connection refused"), "{said}");
    assert!(
        !said.contains("ERROR") && !said.contains("Trouble"),
        "{said}"
    );
}

#[test]
fn a_server_that_says_nothing_is_waited_for_aloud() {
    let project = served(&json!({ "command": "sleep", "args": ["600"] }));
    let words = "waiting   for the MCP server `ev` to answer";
    let said = project.interrupt(&["run", "odd", "x"], &[words]);
    assert_eq!(said.code, 130, "{said:?}");
    let words = "ev: no answer yet; it is waited for, 75 s at most";
    project.interrupt(&["mcp", "check"], &[words]);
}
