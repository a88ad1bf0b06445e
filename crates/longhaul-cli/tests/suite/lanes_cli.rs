//! `longhaul lanes`, `longhaul batch` and `lane_busy` with the real binary.

use serde_json::{Value, json};

use super::project::{Project, has_status};

fn busy_agent(project: &Project, policy: &str) {
    let agent = format!(
        "---\ndescription: A test.\nmodel: scripted/slow\nlane: orders\nlane_busy: {policy}\n---\nYou.\n"
    );
    project.write(&format!("agents/{policy}.md"), &agent);
}

#[test]
fn lanes_are_listed_paused_and_resumed() {
    let project = Project::new();
    let output = project.run(&["lanes"], 0);
    assert!(output.err.contains("No lane contains a run"), "{output:?}");
    project.run(&["lanes", "show", "docs"], 2);
    assert!(!project.path().join(".longhaul").exists(), "a reading command creates no store");
    let first = project.run(&["submit", "plain", "one", "--lane", "docs"], 0).out;
    project.run(&["submit", "plain", "two", "--lane", "docs"], 0);
    let lanes = project.json(&["lanes", "--json"]);
    let expected = json!({
        "lane": "docs", "holder": first.trim(), "busy": true, "waiting": 1, "paused": false,
    });
    assert_eq!(lanes["data"], json!([expected]));
    let output = project.run(&["lanes", "pause", "docs"], 0).out;
    assert_eq!(output, "The lane `docs` is paused; waiting runs: 2.\n");
    let output = project.run(&["lanes", "show", "docs"], 0).out;
    assert!(output.contains(first.trim()) && output.contains("pending"), "{output}");
    let output = project.run(&["lanes", "ls"], 0).out;
    assert!(output.contains("paused"), "{output}");
    let why = project.run(&["why", first.trim()], 0).out;
    assert!(why.contains("The lane `docs` is paused."), "{why}");
    let _worker = project.start_worker();
    let other = project.submit("plain", "three");
    project.wait_until(&other, has_status("completed"));
    assert_eq!(project.json(&["show", first.trim(), "--json"])["status"], "pending");
    project.run(&["lanes", "resume", "docs"], 0);
    project.wait_until(first.trim(), has_status("completed"));
    let long = "x".repeat(10_000);
    let output = project.run(&["lanes", "pause", &long], 2);
    assert!(output.err.contains("256"), "{output:?}");
}

#[test]
fn a_full_lane_refuses_a_task() {
    let project = Project::new();
    project.write("longhaul.toml", "[lanes]\ndepth = 1\n");
    project.run(&["submit", "plain", "one", "--lane", "docs"], 0);
    let output = project.run(&["submit", "plain", "two", "--lane", "docs"], 5);
    assert!(output.err.contains("the lane `docs` is full") && output.err.contains("lanes.depth"));
}

#[test]
fn a_submit_says_that_its_task_was_added_or_refused() {
    let project = Project::new();
    for policy in ["steer", "reject"] {
        busy_agent(&project, policy);
    }
    let run = project.submit("steer", "one");
    let output = project.run(&["submit", "steer", "two"], 0);
    assert_eq!(output.out.trim(), run);
    let note = format!("note: the task was added to {run}, because its lane is busy");
    assert!(output.err.contains(&note), "{output:?}");
    let steers = project.run(&["steer", &run, "--status"], 0).out;
    assert!(steers.contains("two"), "{steers}");
    let output = project.run(&["inbox", "post", "default", "four", "--agent", "steer"], 0);
    assert!(output.err.contains(&note), "{output:?}");
    let output = project.run(&["submit", "reject", "three"], 5);
    assert!(output.err.contains("the lane `orders` is busy with run_"), "{output:?}");
    assert!(output.err.contains("longhaul lanes"), "{output:?}");
}

fn batch_runs(batch: &Value) -> Vec<String> {
    let runs = batch["runs"].as_array().unwrap().iter();
    runs.map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sequential_batch_survives_the_kill_of_its_worker() {
    let project = Project::new();
    let tasks = ["plain", "slow", "plain"].map(|agent| json!({ "agent": agent, "input": "x" }));
    project.write("tasks.jsonl", &tasks.map(|task| format!("{task}\n")).concat());
    let submit_args = ["batch", "submit", "tasks.jsonl", "--sequential", "--json"];
    let batch = project.json(&[&submit_args[..], &["--idempotency-key", "b"]].concat());
    let second_batch = project.json(&[&submit_args[..], &["--idempotency-key", "b"]].concat());
    assert_eq!(batch["id"], second_batch["id"]);
    let runs = batch_runs(&batch);
    let worker = project.start_worker();
    project.wait_until(&runs[1], has_status("running"));
    drop(worker);
    let id = batch["id"].as_str().unwrap();
    let output = project.run(&["batch", "show", id], 0).out;
    assert!(output.contains("no worker; last known: The run is calling"), "{output}");
    assert!(project.run(&["show", &runs[1]], 0).out.contains(id));
    let shown = project.json(&["batch", "show", id, "--json"]);
    assert_eq!(shown["runs"][0]["status"], "completed");
    assert_eq!(shown["runs"][2]["reason"], "batch");
    project.write("scripts/slow.yaml", "replies:\n- text: At last.\n");
    let _worker = project.start_worker();
    project.wait_until(&runs[2], has_status("completed"));
    for run in &runs {
        let events = project.events(run);
        let completed_count =
            events.iter().filter(|event| event["type"] == "run.completed").count();
        assert_eq!(completed_count, 1, "{events:?}");
    }
    let shown = project.run(&["batch", "show", id], 0).out;
    assert_eq!(shown.matches("The run completed.").count(), 3, "{shown}");
}

#[test]
fn a_batch_with_an_invalid_task_is_refused_as_a_whole() {
    let project = Project::new();
    for (text, expected) in [
        ("{\"agent\": \"plain\", \"input\": 1}\nno json\n", "line 2 is not a task"),
        ("{\"agent\": \"plain\", \"input\": 1}\n{\"input\": 1}\n", "task 2: missing field `agent`"),
        ("{\"agent\": \"plain\", \"input\": 1, \"colour\": 2}\n", "unknown field `colour`"),
        ("{\"agent\": \"nobody\", \"input\": 1}\n", "task 1: there is no agent named `nobody`"),
        ("\n", "1 to 1000 tasks"),
    ] {
        let output = project.run_with_stdin(text, &["batch", "submit", "-"], 2);
        assert!(output.err.contains(expected), "{expected}: {output:?}");
    }
    let output = project.run(&["batch", "submit", "none.jsonl"], 2);
    assert!(output.err.contains("`none.jsonl` can't be read"), "{output:?}");
    let output = project.run(&["ls", "--all"], 0);
    assert!(!output.out.contains("run_"), "{output:?}");
}

#[test]
fn a_batch_larger_than_a_request_body_is_submitted_without_a_server() {
    let project = Project::new();
    let task = json!({ "agent": "plain", "input": "x".repeat(900_000) });
    let batch = format!("{task}\n").repeat(6);
    let submitted = project.run_with_stdin(&batch, &["batch", "submit", "-", "--json"], 0);
    assert_eq!(batch_runs(&submitted.json()).len(), 6);
}
