//! Tests of the timeouts of an attempt that an agent file or `longhaul.toml` sets.

use crate::suite::project::Project;

const SCRIPT: &str = "replies: [{ text: too late, delay: 10m }]\n";

/// Runs an agent whose model replies after 10 minutes, and checks that the run is stopped.
fn check_stopped(project: &Project, agent: &str) {
    project.write("agents/slow.md", agent);
    project.write("scripts/slow.yaml", SCRIPT);
    let run = project.run(&["run", "slow", "x", "--json", "--no-input"], 1).json();
    assert_eq!(run["error"]["code"], "timeout", "{run}");
    assert_eq!(run["attempt"], 2);
    let events = project.events("@last");
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "run.overdue").count(), 2, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "run.timed_out").count(), 2, "{kinds:?}");
    let output = project.run(&["show", "@last", "--events"], 0).out;
    assert!(output.contains("stopped at its hard timeout of 400 ms"), "{output}");
}

#[test]
fn timeouts_of_an_agent_file_are_applied_and_shown() {
    let project = Project::new();
    let retry = "retry: { initial_delay: 1ms, soft_timeout: 200ms, hard_timeout: 400ms }";
    check_stopped(&project, &format!("---\nmodel: scripted/slow\n{retry}\n---\nWait.\n"));
    let output = project.run(&["agents", "show", "slow"], 0).out;
    assert!(output.contains("soft_timeout: 200ms, hard_timeout: 400ms"), "{output}");
}

#[test]
fn timeouts_of_the_project_are_applied() {
    let project = Project::new();
    project.write(
        "longhaul.toml",
        "[retry]\ninitial_delay = \"1ms\"\nsoft_timeout = \"200ms\"\nhard_timeout = \"400ms\"\n",
    );
    check_stopped(&project, "---\nmodel: scripted/slow\n---\nWait.\n");
}
