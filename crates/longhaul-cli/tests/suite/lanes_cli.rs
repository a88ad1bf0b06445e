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
    let none = project.run(&["lanes"], 0);
    assert!(none.err.contains("No lane contains a run"), "{none:?}");
    project.run(&["lanes", "show", "docs"], 2);
    assert!(!project.path().join(".longhaul").exists(), "a reading command creates no store");
    let first = project.run(&["submit", "plain", "one", "--lane", "docs"], 0).out;
    project.run(&["submit", "plain", "two", "--lane", "docs"], 0);
    let lanes = project.json(&["lanes", "--json"]);
    let expected = json!({
        "lane": "docs", "head": first.trim(), "busy": true, "waiting": 1, "paused": false,
    });
    assert_eq!(lanes["data"], json!([expected]));
    let paused = project.run(&["lanes", "pause", "docs"], 0).out;
    assert_eq!(paused, "The lane `docs` is paused; waiting runs: 2.\n");
    let shown = project.run(&["lanes", "show", "docs"], 0).out;
    assert!(shown.contains(first.trim()) && shown.contains("pending"), "{shown}");
    let listed = project.run(&["lanes", "ls"], 0).out;
    assert!(listed.contains("paused"), "{listed}");
    let why = project.run(&["why", first.trim()], 0).out;
    assert!(why.contains("The lane `docs` is paused."), "{why}");
    let _worker = project.start_worker();
    let other = project.submit("plain", "three");
    project.wait_until(&other, has_status("completed"));
    assert_eq!(project.json(&["show", first.trim(), "--json"])["status"], "pending");
    project.run(&["lanes", "resume", "docs"], 0);
    project.wait_until(first.trim(), has_status("completed"));
    let long = "x".repeat(10_000);
    let refused = project.run(&["lanes", "pause", &long], 2);
    assert!(refused.err.contains("256"), "{refused:?}");
}

#[test]
fn a_full_lane_refuses_a_task() {
    let project = Project::new();
    project.write("longhaul.toml", "[lanes]\ndepth = 1\n");
    project.run(&["submit", "plain", "one", "--lane", "docs"], 0);
    let full = project.run(&["submit", "plain", "two", "--lane", "docs"], 5);
    assert!(full.err.contains("the lane `docs` is full") && full.err.contains("lanes.depth"));
}

#[test]
fn a_submit_says_that_its_task_was_added_or_refused() {
    let project = Project::new();
    for policy in ["steer", "reject"] {
        busy_agent(&project, policy);
    }
    let run = project.submit("steer", "one");
    let added = project.run(&["submit", "steer", "two"], 0);
    assert_eq!(added.out.trim(), run);
    let note = format!("note: the task was added to {run}, because its lane is busy");
    assert!(added.err.contains(&note), "{added:?}");
    let steers = project.run(&["steer", &run, "--status"], 0).out;
    assert!(steers.contains("two"), "{steers}");
    let posted = project.run(&["inbox", "post", "default", "four", "--agent", "steer"], 0);
    assert!(posted.err.contains(&note), "{posted:?}");
    let refused = project.run(&["submit", "reject", "three"], 5);
    assert!(refused.err.contains("the lane `orders` is busy with run_"), "{refused:?}");
    assert!(refused.err.contains("longhaul lanes"), "{refused:?}");
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
    let submit = ["batch", "submit", "tasks.jsonl", "--sequential", "--json"];
    let batch = project.json(&[&submit[..], &["--idempotency-key", "b"]].concat());
    let again = project.json(&[&submit[..], &["--idempotency-key", "b"]].concat());
    assert_eq!(batch["id"], again["id"]);
    let runs = batch_runs(&batch);
    let worker = project.start_worker();
    project.wait_until(&runs[1], has_status("running"));
    drop(worker);
    let id = batch["id"].as_str().unwrap();
    let undriven = project.run(&["batch", "show", id], 0).out;
    assert!(undriven.contains("no worker; last known: The run is calling"), "{undriven}");
    assert!(project.run(&["show", &runs[1]], 0).out.contains(id));
    let shown = project.json(&["batch", "show", id, "--json"]);
    assert_eq!(shown["runs"][0]["status"], "completed");
    assert_eq!(shown["runs"][2]["reason"], "batch");
    project.write("scripts/slow.yaml", "replies:\n- text: At last.\n");
    let _worker = project.start_worker();
    project.wait_until(&runs[2], has_status("completed"));
    for run in &runs {
        let events = project.events(run);
        let ends = events.iter().filter(|event| event["type"] == "run.completed").count();
        assert_eq!(ends, 1, "{events:?}");
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
        let refused = project.run_with_stdin(text, &["batch", "submit", "-"], 2);
        assert!(refused.err.contains(expected), "{expected}: {refused:?}");
    }
    let missing = project.run(&["batch", "submit", "none.jsonl"], 2);
    assert!(missing.err.contains("`none.jsonl` can't be read"), "{missing:?}");
    let listed = project.run(&["ls", "--all"], 0);
    assert!(!listed.out.contains("run_"), "{listed:?}");
}
