//! Agents that run commands without walls: a person looks at each, and at each
//! version of it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::cli::longhaul_in;
use super::trust_cli_egress::{project, run};

/// The run that was submitted first.
fn oldest_run_id(listed: &str) -> String {
    let runs = listed.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line)
    });
    let runs = runs.flat_map(|line| match line["data"].as_array() {
        Some(list) => list.clone(),
        None => vec![line],
    });
    let run = runs.min_by_key(|run| run["id"].to_string()).unwrap();
    run["id"].as_str().unwrap().to_owned()
}

#[test]
fn the_shell_tool_of_a_project_agent_needs_trust() {
    let folder = project("");
    let folder = folder.path();
    let agent = |name: &str, said: &str| {
        let front = "model: scripted/sh\ntools: [shell]\nsandbox: { isolation: none }\napprove: [{ tool: shell, allow: true }]";
        let file = folder.join(format!("agents/{name}.md"));
        fs::write(file, format!("---\n{front}\n---\n{said}")).unwrap();
    };
    let script = "replies:\n  - tools: [{ name: shell, input: { command: echo ran >> ran } }]\n  - text: Done.\n";
    fs::write(folder.join("scripts/sh.yaml"), script).unwrap();
    let go = ["run", "b", "x", "--no-input"];
    agent("b", "You, of old.");
    run(folder, &go, 3);
    agent("b", "You.");
    let (_, err) = run(folder, &go, 3);
    let says = "The tool `shell` of agent `b` is not trusted yet, so no command is run";
    assert!(err.contains(says), "{err}");
    assert!(!folder.join("ran").exists());
    let (_, err) = run(folder, &["trust", "--yes"], 0);
    let says = "agent b may run commands on this machine without walls";
    assert!(err.contains(says), "{err}");
    run(folder, &["answer", "@last", "It is trusted now."], 0);
    run(folder, &["watch", "@last", "--no-input"], 0);
    assert!(folder.join("ran").exists());
    // A run of the file as it was before is another's.
    let (out, _) = run(folder, &["ls", "--json"], 0);
    let old = oldest_run_id(&out);
    run(folder, &["answer", &old, "It is trusted now."], 0);
    run(folder, &["watch", &old, "--no-input"], 3);
    // Another such agent is another thing, and does not touch this one.
    agent("c", "You.");
    let (_, err) = run(folder, &["run", "c", "x", "--no-input"], 3);
    let says = "The tool `shell` of agent `c` is not trusted yet";
    assert!(err.contains(says), "{err}");
    run(folder, &go, 0);
    // The rules of the folder are no part of its file; what its file says is.
    fs::write(folder.join("AGENTS.md"), "Be kind.").unwrap();
    run(folder, &go, 0);
    agent("b", "You, differently.");
    let (_, err) = run(folder, &go, 3);
    let says = "The tool `shell` of agent `b` has changed since it was trusted";
    assert!(err.contains(says), "{err}");
    run(folder, &["trust", "--yes"], 0);
    run(folder, &go, 0);
    let ran = fs::read_to_string(folder.join("ran")).unwrap();
    assert_eq!(ran.lines().count(), 4, "{ran}");
    let all = [("LONGHAUL_TRUST", "1")];
    let output = longhaul_in(folder, &["run", "c", "x", "--no-input"], &all);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Writes an agent that runs commands without walls.
fn write_unsandboxed_agent(folder: &Path, front: &str, said: &str) {
    let always = "model: scripted/sh\ntools: [shell]\nsandbox: { isolation: none }";
    let text = format!("---\n{always}\n{front}\n---\n{said}");
    fs::write(folder.join("agents/b.md"), text).unwrap();
    let script = "replies:\n  - tools: [{ name: shell, input: { command: echo ran >> ran } }]\n  - text: Done.\n";
    fs::write(folder.join("scripts/sh.yaml"), script).unwrap();
}

#[test]
fn a_run_of_a_trusted_version_resumes_once_a_newer_one_is_trusted() {
    let folder = project("");
    let folder = folder.path();
    let ask = "approve: [{ tool: shell, ask: 'May it?' }]";
    write_unsandboxed_agent(folder, ask, "You, of old.");
    run(folder, &["trust", "--yes"], 0);
    let go = ["run", "b", "x", "--no-input"];
    let (_, err) = run(folder, &go, 3);
    assert!(!err.contains("trusted"), "{err}");
    write_unsandboxed_agent(folder, ask, "You.");
    let (out, _) = run(folder, &["trust", "ls"], 0);
    assert!(out.contains("changed since it was trusted"), "{out}");
    run(folder, &["trust", "--yes"], 0);
    run(folder, &["approve", "@last", "--yes"], 0);
    run(folder, &["watch", "@last", "--no-input"], 0);
    assert!(folder.join("ran").exists());
    // Nothing of it is left afterwards.
    let (out, _) = run(folder, &["trust", "revoke"], 0);
    assert!(out.contains("2 decisions"), "{out}");
    let (_, err) = run(folder, &go, 3);
    assert!(err.contains("is not trusted yet"), "{err}");
}

#[test]
fn trust_of_an_agent_covers_its_skills() {
    let folder = project("");
    let folder = folder.path();
    for skill in ["knots", "ropes"] {
        let at = folder.join("skills").join(skill);
        fs::create_dir_all(&at).unwrap();
        let text = format!("---\nname: {skill}\ndescription: How it is tied.\n---\nTie it.\n");
        fs::write(at.join("SKILL.md"), text).unwrap();
    }
    write_unsandboxed_agent(folder, "skills: [knots]", "You.");
    run(folder, &["trust", "--yes"], 0);
    let stands = |word: &str| {
        let (out, _) = run(folder, &["trust", "ls", "--json"], 0);
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(told["items"][0]["status"], word, "{told}");
    };
    stands("trusted");
    write_unsandboxed_agent(folder, "skills: [knots, ropes]", "You.");
    stands("changed");
    write_unsandboxed_agent(folder, "skills: [knots]", "You.");
    stands("trusted");
    // What a skill says of itself is no part of the agent's file.
    let text = "---\nname: knots\ndescription: Otherwise.\n---\nTie it.\n";
    fs::write(folder.join("skills/knots/SKILL.md"), text).unwrap();
    stands("trusted");
}
