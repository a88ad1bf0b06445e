//! Exit codes, on which scripts depend. A run that did not complete never exits with 0.

use serde_json::Value;

use super::project::Project;

/// Agent, further arguments, exit code and status of the run.
const EXIT_CASES: &[(&str, &[&str], i32, &str)] = &[
    ("plain", &[], 0, "completed"),
    ("locked", &[], 1, "failed"),
    ("tidy", &["--no-input"], 3, "waiting"),
    ("ask", &["--no-input"], 3, "waiting"),
    ("stuck", &["--no-input"], 3, "blocked"),
    ("looping", &[], 4, "failed"),
    ("poor", &["--no-input"], 4, "waiting"),
    ("steady", &["--timeout", "300ms"], 124, "running"),
];

#[test]
fn the_exit_code_follows_the_status_of_the_run() {
    let project = Project::new();
    for (agent, flags, code, status) in EXIT_CASES {
        let args = [&["run", agent, "milk", "--json"], *flags].concat();
        let run: Value = project.run(&args, *code).json();
        assert_eq!(run["status"], *status, "{run}");
        let id = run["id"].as_str().unwrap();
        let watch_args = [&["watch", id, "--json"], *flags].concat();
        project.run(&watch_args, *code);
        // Output for people has the same exit code, and there is always a message.
        let output = project.run(&[&["watch", id], *flags].concat(), *code);
        assert!(!output.err.is_empty(), "{output:?}");
        let error_code = run["error"]["code"].as_str();
        assert_eq!(error_code.is_some(), *status == "failed", "{run}");
        project.run(&["show", id], 0);
    }
}

#[test]
fn a_cancelled_run_exits_with_7_and_a_second_driver_with_5() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    project.run(&["cancel", &run], 0);
    project.run(&["watch", &run], 7);
    project.run(&["run", "plain", "milk", "--timeout", "soon"], 2);
    let _worker = project.start_worker();
    let output = project.run(&["worker"], 5);
    assert!(output.err.contains("is driven by"), "{output:?}");
    assert!(output.err.contains("longhaul submit"), "{output:?}");
}

#[test]
fn an_interrupt_saves_the_run_and_aborts_a_pending_call() {
    let project = Project::new();
    for (args, at) in [
        // Interrupted at once, in the middle of a run, and during a call that takes a minute.
        (&["run", "steady", "x"][..], &["run_"][..]),
        (&["run", "steady", "x"], &["turn 2"]),
        (&["run", "slow", "x", "--timeout", "200ms"], &["Ctrl-C aborts it"]),
    ] {
        let output = project.run_and_interrupt(args, at);
        let code = if args.contains(&"--timeout") { 124 } else { 130 };
        assert_eq!(output.code, code, "{output:?}");
        assert!(output.err.contains("saved at event "), "{output:?}");
        let run = project.json(&["show", "@last", "--json"]);
        // An early interrupt may come before the run is claimed.
        let is_open = ["pending", "running"].contains(&run["status"].as_str().unwrap());
        assert!(is_open, "{run}");
        assert!(output.err.contains(run["id"].as_str().unwrap()), "{output:?}");
        project.run(&["cancel", "@last"], 0);
    }
    let _worker = project.start_worker();
    let output = project.run_and_interrupt(&["run", "slow", "x"], &["run_"]);
    assert_eq!(output.code, 130, "{output:?}");
    assert!(output.err.contains("Detached. The run continues"), "{output:?}");
}

#[test]
fn every_command_has_examples() {
    let project = Project::new();
    for command in [
        "run",
        "submit",
        "worker",
        "ls",
        "show",
        "watch",
        "why",
        "steer",
        "pause",
        "resume",
        "cancel",
        "gates",
        "approvals",
        "approve",
        "reject",
        "answer",
        "keys",
        "memory",
    ] {
        let output = project.run(&[command, "--help"], 0);
        assert!(output.out.contains("Examples:"), "{command}: {output:?}");
        assert!(command == "worker" || output.out.contains("--json"), "{command}");
    }
}
