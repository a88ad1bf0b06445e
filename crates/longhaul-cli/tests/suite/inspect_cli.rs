//! `ls`, `show`, `watch` and `why` on the command line.

use std::collections::BTreeSet;

use serde_json::Value;

use super::project::{Project, has_status};

/// Fields of the public Run object.
const RUN_FIELDS: &[&str] = &[
    "active_ms",
    "actor",
    "agent",
    "agent_version",
    "attempt",
    "batch",
    "budget",
    "chain",
    "context",
    "cost_usd",
    "created_at",
    "epoch",
    "error",
    "finished_at",
    "gates",
    "id",
    "inbox",
    "input",
    "lane",
    "links",
    "metadata",
    "model",
    "now",
    "output",
    "parent",
    "priority",
    "reason",
    "resource",
    "retries",
    "retry_of",
    "root",
    "sandbox",
    "started_at",
    "status",
    "tags",
    "thread",
    "tools_called",
    "turns",
    "type",
    "usage",
    "waiting_ms",
];

fn field_names(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn an_empty_project_is_reported_and_no_store_is_created() {
    let project = Project::new();
    let output = project.run(&["ls"], 0);
    assert_eq!(output.out, "");
    assert!(output.err.contains("no runs here yet"), "{output:?}");
    let output = project.run(&["ls", "--json"], 0);
    assert_eq!(output.out, "{\"data\":[],\"next\":null}\n");
    let output = project.run(&["gates", "--json"], 0);
    assert_eq!(output.out, "{\"data\":[],\"next\":null}\n");
    for args in [&["show", "@last"][..], &["why", "@last"], &["watch", "@last"]] {
        let output = project.run(args, 2);
        assert!(output.err.contains("there are no runs here yet"), "{output:?}");
    }
    assert!(!project.path().join(".longhaul").exists());
}

#[test]
fn every_command_prints_the_same_run_object() {
    let project = Project::new();
    let run = project.run(&["run", "plain", "milk", "--json"], 0).json();
    let id = run["id"].as_str().unwrap();
    let expected: BTreeSet<&str> = RUN_FIELDS.iter().copied().collect();
    assert_eq!(field_names(&run), expected);
    let json = project.json(&["show", id, "--json"]);
    assert_eq!(json, run);
    assert_eq!(project.json(&["ls", "--json"])["data"][0], run);
    let submitted = project.json(&["submit", "plain", "bread", "--json"]);
    assert_eq!(field_names(&submitted), expected);
    assert_eq!(submitted["status"], "pending");
    assert_eq!(run["output"]["text"], "Done: milk");
    assert_eq!(run["error"], Value::Null);
    for name in ["created_at", "started_at", "finished_at"] {
        let at = run[name].as_str().unwrap();
        assert_eq!(at.len(), "2026-11-15T07:01:16.112213Z".len(), "{at}");
    }
    assert_eq!(field_names(&run["usage"]).len(), 4, "{run}");
}

#[test]
fn ls_filters_and_prints_the_total() {
    let project = Project::new();
    for input in ["one", "two", "three"] {
        project.run(&["run", "plain", input], 0);
    }
    project.run(&["submit", "slow", "x", "--lane", "docs"], 0);
    let run_json = project.run(&["run", "plain", "four", "--json"], 0).json();
    for (args, count) in [
        (&["--all"][..], 5),
        (&["--limit", "2"], 2),
        (&["--agent", "slow"], 1),
        (&["--lane", "docs"], 1),
        (&["--agent", "nobody"], 0),
        (&["--status", "completed", "--status", "failed"], 4),
        (&["--limit", "2", "--after", "@last"], 2),
    ] {
        let args = [&["ls", "--json"], args].concat();
        let data = project.json(&args)["data"].clone();
        assert_eq!(data.as_array().unwrap().len(), count, "{args:?}");
    }
    let first = project.json(&["ls", "--json", "--limit", "2"]);
    assert_eq!(first["data"][0], run_json, "newest first");
    let next = first["next"].as_str().unwrap();
    let rest = project.json(&["ls", "--json", "--after", next]);
    assert_eq!(rest["data"].as_array().unwrap().len(), 3);
    assert_eq!(rest["next"], Value::Null);
    let output = project.run(&["ls", "--limit", "2"], 0);
    for part in ["2 shown; more: longhaul ls --all", "5 runs in the store, $0.00"] {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
    let lines: Vec<&str> = output.out.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    let expected = ["RUN", "WHEN", "AGENT", "STATE", "TASK", "PROGRESS", "COST"];
    assert_eq!(head, expected);
    let first: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(first[0], run_json["id"], "ids are whole without a terminal");
    assert_eq!(first[1], run_json["created_at"], "times are absolute without a terminal");
    assert_eq!(first[2..6], ["plain", "✓", "completed", "four"], "{output:?}");
    assert!(!output.out.contains('\u{1b}'), "no colour without a terminal");
    let output = project.run(&["ls", "--status", "done"], 2);
    assert!(output.err.contains("possible values: pending"), "{output:?}");
}

#[test]
fn show_prints_a_summary_a_transcript_and_events() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let page = project.run(&["show", &run], 0).out;
    for part in [
        "tidy  ▲ waiting: you",
        "The run waits for an approval: Write a note?",
        &format!("longhaul approve {run}"),
        "$0.00 (scripted)",
        "tools     vault_write",
        "model     scripted/tidy",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    project.run(&["approve", &run, "--yes"], 0);
    let output = project.run(&["watch", &run], 0);
    assert!(output.out.starts_with("Done: Created"), "{output:?}");
    let page = project.run(&["show", &run], 0).out;
    assert!(page.contains("✓ completed") && page.contains("Done: Created"), "{page}");
    let transcript = project.run(&["show", &run, "--transcript"], 0).out;
    for part in
        ["system:\n  You.", "user:\n  milk", "assistant calls vault_write:", "result of t1.1:"]
    {
        assert!(transcript.contains(part), "{part}: {transcript}");
    }
    let transcript = project.json(&["show", &run, "--transcript", "--json"]);
    let system = transcript["system"].as_str().unwrap();
    assert!(system.starts_with("You.\n\n## Current state\n"), "{system}");
    assert_eq!(transcript["messages"].as_array().unwrap().len(), 4, "{transcript}");
    let events = project.events(&run);
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
    let lines = project.run(&["show", &run, "--events"], 0).out;
    assert_eq!(lines.lines().count(), events.len());
    assert!(lines.contains("gate.answered        approved, by cli:anna"), "{lines}");
    project.run(&["show", &run, "--events", "--transcript"], 2);
}

#[test]
fn watch_starts_after_an_event_and_exits_like_the_run() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let lines = project.run(&["watch", &run, "--json"], 0).out;
    let count = lines.lines().count();
    assert_eq!(count, project.events(&run).len());
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["run"], run.as_str());
    }
    let rest = project.run(&["watch", &run, "--json", "--after", "3"], 0).out;
    assert_eq!(rest.lines().count(), count - 3);
    assert!(lines.ends_with(&rest));
    let run = project.run_until_gate("tidy");
    let last = project.events(&run).len().to_string();
    let output = project.run(&["watch", &run, "--no-input", "--after", &last], 3);
    assert!(output.err.contains("waits for an approval"), "{output:?}");
    project.run(&["cancel", &run], 0);
    let output = project.run(&["watch", &run], 7);
    assert!(output.err.contains("cancelled"), "{output:?}");
}

#[test]
fn why_prints_a_message_and_a_command() {
    let project = Project::new();
    let asking_run = project.run_until_gate("ask");
    let stuck = project.run_until_gate("stuck");
    let pending = project.submit("plain", "milk");
    for (run, status, message, command) in [
        (&asking_run, "waiting", "Left or right?", "longhaul answer gate_"),
        (&stuck, "blocked", "no key for the door", "longhaul answer gate_"),
        (&pending, "pending", "No worker drives the run now.", "longhaul watch run_"),
    ] {
        let why = project.json(&["why", run, "--json"]);
        assert_eq!(why["status"], status);
        let stdout = project.run(&["why", run], 0).out;
        let lines: Vec<&str> = stdout.lines().collect();
        assert!(lines[0].contains(message), "{stdout}");
        assert!(lines[1].trim_start().starts_with(command), "{stdout}");
        assert_eq!(why["command"], lines[1].trim());
        assert_eq!(why["message"], lines[0]);
    }
    let _worker = project.start_worker();
    project.wait_until(&pending, has_status("completed"));
    let why = project.json(&["why", &pending, "--json"]);
    assert_eq!(why["message"], "The run completed.");
}

#[test]
fn text_of_a_model_is_escaped_on_the_terminal() {
    let project = Project::new();
    let run = project.run_until_gate("evil");
    for args in [
        &["show", &run][..],
        &["show", &run, "--transcript"],
        &["show", &run, "--events"],
        &["gates", "show", &run],
        &["gates"],
        &["ls"],
        &["approve", &run, "--yes"],
        &["watch", &run],
    ] {
        let output = project.run(args, 0);
        let all = [output.out, output.err].concat();
        assert!(!all.contains('\u{1b}') && !all.contains('\u{202e}'), "{args:?}: {all}");
    }
}

#[test]
fn hints_below_the_list_also_count_runs_that_are_not_shown() {
    let project = Project::new();
    project.run_until_gate("tidy");
    project.submit("plain", "bread");
    project.run(&["run", "plain", "wine"], 0);
    let output = project.run(&["ls", "--limit", "1"], 0);
    for hint in [
        "1 shown; more: longhaul ls --all",
        "3 runs in the store",
        "1 waits for you, 0 failed: longhaul ls --mine",
        "No worker is running",
    ] {
        assert!(output.err.contains(hint), "{output:?}");
    }
}
