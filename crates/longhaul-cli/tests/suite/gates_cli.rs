//! `gates`, `approve`, `reject` and `answer` on the command line.

use std::fs;

use serde_json::{Value, json};

use super::project::{Project, has_status};

/// Fields of the public Gate object.
const GATE_FIELDS: &[&str] = &[
    "id",
    "run",
    "kind",
    "status",
    "ask",
    "reason",
    "tool",
    "input",
    "injected_rule_match_texts",
    "facts",
    "diff",
    "digest",
    "decisions",
    "pattern",
    "scopes",
    "deadline",
    "on_timeout",
    "tags",
    "answers",
    "options",
    "outputs",
    "key",
    "schema",
    "approvers",
    "edited_by",
    "raised_at",
    "agent",
    "task",
];

fn gate_for_run(project: &Project, run: &str) -> Value {
    project.json(&["gates", "show", run, "--json"])
}

fn read_note(project: &Project, title: &str) -> Option<String> {
    let vault = project.path().join(".longhaul/vault/Tasks");
    fs::read_to_string(vault.join(format!("{title}.md"))).ok()
}

#[test]
fn a_gate_has_the_documented_fields_everywhere() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let gate = gate_for_run(&project, &run);
    let mut expected = GATE_FIELDS.to_vec();
    expected.sort_unstable();
    let fields: Vec<&String> = gate.as_object().unwrap().keys().collect();
    let mut fields: Vec<&str> = fields.iter().map(|name| name.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(gate["decisions"], json!(["approve", "edit", "reject"]));
    assert_eq!(gate["input"]["title"], "Buy milk");
    assert_eq!(gate["status"], "open");
    assert_eq!(gate["on_timeout"], "reject");
    for list in ["gates", "approvals"] {
        assert_eq!(project.json(&[list, "--json"])["data"], json!([gate]));
    }
    let id = gate["id"].as_str().unwrap();
    let table = project.run(&["gates", "ls"], 0).out;
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["AGE", "EXPIRES", "GATE", "AGENT", "TASK", "RUN", "ASKS"]);
    assert!(table.contains(id) && table.contains(&run), "{table}");
    let card_text = project.run(&["gates", "show", id], 0).out;
    assert!(card_text.contains("│ title: Buy milk"), "{card_text}");
    assert!(card_text.contains(&format!("longhaul approve {id}")), "{card_text}");
}

#[test]
fn approve_without_a_terminal_needs_yes_or_a_digest() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let gate = gate_for_run(&project, &run);
    let (id, digest) = (gate["id"].as_str().unwrap(), gate["digest"].as_str().unwrap());
    let output = project.run(&["approve", &run], 2);
    for part in [
        "no terminal".to_owned(),
        format!("longhaul approve {id} --digest {}", &digest[..8]),
        format!("longhaul approve {id} --yes"),
    ] {
        assert!(output.err.contains(&part), "{part}: {output:?}");
    }
    project.run_with_stdin("y\n", &["approve", &run], 2);
    for invalid_digest in ["00000000", &digest[..7], "not-hexadecimal", &format!("{digest}00")] {
        let output = project.run(&["approve", &run, "--digest", invalid_digest], 2);
        assert!(output.err.contains("longhaul gates show"), "{output:?}");
    }
    assert_eq!(gate_for_run(&project, &run)["status"], "open");
    assert_eq!(read_note(&project, "Buy milk"), None);
    let output = project.run(&["approve", &run, "--digest", &digest[..8], "--note", "fine"], 0);
    assert!(output.out.starts_with("Approved: vault_write"), "{output:?}");
    assert!(output.out.contains(&format!("digest {}", &digest[..8])), "{output:?}");
    assert!(output.out.contains(&format!("longhaul watch {run}")), "no worker drives: {output:?}");
    project.run(&["watch", &run], 0);
    assert!(read_note(&project, "Buy milk").is_some());
}

#[test]
fn a_second_answer_is_refused_with_who_answered_and_when() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let id = gate_for_run(&project, &run)["id"].as_str().unwrap().to_owned();
    let gate = project.run(&["approve", &id, "--yes", "--json"], 0).json();
    assert_eq!(gate["status"], "answered");
    assert_eq!(gate["answers"][0]["by"], "cli:anna");
    assert_eq!(gate["answers"][0]["decision"], "approve");
    let at = gate["answers"][0]["at"].as_str().unwrap();
    let second = |project: &Project| {
        for args in [&["reject", &id][..], &["approve", &id, "--yes"]] {
            let output = project.run_as("berta", args, 2);
            assert!(output.err.contains("by cli:anna at "), "{output:?}");
            assert!(output.err.contains(at), "{output:?}");
        }
    };
    second(&project);
    project.run(&["watch", &run], 0);
    second(&project);
    let output = project.run(&["approve", &run, "--yes"], 2);
    assert!(output.err.contains("is not waiting for an answer"), "{output:?}");
    let all = project.json(&["gates", "--run", &run, "--all", "--json"]);
    assert_eq!(all["data"][0]["status"], "answered");
    assert_eq!(project.json(&["gates", "--json"])["data"], json!([]));
}

#[test]
fn an_expired_gate_takes_no_answer() {
    let project = Project::new();
    let _worker = project.start_worker();
    let run = project.submit("hasty", "milk");
    // The gate is open for one second only, which a slow machine may miss.
    project.wait_until(&run, has_status("completed"));
    let gates = project.json(&["gates", "--run", &run, "--all", "--json"]);
    let id = gates["data"][0]["id"].as_str().unwrap().to_owned();
    let output = project.run(&["approve", &id, "--yes"], 2);
    assert!(output.err.contains("has expired"), "{output:?}");
    assert_eq!(gate_for_run(&project, &id)["status"], "expired");
    assert_eq!(read_note(&project, "Late"), None);
}

#[test]
fn a_rejection_reaches_the_model_with_its_note() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let output = project.run(&["reject", &run, "--note", "not on a Friday"], 0);
    assert!(output.out.starts_with("Rejected: vault_write"), "{output:?}");
    let output = project.run(&["watch", &run], 0);
    assert!(output.out.contains("not on a Friday"), "{output:?}");
    assert_eq!(read_note(&project, "Buy milk"), None);
}

#[test]
fn an_approval_of_a_result_can_carry_data() {
    let project = Project::new();
    let run = project.run_until_gate("planner");
    let output = project.run(&["approve", &run, "--yes", "--payload", "{"], 2);
    assert!(output.err.contains("--payload is not valid JSON"), "{output:?}");
    let data = r#"{"action":"create_pr"}"#;
    project.run(&["approve", &run, "--yes", "--note", "ship", "--payload", data], 0);
    project.run(&["watch", &run], 0);
    let action = json!({ "action": "create_pr" });
    let shown = project.json(&["show", &run, "--json"]);
    assert_eq!(shown["output"]["answer"]["payload"], action, "{shown}");
    let gates = project.json(&["gates", "--run", &run, "--all", "--json"]);
    assert_eq!(gates["data"][0]["answers"][0]["payload"], action, "{gates}");
    let gate = gates["data"][0]["id"].as_str().unwrap();
    for args in [&["show", &run][..], &["gates", "show", gate]] {
        let output = project.run(args, 0);
        assert!(output.out.contains(&format!(": ship   data {data}")), "{output:?}");
    }
}

#[test]
fn an_edited_input_is_validated_and_used() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    for (edit, expected) in [("{", "is not valid JSON"), ("{\"folder\": 7}", "folder")] {
        let output = project.run(&["approve", &run, "--yes", "--edit", edit], 2);
        assert!(output.err.contains(expected), "{output:?}");
    }
    let input = r#"{"folder":"Tasks","title":"Buy bread","content":"b","tags":[],"confidence":9}"#;
    project.run_with_stdin(input, &["approve", &run, "--edit", "-"], 2);
    let output = project.run_with_stdin(input, &["approve", &run, "--yes", "--edit", "-"], 0);
    assert!(output.out.starts_with("Approved with your change"), "{output:?}");
    project.run(&["watch", &run], 0);
    assert!(read_note(&project, "Buy bread").is_some());
    assert_eq!(read_note(&project, "Buy milk"), None);
}

#[test]
fn an_edit_must_be_approved_by_both_approvers() {
    let project = Project::new();
    let run = project.run_until_gate("twice");
    let first = gate_for_run(&project, &run)["digest"].clone();
    let input = r#"{"folder":"Tasks","title":"Changed","content":"b","tags":[],"confidence":9}"#;
    let output = project.run(&["approve", &run, "--yes", "--edit", input], 0);
    assert!(output.out.contains("1 of 2 people have agreed"), "{output:?}");
    let gate = gate_for_run(&project, &run);
    assert_eq!(gate["input"]["title"], "Changed", "the edited input is shown");
    assert_ne!(gate["digest"], first);
    let card_text = project.run(&["gates", "show", &run], 0).out;
    assert!(
        card_text.contains("title: Changed") && card_text.contains("changed by cli:anna"),
        "{card_text}"
    );
    let output = project.run(&["approve", &run, "--yes"], 2);
    assert!(output.err.contains("cli:anna has already answered this gate"), "{output:?}");
    let old_digest = first.as_str().unwrap();
    project.run_as("berta", &["approve", &run, "--digest", old_digest], 2);
    project.run_as("berta", &["approve", &run, "--yes"], 0);
    project.run(&["watch", &run], 0);
    assert!(read_note(&project, "Changed").is_some() && read_note(&project, "Two").is_none());
}

#[test]
fn questions_are_answered_with_text() {
    let project = Project::new();
    for (agent, kind) in [("ask", "question"), ("stuck", "blocked")] {
        let run = project.run_until_gate(agent);
        assert_eq!(gate_for_run(&project, &run)["kind"], kind);
        let output = project.run(&["approve", &run, "--yes"], 2);
        assert!(output.err.contains("longhaul answer gate_"), "{output:?}");
        project.run(&["answer", &run, " "], 2);
        let output = project.run(&["answer", &run], 2);
        assert!(output.err.contains("longhaul answer gate_"), "{output:?}");
        let output = project.run(&["answer", &run, "left"], 0);
        assert!(output.out.starts_with("Answered: "), "{output:?}");
        let output = project.run(&["watch", &run], 0);
        assert!(output.out.contains("left"), "{output:?}");
    }
    let run = project.run_until_gate("ask");
    let output = project.run(&["answer", &run, "to", "the", "left"], 2);
    assert!(output.err.contains("the answer must be one of `left`, `right`"), "{output:?}");
    let run = project.run_until_gate("tidy");
    let output = project.run(&["answer", &run, "yes"], 2);
    assert!(output.err.contains("valid decisions: approve, edit, reject"), "{output:?}");
}

#[test]
fn signals_are_completed_with_data() {
    let project = Project::new();
    let _worker = project.start_worker();
    let submitted = project.json(&["submit", "waiter", "milk", "--json"]);
    let run = submitted["id"].as_str().unwrap();
    project.wait_until(run, |shown| shown["status"] == "waiting");
    let gates = project.json(&["gates", "--tag", "deployed", "--json"]);
    let gate = gates["data"][0]["id"].as_str().unwrap();
    assert_eq!(project.json(&["gates", "--tag", "other", "--json"])["data"], json!([]));
    let output = project.run(&["gates"], 0);
    assert!(output.err.contains("longhaul gates complete GATE"), "{output:?}");
    let output = project.run(&["gates", "show", gate], 0);
    assert!(output.out.contains(&format!("longhaul gates complete {gate}")), "{output:?}");
    let data = r#"{"build":7}"#;
    let output = project.run(&["gates", "complete", gate, "--payload", data], 0);
    assert!(output.out.starts_with("Completed: "), "{output:?}");
    let output = project.run(&["watch", run], 0);
    assert!(output.out.contains(data), "{output:?}");
}

#[test]
fn forms_are_answered_with_json() {
    let project = Project::new();
    let run = project.run_until_gate("form");
    let gate = gate_for_run(&project, &run)["id"].as_str().unwrap().to_owned();
    let output = project.run(&["gates", "show", &gate], 0);
    for expected in ["- city (a text)", "- people (a whole number, default 2)", "--answer '{...}'"]
    {
        assert!(output.out.contains(expected), "{expected}: {output:?}");
    }
    for (answer, expected) in [
        ("{", "--answer is not valid JSON"),
        (r#"{"people": 1}"#, "`city` is missing"),
        (r#"{"city": 7}"#, "`city` must be a text"),
    ] {
        let output = project.run(&["answer", &run, "--answer", answer], 2);
        assert!(output.err.contains(expected), "{output:?}");
    }
    project.run(&["answer", &run, "--answer", r#"{"city": "Bern"}"#], 0);
    let output = project.run(&["watch", &run], 0);
    assert!(output.out.contains(r#"Going: {"city":"Bern","people":2}"#), "{output:?}");
}

#[test]
fn the_submitter_can_be_barred_from_approving() {
    let project = Project::new();
    let run = project.run_until_gate("foreign");
    let output = project.run(&["approve", &run, "--yes"], 6);
    assert!(output.err.contains("may not approve"), "{output:?}");
    project.run_as("berta", &["approve", &run, "--yes"], 0);
    let run = project.run_until_gate("tidy");
    let output = project.run(&["approve", &run, "--yes", "--for", "run"], 0);
    assert!(output.out.starts_with("Approved for this run"), "{output:?}");
}

#[test]
fn a_resume_says_that_a_gate_still_waits() {
    let project = Project::new();
    for (agent, command) in [("tidy", "longhaul approve"), ("ask", "longhaul answer gate_")] {
        let run = project.run_until_gate(agent);
        let output = project.run(&["resume", &run], 0);
        assert!(output.out.contains("still waits"), "{output:?}");
        assert!(output.out.contains(command), "{output:?}");
    }
    let form = project.run_until_gate("form");
    let why = project.json(&["why", &form, "--json"]);
    assert!(why["command"].as_str().unwrap().ends_with("--answer '{...}'"), "{why}");
}
