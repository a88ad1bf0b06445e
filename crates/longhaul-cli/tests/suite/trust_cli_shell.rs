//! Agents that run commands unsandboxed: each agent and each version of it needs trust.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::cli::longhaul_in;
use super::trust_cli_egress::{project, run};

/// Returns the id of the run that was submitted first.
fn oldest_run_id(list: &str) -> String {
    let runs = list.lines().filter_map(|line| {
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
    let agent = |name: &str, prompt: &str| {
        let front = "model: scripted/sh\ntools: [shell]\nsandbox: { isolation: none }\napprove: [{ tool: shell, allow: true }]";
        let file = folder.join(format!("agents/{name}.md"));
        fs::write(file, format!("---\n{front}\n---\n{prompt}")).unwrap();
    };
    let script = "replies:\n  - tools: [{ name: shell, input: { command: echo ran >> ran } }]\n  - text: Done.\n";
    fs::write(folder.join("scripts/sh.yaml"), script).unwrap();
    let run_args = ["run", "b", "x", "--no-input"];
    agent("b", "You, of old.");
    run(folder, &run_args, 3);
    agent("b", "You.");
    let (_, err) = run(folder, &run_args, 3);
    let expected = "The tool `shell` of agent `b` is not trusted yet, so no command is run";
    assert!(err.contains(expected), "{err}");
    assert!(!folder.join("ran").exists());
    let (_, err) = run(folder, &["trust", "--yes"], 0);
    let expected = "agent b may run commands on this machine unsandboxed";
    assert!(err.contains(expected), "{err}");
    run(folder, &["answer", "@last", "It is trusted now."], 0);
    run(folder, &["watch", "@last", "--no-input"], 0);
    assert!(folder.join("ran").exists());
    // A run of the previous version is not covered by the decision.
    let (out, _) = run(folder, &["ls", "--json"], 0);
    let old = oldest_run_id(&out);
    run(folder, &["answer", &old, "It is trusted now."], 0);
    run(folder, &["watch", &old, "--no-input"], 3);
    // Another such agent needs its own decision, which does not affect this one.
    agent("c", "You.");
    let (_, err) = run(folder, &["run", "c", "x", "--no-input"], 3);
    let expected = "The tool `shell` of agent `c` is not trusted yet";
    assert!(err.contains(expected), "{err}");
    run(folder, &run_args, 0);
    // AGENTS.md is not part of the decision; the agent's own file is.
    fs::write(folder.join("AGENTS.md"), "Be kind.").unwrap();
    run(folder, &run_args, 0);
    agent("b", "You, differently.");
    let (_, err) = run(folder, &run_args, 3);
    let expected = "The tool `shell` of agent `b` has changed since it was trusted";
    assert!(err.contains(expected), "{err}");
    run(folder, &["trust", "--yes"], 0);
    run(folder, &run_args, 0);
    let run_log = fs::read_to_string(folder.join("ran")).unwrap();
    assert_eq!(run_log.lines().count(), 4, "{run_log}");
    let all = [("LONGHAUL_TRUST", "1")];
    let output = longhaul_in(folder, &["run", "c", "x", "--no-input"], &all);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Writes an agent that runs commands unsandboxed.
fn write_unsandboxed_agent(folder: &Path, front: &str, prompt: &str) {
    let common_front = "model: scripted/sh\ntools: [shell]\nsandbox: { isolation: none }";
    let text = format!("---\n{common_front}\n{front}\n---\n{prompt}");
    fs::write(folder.join("agents/b.md"), text).unwrap();
    let script = "replies:\n  - tools: [{ name: shell, input: { command: echo ran >> ran } }]\n  - text: Done.\n";
    fs::write(folder.join("scripts/sh.yaml"), script).unwrap();
}

#[test]
fn a_run_of_a_trusted_version_resumes_once_a_newer_one_is_trusted() {
    let folder = project("");
    let folder = folder.path();
    let approve = "approve: [{ tool: shell, ask: 'May it?' }]";
    write_unsandboxed_agent(folder, approve, "You, of old.");
    run(folder, &["trust", "--yes"], 0);
    let run_args = ["run", "b", "x", "--no-input"];
    let (_, err) = run(folder, &run_args, 3);
    assert!(!err.contains("trusted"), "{err}");
    write_unsandboxed_agent(folder, approve, "You.");
    let (out, _) = run(folder, &["trust", "ls"], 0);
    assert!(out.contains("changed since it was trusted"), "{out}");
    run(folder, &["trust", "--yes"], 0);
    run(folder, &["approve", "@last", "--yes"], 0);
    run(folder, &["watch", "@last", "--no-input"], 0);
    assert!(folder.join("ran").exists());
    // `revoke` deletes all versions.
    let (out, _) = run(folder, &["trust", "revoke"], 0);
    assert!(out.contains("2 decisions"), "{out}");
    let (_, err) = run(folder, &run_args, 3);
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
    let assert_status = |expected: &str| {
        let (out, _) = run(folder, &["trust", "ls", "--json"], 0);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["items"][0]["status"], expected, "{json}");
    };
    assert_status("trusted");
    write_unsandboxed_agent(folder, "skills: [knots, ropes]", "You.");
    assert_status("changed");
    write_unsandboxed_agent(folder, "skills: [knots]", "You.");
    assert_status("trusted");
    // The description of a skill is not part of the decision.
    let text = "---\nname: knots\ndescription: Otherwise.\n---\nTie it.\n";
    fs::write(folder.join("skills/knots/SKILL.md"), text).unwrap();
    assert_status("trusted");
}
