//! `gates`, `approve`, `reject` and `answer` as people and scripts meet them.

use std::fs;

use serde_json::{Value, json};

use super::project::{Project, has_status};

/// The Gate object of the public surface, field by field.
const GATE_FIELDS: &[&str] = &[
    "id",
    "run",
    "kind",
    "status",
    "ask",
    "reason",
    "tool",
    "input",
    "injected_subjects",
    "facts",
    "diff",
    "digest",
    "decisions",
    "pattern",
    "deadline",
    "on_timeout",
    "tags",
    "answers",
    "options",
    "approvers",
    "edited_by",
    "raised_at",
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
    let mut wanted = GATE_FIELDS.to_vec();
    wanted.sort_unstable();
    let fields: Vec<&String> = gate.as_object().unwrap().keys().collect();
    let mut fields: Vec<&str> = fields.iter().map(|name| name.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, wanted);
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
    assert_eq!(head, ["AGE", "EXPIRES", "RUN", "GATE", "ASKS"]);
    assert!(table.contains(id) && table.contains(&run), "{table}");
    let card = project.run(&["gates", "show", id], 0).out;
    assert!(card.contains("│ title: Buy milk"), "{card}");
    assert!(card.contains(&format!("longhaul approve {id}")), "{card}");
}

#[test]
fn approve_without_a_terminal_needs_yes_or_a_digest() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let gate = gate_for_run(&project, &run);
    let (id, digest) = (gate["id"].as_str().unwrap(), gate["digest"].as_str().unwrap());
    let said = project.run(&["approve", &run], 2);
    for part in [
        "no terminal".to_owned(),
        format!("longhaul approve {id} --digest {}", &digest[..8]),
        format!("longhaul approve {id} --yes"),
    ] {
        assert!(said.err.contains(&part), "{part}: {said:?}");
    }
    project.run_with_stdin("y\n", &["approve", &run], 2);
    for wrong in ["00000000", &digest[..7], "not-hexadecimal", &format!("{digest}00")] {
        let said = project.run(&["approve", &run, "--digest", wrong], 2);
        assert!(said.err.contains("longhaul gates show"), "{said:?}");
    }
    assert_eq!(gate_for_run(&project, &run)["status"], "open");
    assert_eq!(read_note(&project, "Buy milk"), None);
    let said = project.run(&["approve", &run, "--digest", &digest[..8], "--note", "fine"], 0);
    assert!(said.out.starts_with("Approved: vault_write"), "{said:?}");
    assert!(said.out.contains(&format!("digest {}", &digest[..8])), "{said:?}");
    assert!(said.out.contains(&format!("longhaul watch {run}")), "nobody drives: {said:?}");
    project.run(&["watch", &run], 0);
    assert!(read_note(&project, "Buy milk").is_some());
}

#[test]
fn a_second_answer_is_refused_with_who_answered_and_when() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let id = gate_for_run(&project, &run)["id"].as_str().unwrap().to_owned();
    let answered = project.run(&["approve", &id, "--yes", "--json"], 0).json();
    assert_eq!(answered["status"], "answered");
    assert_eq!(answered["answers"][0]["by"], "cli:anna");
    assert_eq!(answered["answers"][0]["decision"], "approve");
    let at = answered["answers"][0]["at"].as_str().unwrap();
    let second = |project: &Project| {
        for args in [&["reject", &id][..], &["approve", &id, "--yes"]] {
            let said = project.run_as("berta", args, 2);
            assert!(said.err.contains("by cli:anna at "), "{said:?}");
            assert!(said.err.contains(at), "{said:?}");
        }
    };
    second(&project);
    project.run(&["watch", &run], 0);
    second(&project);
    let said = project.run(&["approve", &run, "--yes"], 2);
    assert!(said.err.contains("waits for no answer"), "{said:?}");
    let all = project.json(&["gates", "--run", &run, "--all", "--json"]);
    assert_eq!(all["data"][0]["status"], "answered");
    assert_eq!(project.json(&["gates", "--json"])["data"], json!([]));
}

#[test]
fn an_expired_gate_takes_no_answer() {
    let project = Project::new();
    let _worker = project.start_worker();
    let run = project.submit("hasty", "milk");
    // It waits for a second only, which a slow machine may never see.
    project.wait_until(&run, has_status("completed"));
    let gates = project.json(&["gates", "--run", &run, "--all", "--json"]);
    let id = gates["data"][0]["id"].as_str().unwrap().to_owned();
    let said = project.run(&["approve", &id, "--yes"], 2);
    assert!(said.err.contains("has expired"), "{said:?}");
    assert_eq!(gate_for_run(&project, &id)["status"], "expired");
    assert_eq!(read_note(&project, "Late"), None);
}

#[test]
fn a_rejection_reaches_the_model_with_its_note() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let said = project.run(&["reject", &run, "--note", "not on a Friday"], 0);
    assert!(said.out.starts_with("Rejected: vault_write"), "{said:?}");
    let said = project.run(&["watch", &run], 0);
    assert!(said.out.contains("not on a Friday"), "{said:?}");
    assert_eq!(read_note(&project, "Buy milk"), None);
}

#[test]
fn an_edited_input_is_validated_and_used() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    for (edit, why) in [("{", "is no JSON"), ("{\"folder\": 7}", "folder")] {
        let said = project.run(&["approve", &run, "--yes", "--edit", edit], 2);
        assert!(said.err.contains(why), "{said:?}");
    }
    let input = r#"{"folder":"Tasks","title":"Buy bread","content":"b","tags":[],"confidence":9}"#;
    project.run_with_stdin(input, &["approve", &run, "--edit", "-"], 2);
    let said = project.run_with_stdin(input, &["approve", &run, "--yes", "--edit", "-"], 0);
    assert!(said.out.starts_with("Approved with your change"), "{said:?}");
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
    let said = project.run(&["approve", &run, "--yes", "--edit", input], 0);
    assert!(said.out.contains("1 of 2 have agreed"), "{said:?}");
    let gate = gate_for_run(&project, &run);
    assert_eq!(gate["input"]["title"], "Changed", "what is agreed to is shown");
    assert_ne!(gate["digest"], first);
    let card = project.run(&["gates", "show", &run], 0).out;
    assert!(card.contains("title: Changed") && card.contains("changed by cli:anna"), "{card}");
    let said = project.run(&["approve", &run, "--yes"], 2);
    assert!(said.err.contains("cli:anna has answered this gate already"), "{said:?}");
    let old = first.as_str().unwrap();
    project.run_as("berta", &["approve", &run, "--digest", old], 2);
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
        let said = project.run(&["approve", &run, "--yes"], 2);
        assert!(said.err.contains("longhaul answer gate_"), "{said:?}");
        project.run(&["answer", &run, " "], 2);
        let said = project.run(&["answer", &run, "to", "the", "left"], 0);
        assert!(said.out.starts_with("Answered: "), "{said:?}");
        let said = project.run(&["watch", &run], 0);
        assert!(said.out.contains("to the left"), "{said:?}");
    }
    let run = project.run_until_gate("tidy");
    let said = project.run(&["answer", &run, "yes"], 2);
    assert!(said.err.contains("it takes approve, edit or reject"), "{said:?}");
}

#[test]
fn the_submitter_can_be_barred_from_approving() {
    let project = Project::new();
    let run = project.run_until_gate("foreign");
    let said = project.run(&["approve", &run, "--yes"], 6);
    assert!(said.err.contains("may not approve"), "{said:?}");
    project.run_as("berta", &["approve", &run, "--yes"], 0);
    let run = project.run_until_gate("tidy");
    let said = project.run(&["approve", &run, "--yes", "--for", "run"], 0);
    assert!(said.out.starts_with("Approved for this run"), "{said:?}");
}
