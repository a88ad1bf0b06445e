//! The exit codes: a contract with scripts. A run that did not complete is never 0.

use serde_json::Value;

use super::project::Project;

/// An agent, what is said to the binary beside it, and how that ends.
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
    for (agent, more, code, status) in EXIT_CASES {
        let args = [&["run", agent, "milk", "--json"], *more].concat();
        let run: Value = project.run(&args, *code).json();
        assert_eq!(run["status"], *status, "{run}");
        let id = run["id"].as_str().unwrap();
        let watched = [&["watch", id, "--json"], *more].concat();
        project.run(&watched, *code);
        // Words for people end the same way, and never without one.
        let said = project.run(&[&["watch", id], *more].concat(), *code);
        assert!(!said.err.is_empty(), "{said:?}");
        let failed = run["error"]["code"].as_str();
        assert_eq!(failed.is_some(), *status == "failed", "{run}");
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
    let said = project.run(&["worker"], 5);
    assert!(said.err.contains("is driven by"), "{said:?}");
    assert!(said.err.contains("longhaul submit"), "{said:?}");
}

#[test]
fn an_interrupt_saves_the_run_and_aborts_a_pending_call() {
    let project = Project::new();
    for (args, at) in [
        // At once, in the middle of a run, and in a call that takes a minute.
        (&["run", "steady", "x"][..], &["run_"][..]),
        (&["run", "steady", "x"], &["turn 2"]),
        (&["run", "slow", "x", "--timeout", "200ms"], &["Ctrl-C cuts it off"]),
    ] {
        let said = project.run_and_interrupt(args, at);
        let code = if args.contains(&"--timeout") { 124 } else { 130 };
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains("saved at event "), "{said:?}");
        let run = project.json(&["show", "@last", "--json"]);
        // At once may be before anybody has claimed it.
        let saved = ["pending", "running"].contains(&run["status"].as_str().unwrap());
        assert!(saved, "{run}");
        assert!(said.err.contains(run["id"].as_str().unwrap()), "{said:?}");
        project.run(&["cancel", "@last"], 0);
    }
    let _worker = project.start_worker();
    let said = project.run_and_interrupt(&["run", "slow", "x"], &["run_"]);
    assert_eq!(said.code, 130, "{said:?}");
    assert!(said.err.contains("Detached. The run goes on"), "{said:?}");
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
        let said = project.run(&[command, "--help"], 0);
        assert!(said.out.contains("Examples:"), "{command}: {said:?}");
        assert!(command == "worker" || said.out.contains("--json"), "{command}");
    }
}
