//! `run` and `watch` drive their own run and nothing else.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::json;

use super::project::{Project, has_status};
use super::server_harness::TestServer;

#[test]
fn a_command_drives_only_its_own_run() {
    let project = Project::new();
    let other_runs = [project.submit("plain", "a"), project.submit("plain", "b")];
    let output = project.run(&["run", "plain", "it", "--inbox", "mail"], 0);
    assert_eq!(output.out, "Done: it\n");
    let output = project.run(&["submit", "plain", "it", "--inbox", "mail"], 0);
    project.run(&["watch", output.out.trim()], 0);
    project.run(&["watch", &other_runs[0]], 0);
    let other = project.json(&["show", &other_runs[1], "--json"]);
    assert_eq!(other["status"], "pending", "{other}");
    let _worker = project.start_worker();
    project.wait_until(&other_runs[1], has_status("completed"));
}

#[test]
fn a_run_behind_an_undriven_run_names_that_run() {
    let project = Project::new();
    let tasks = ["a", "b"].map(|input| json!({ "agent": "plain", "input": input }));
    project.write("tasks.jsonl", &tasks.map(|task| format!("{task}\n")).concat());
    let batch = project.json(&["batch", "submit", "tasks.jsonl", "--sequential", "--json"]);
    let [first, second] = [0, 1].map(|index| batch["runs"][index]["id"].as_str().unwrap());
    let head = project.run(&["submit", "plain", "one", "--lane", "docs"], 0).out;
    let next = project.run(&["run", "plain", "two", "--lane", "docs", "--json"], 3);
    let next_id = next.json()["id"].as_str().unwrap().to_owned();
    let watched = project.run(&["watch", second], 3);
    for (output, before, run) in [(&next, head.trim(), next_id.as_str()), (&watched, first, second)]
    {
        let expected = format!("waits for {before}, which is before it in ");
        assert!(output.err.contains(&expected), "{output:?}");
        assert!(output.err.contains(&format!("longhaul watch {before}")), "{output:?}");
        let why = project.json(&["why", run, "--json"]);
        assert!(why["message"].as_str().unwrap().contains(&expected), "{why}");
        assert_eq!(why["command"], format!("longhaul watch {before}"));
        project.run(&["watch", before], 0);
        project.run(&["watch", run], 0);
    }
    project.run(&["lanes", "pause", "docs"], 0);
    let output = project.run(&["run", "plain", "three", "--lane", "docs"], 3);
    assert!(output.err.contains("longhaul lanes resume docs"), "{output:?}");
}

#[test]
fn a_second_command_says_that_the_first_drives_only_its_own_run() {
    let project = Project::new();
    let mut first = project.command(&["run", "steady", "milk"]);
    first.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut first = first.spawn().unwrap();
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("turn 1")));
    std::thread::spawn(move || lines.for_each(drop));
    let driven_run = project.json(&["show", "@last", "--json"]);
    let driven_run = driven_run["id"].as_str().unwrap();
    let mut second = project.command(&["run", "plain", "bread"]);
    second.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut second = second.spawn().unwrap();
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("only its own run")));
    let why = project.run(&["why", "@last"], 0);
    assert!(why.out.contains("only its own run"), "{why:?}");
    let output = project.run(&["worker"], 5);
    let pid = first.id();
    assert!(output.err.contains(&format!("pid {pid}, longhaul run")), "{output:?}");
    assert!(output.err.contains(&format!("kill -INT {pid}")), "{output:?}");
    let output = project.run(&["run", "plain", "wine", "--timeout", "100ms"], 124);
    assert!(output.err.contains("Detached. The run is pending. No worker serves"), "{output:?}");
    project.run(&["cancel", "@last"], 0);
    project.run(&["cancel", driven_run], 0);
    assert_eq!(first.wait().unwrap().code(), Some(7));
    std::thread::spawn(move || lines.for_each(drop));
    assert_eq!(second.wait().unwrap().code(), Some(0));
}

/// Starts a command that waits for a person, and returns it when it says so.
fn start_waiting(project: &Project, args: &[&str]) -> Child {
    let mut command = project.command(args);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("longhaul approve")), "{args:?}");
    std::thread::spawn(move || lines.for_each(drop));
    child
}

#[test]
fn a_command_whose_run_waits_lets_a_worker_drive_the_store() {
    let project = Project::new();
    let mut waiting_command = start_waiting(&project, &["run", "tidy", "milk", "--wait"]);
    let parked_run = project.json(&["show", "@last", "--json"])["id"].as_str().unwrap().to_owned();
    project.wait_until_no_driver();
    let worker = project.start_worker();
    let other_run = project.submit("plain", "bread");
    project.wait_until(&other_run, has_status("completed"));
    project.run(&["approve", &parked_run, "--yes"], 0);
    assert_eq!(waiting_command.wait().unwrap().code(), Some(0));
    drop(worker);
    // Without a worker, the command itself continues the run.
    for args in [&["run", "tidy", "milk", "--wait"][..], &["watch", "@last"]] {
        if args[0] == "watch" {
            project.run(&["run", "tidy", "milk"], 3);
        }
        let mut waiting_command = start_waiting(&project, args);
        project.wait_until_no_driver();
        project.run(&["approve", "@last", "--yes"], 0);
        assert_eq!(waiting_command.wait().unwrap().code(), Some(0), "{args:?}");
    }
}

#[test]
fn a_command_ends_when_the_server_of_its_run_is_gone() {
    let project = Project::new();
    let server = TestServer::start(&project);
    let mut command = project.command(&["run", "steady", "milk"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("turn 1")));
    server.kill();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("longhaul watch run_")), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    // A run that ended without the server is reported as ended.
    let server = TestServer::start(&project);
    let mut command = project.command(&["watch", "@last"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("turn 1")));
    server.kill();
    project.run(&["cancel", "@last"], 0);
    let mut worker = project.command(&["worker", "--quiet"]).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    worker.kill().unwrap();
    worker.wait().unwrap();
}
