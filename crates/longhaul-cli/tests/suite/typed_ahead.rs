//! What was typed at a terminal before a question does not answer it.

use std::process::Command;

use serde_json::json;

use super::fake_server::{FakeServer, event_stream};
use super::project::Project;
use super::terminal::run_at_terminal;

/// A project with an agent `held`, which asks for an approval after a named pipe was opened.
fn project_with_held_agent() -> (Project, FakeServer) {
    let project = Project::new();
    let pipe = project.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let model = FakeServer::new(move |_| {
        // An error means that the test is over.
        _ = std::fs::read(&pipe);
        let note =
            json!({ "folder": "Tasks", "title": "A", "content": "a", "tags": [], "confidence": 9 });
        let call = json!({ "name": "vault_write", "arguments": note.to_string() });
        let call = json!({ "index": 0, "id": "c1", "type": "function", "function": call });
        let first = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] });
        let last =
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });
        event_stream(&format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n"))
    });
    let url = &model.url;
    let provider =
        format!("[providers.held]\napi = \"chat\"\nbase_url = \"{url}/v1\"\nkey_env = []\n");
    project.write(".config/longhaul/longhaul.toml", &provider);
    project.write(
        "agents/held.md",
        "---\nmodel: held/x\ntools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write?' }\n---\nYou.\n",
    );
    (project, model)
}

#[test]
fn a_line_typed_while_the_agent_works_is_a_message() {
    let (project, _model) = project_with_held_agent();
    for term in ["dumb", "xterm"] {
        let steps = [("run_", "now:a\n"), ("cli: a", "open:pipe"), ("d detach", "d\n")];
        let env = [("TERM", term)];
        let (screen, code) = run_at_terminal(project.path(), &["run", "held", "x"], &env, &steps);
        assert_eq!(code, Some(130), "{screen}");
        let run = project.json(&["show", "@last", "--json"]);
        assert_eq!(run["reason"], "approval", "{screen}");
    }
    // A pasted block is one message.
    let steps = [
        ("run_", "now:\x1b[200~one\ntwo\x1b[201~\r"),
        ("cli: one", "open:pipe"),
        ("d detach", "d\n"),
    ];
    run_at_terminal(project.path(), &["run", "held", "x"], &[("TERM", "xterm")], &steps);
    let events = project.run(&["show", "@last", "--events", "--json"], 0).out;
    assert!(events.contains(r#""text":"one\ntwo""#), "{events}");
    // An approval that is typed after the question counts.
    let steps = [("s TEXT steer", "a\n"), ("approved", "open:pipe"), ("s TEXT steer", "d\n")];
    let (screen, _) = run_at_terminal(project.path(), &["watch", "@last"], &[], &steps);
    assert!(screen.contains("approved, by cli"), "{screen}");
}

#[test]
fn a_line_typed_before_a_command_asks_is_no_answer() {
    let project = Project::new();
    let tidy = project.run_until_gate("tidy");
    let steps = [("", "now:y\n"), ("approve? [y/N]", "n\n")];
    let (screen, code) = run_at_terminal(project.path(), &["approve", &tidy], &[], &steps);
    assert_eq!(code, Some(3), "{screen}");
    assert!(screen.contains("Not approved"), "{screen}");
    let steps = [("approve? [y/N]", "y\n")];
    let (screen, code) = run_at_terminal(project.path(), &["approve", &tidy], &[], &steps);
    assert_eq!(code, Some(0), "{screen}");
    let form = project.run_until_gate("form");
    let steps = [("", "now:Rome\n"), ("city (a text):", "Bern\n"), ("default 2):", "3\n")];
    let (screen, code) = run_at_terminal(project.path(), &["answer", &form], &[], &steps);
    assert_eq!(code, Some(0), "{screen}");
    let output = project.run(&["watch", &form], 0).out;
    assert!(output.contains("Bern") && output.contains('3'), "{output}");
}
