//! `longhaul signal`, tasks that start later, and other commands that need no id.

use serde_json::Value;

use super::project::Project;

/// Submits a task of the agent `waiter`, waits until its run waits for a signal, and returns its id.
/// A worker drives the run.
fn waiting_run(project: &Project) -> String {
    let submitted = project.json(&["submit", "waiter", "milk", "--json"]);
    let run = submitted["id"].as_str().unwrap().to_owned();
    project.wait_until(&run, |shown| shown["reason"] == "signal");
    run
}

#[test]
fn a_signal_completes_every_run_that_waits_for_it_by_name() {
    let project = Project::new();
    let _worker = project.start_worker();
    let (first, second) = (waiting_run(&project), waiting_run(&project));
    let refused = project.run(&["signal", "other"], 2);
    assert!(refused.err.contains("no run waits for the signal `other`"), "{refused:?}");
    let refused = project.run(&["signal", "deployed", "--payload", "{"], 2);
    assert!(refused.err.contains("--payload is not valid JSON"), "{refused:?}");
    let out =
        project.run(&["signal", "deployed", "--run", &first, "--payload", "{\"build\": 7}"], 0).out;
    assert!(out.contains(&first) && !out.contains(&second), "{out}");
    let out = project.run(&["signal", "deployed", "--json"], 0).out;
    let gates: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(gates["data"].as_array().unwrap().len(), 1, "{gates}");
    assert_eq!(gates["data"][0]["run"], second.as_str());
    project.run(&["signal", "deployed"], 2);
    let out = project.run(&["watch", &first], 0).out;
    assert!(out.contains("Received:") && out.contains("build"), "{out}");
    // Without an id, the last run is meant.
    let out = project.run(&["watch"], 0).out;
    assert!(out.contains("Received:"), "{out}");
    for command in ["show", "why"] {
        let out = project.run(&[command], 0).out;
        assert!(out.contains(&second), "{command}: {out}");
    }
}

#[test]
fn a_task_starts_at_its_time() {
    let project = Project::new();
    for args in
        [&["--in", "2h"][..], &["--at", "2999-01-01T08:00"], &["--at", "2999-01-01T08:00:00Z"]]
    {
        let args = [&["submit", "plain", "later", "--json"], args].concat();
        let run: Value = serde_json::from_str(&project.run(&args, 0).out).unwrap();
        assert_eq!(run["status"], "pending", "{run}");
        let out = project.run(&["why", run["id"].as_str().unwrap()], 0).out;
        assert!(out.contains("waits for its start time"), "{out}");
    }
    for args in [&["--at", "soon"][..], &["--in", "later"], &["--at", "08:00", "--in", "1h"]] {
        let args = [&["submit", "plain", "later"], args].concat();
        project.run(&args, 2);
    }
}

#[test]
fn the_model_scripted_plays_the_script_of_each_agent() {
    let project = Project::new();
    let out = project.run(&["run", "plain", "milk", "--model", "scripted"], 0).out;
    assert!(out.contains("Done: milk"), "{out}");
    // Each step of a built-in chain has its own script.
    let args = [
        "run",
        "--chain",
        "full-pipeline",
        "Add a flag",
        "--model",
        "scripted",
        "--no-input",
        "--json",
    ];
    let out = project.command(&args).output().unwrap().stdout;
    let run: Value = serde_json::from_slice(&out).unwrap();
    assert_ne!(run["error"]["code"], "output_invalid", "{run}");
}

#[test]
fn an_option_of_a_question_is_picked_by_its_number() {
    let project = Project::new();
    project.run(&["run", "ask", "go", "--no-input"], 3);
    let gate = project.run(&["gates", "show", "@last"], 0).out;
    assert!(gate.contains("1. left") && gate.contains("2. right"), "{gate}");
    for answer in ["0", "3", "up"] {
        let refused = project.run(&["answer", "@last", answer], 2);
        assert!(refused.err.contains("must be one of `left`, `right`"), "{refused:?}");
    }
    project.run(&["answer", "@last", "2"], 0);
    let out = project.run(&["watch"], 0).out;
    assert!(out.contains("Going: right"), "{out}");
}
