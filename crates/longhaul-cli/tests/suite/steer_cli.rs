//! `steer`, `pause`, `resume` and `cancel` on the command line.

use std::sync::mpsc::{Sender, channel};

use serde_json::{Value, json};

use super::fake_server::{FakeServer, event_stream};
use super::project::{Project, has_status};

/// A fake model that calls a tool and then ends. Its first reply waits for the test, so that the
/// run stays in its first turn, however slow the machine is.
fn blocking_model() -> (FakeServer, Sender<()>) {
    let (release_sender, release_receiver) = channel();
    let model = FakeServer::new(move |request| {
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let (delta, reason) = match messages.iter().any(|message| message["role"] == "tool") {
            true => (json!({ "content": "Done." }), "stop"),
            false => {
                // An error means that the test is over.
                _ = release_receiver.recv();
                let call = json!({ "name": "vault_list", "arguments": "{}" });
                let call = json!({ "index": 0, "id": "c1", "type": "function", "function": call });
                (json!({ "tool_calls": [call] }), "tool_calls")
            }
        };
        let first = json!({ "choices": [{ "index": 0, "delta": delta }] });
        let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
        event_stream(&format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n"))
    });
    (model, release_sender)
}

#[test]
fn a_steer_message_has_a_receipt_and_a_delivery_status() {
    let (model, release) = blocking_model();
    let project = Project::new();
    let url = &model.url;
    let settings = format!(
        "[worker]\npoll = \"10m\"\n[providers.held]\napi = \"chat\"\nbase_url = \"{url}/v1\"\nkey_env = []\n"
    );
    project.write("longhaul.toml", &settings);
    let agent = "---\nmodel: held/x\ntools: [vault_list]\n---\nYou.\n";
    project.write("agents/held.md", agent);
    let _worker = project.start_worker();
    let run = project.submit("held", "milk");
    project
        .wait_until(&run, |run| run["now"].as_str().unwrap().contains("calling the model, turn 1"));
    let output = project.run(&["steer", &run, "keep", "the", "old", "name"], 0);
    assert!(output.out.contains(&format!("Queued for {run}. ")), "{output:?}");
    assert!(output.out.contains("Will be delivered before turn 2"), "{output:?}");
    let queued = project.json(&["steer", &run, "--status", "--json"]);
    assert_eq!(queued["data"][0]["text"], "keep the old name");
    assert_eq!(queued["data"][0]["status"], "queued");
    release.send(()).unwrap();
    project.wait_until(&run, has_status("completed"));
    let steers = project.json(&["steer", &run, "--status", "--json"]);
    let steer = &steers["data"][0];
    assert_eq!(steer["status"], "delivered");
    assert_eq!(steer["between"], json!([1, 2]));
    // Much sooner than the poll interval, so the driver was notified.
    assert!(steer["after_s"].as_f64().unwrap() < 300.0, "{steer}");
    let output = project.run(&["steer", &run, "--status"], 0);
    let id = steer["id"].as_str().unwrap();
    let expected = format!("{id}  delivered between turns 1 and 2, ");
    assert!(output.out.starts_with(&expected), "{output:?}");
    assert!(output.out.contains("after you sent the message"), "{output:?}");
    let output = project.run(&["steer", &run, "too late"], 2);
    assert!(
        output.err.contains("the run has already ended: its status is completed"),
        "{output:?}"
    );
    assert!(output.err.contains(&format!("longhaul show {run}")), "{output:?}");
}

#[test]
fn a_queued_message_is_changed_and_withdrawn() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let send = |text: &str| {
        let receipt = project.json(&["steer", &run, text, "--json"]);
        receipt["id"].as_str().unwrap().to_owned()
    };
    let (kept_id, dropped_id) = (send("keep the old name"), send("and the colour"));
    let edit = ["steer", &run, "--edit", &kept_id, "--delivery", "follow_up", "keep", "both"];
    let output = project.run(&edit, 0);
    assert!(output.out.starts_with(&format!("{kept_id}  queued")), "{output:?}");
    assert!(output.out.contains("keep both"), "{output:?}");
    let withdraw_args =
        ["steer", &run, "--withdraw", &dropped_id[dropped_id.len() - 8..], "--json"];
    assert_eq!(project.json(&withdraw_args)["status"], "withdrawn");
    let steers = project.json(&["steer", &run, "--status", "--json"]);
    assert_eq!(steers["data"][0]["text"], "keep both");
    assert_eq!(steers["data"][0]["delivery"], "follow_up");
    for (args, expected) in [
        (&["--withdraw", &dropped_id][..], "already delivered, dropped or withdrawn"),
        (&["--edit", "steer_nothing", "x"], "no message with the id `steer_nothing`"),
        (&["--edit", &kept_id], "required"),
        (&["--withdraw", &kept_id, "x"], "cannot be used with"),
    ] {
        let output = project.run(&[&["steer", &run], args].concat(), 2);
        assert!(output.err.contains(expected), "{args:?}: {output:?}");
    }
    project.run(&["watch", &run], 0);
    let transcript = project.run(&["show", &run, "--transcript"], 0).out;
    assert!(transcript.contains("keep both"), "{transcript}");
    assert!(!transcript.contains("the colour"), "{transcript}");
    project.run(&["steer", &run, "--edit", &kept_id, "too late"], 2);
}

#[test]
fn an_interrupting_message_aborts_the_model_call() {
    let project = Project::new();
    let _worker = project.start_worker();
    let run = project.submit("slow", "milk");
    project
        .wait_until(&run, |run| run["now"].as_str().unwrap().contains("calling the model, turn 1"));
    let output =
        project.run_with_stdin("stop, wrong file", &["steer", &run, "--interrupt", "-"], 0);
    // The worker may have read the message before the command looked.
    let is_at_once = output.out.contains("Will be delivered at once; running calls are aborted.")
        || output.out.contains(&format!("Delivered to {run}, before turn 2."));
    assert!(is_at_once, "{output:?}");
    project
        .wait_until(&run, |run| run["now"].as_str().unwrap().contains("calling the model, turn 2"));
    let steers = project.json(&["steer", &run, "--status", "--json"]);
    assert_eq!(steers["data"][0]["status"], "delivered");
    let steer_args = ["steer", &run, "--delivery", "follow_up", "--json", "at the end"];
    let receipt = project.json(&steer_args);
    assert_eq!(receipt["status"], "queued");
    assert_eq!(receipt["delivery"], "follow_up");
    project.run(&["cancel", &run], 0);
    project.wait_until(&run, has_status("cancelled"));
    let output = project.run(&["steer", &run, "--status"], 0);
    assert!(output.out.contains("not delivered: "), "{output:?}");
}

#[test]
fn undriven_runs_change_status_at_once() {
    let project = Project::new();
    let (first, second) = (project.submit("plain", "a"), project.submit("plain", "b"));
    let output = project.run(&["pause", &first, &second], 0);
    assert_eq!(output.out.matches(" is paused.").count(), 2, "{output:?}");
    let output = project.run(&["pause", &first], 2);
    assert!(output.err.contains("the run is already paused"), "{output:?}");
    let output = project.run(&["resume", &first], 0);
    assert!(output.out.contains(&format!("longhaul watch {first}")), "{output:?}");
    project.run(&["watch", &first], 0);
    let output = project.run(&["cancel", &second, "--reason", "wrong one"], 0);
    assert_eq!(output.out, format!("{second} is cancelled.\n"));
    let events = project.run(&["show", &second, "--events"], 0).out;
    assert!(events.contains("wrong one"), "{events}");
    let output = project.run(&["cancel", &second], 2);
    assert!(output.err.contains(&format!("longhaul show {second}")), "{output:?}");
}

#[test]
fn an_unknown_run_fails_the_whole_command() {
    let project = Project::new();
    let run = project.submit("plain", "a");
    project.run(&["cancel", &run, "run_00000000000000000000000000"], 2);
    project.wait_until(&run, has_status("pending"));
    let json = project.json(&["cancel", &run, &run, "--json"]);
    assert_eq!(json["data"].as_array().unwrap().len(), 1);
    assert_eq!(json["data"][0]["status"], "cancelled");
}

#[test]
fn raising_the_budget_resumes_a_run() {
    let project = Project::new();
    let output = project.run(&["run", "poor", "milk", "--no-input", "--json"], 4);
    let run = output.json();
    assert_eq!(run["reason"], "budget");
    let id = run["id"].as_str().unwrap();
    let why = project.run(&["why", id], 0).out;
    assert!(why.contains(&format!("longhaul resume {id} --budget tokens=")), "{why}");
    let output = project.run(&["resume", id, "--budget", "much"], 2);
    assert!(output.err.contains("write dollars such as 10"), "{output:?}");
    project.run(&["resume", id, "--budget", "tokens=1000000"], 0);
    project.run(&["watch", id], 0);
}

#[test]
fn a_message_that_is_no_valid_answer_says_so() {
    let project = Project::new();
    let run = project.run_until_gate("ask");
    let output = project.run(&["steer", &run, "up"], 0);
    assert!(output.out.contains("does not answer the question gate_"), "{output:?}");
    let receipt = project.json(&["steer", &run, "down", "--json"]);
    let note = receipt["note"].as_str().unwrap();
    assert!(note.contains("the answer must be one of `left`, `right`"), "{note}");
    let receipt = project.json(&["steer", &run, "LEFT", "--json"]);
    assert_eq!(receipt["note"], serde_json::Value::Null);
    project.run(&["watch", &run], 0);
    let journal = project.events(&run);
    let answer_event = journal.iter().find(|event| event["type"] == "gate.answered").unwrap();
    assert_eq!(answer_event["data"]["answer"]["by"], "cli:anna", "{answer_event}");
    assert_eq!(answer_event["data"]["answer"]["decision"]["answer"], "left", "{answer_event}");
}
