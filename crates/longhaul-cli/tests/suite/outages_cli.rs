//! A provider that is unavailable or refuses the key of a run, from the HTTP response to the commands
//! that people use: the run keeps its work and continues.

use std::cell::RefCell;

use serde_json::Value;

use super::project::{Project, has_status};
use super::server_harness::TestServer;

/// A project with an agent `buyer` whose model is served by a mock provider with this script.
fn project_with_mock(script: &str) -> (Project, TestServer) {
    let project = Project::new();
    project.write("scripts/buy.yaml", script);
    project.write("agents/buyer.md", "---\nmodel: far/buy\ntools: [vault_list]\n---\nBuy.\n");
    let listen = ["mock-model", "--listen", "127.0.0.1:0", "--until-eof"];
    let mock = TestServer::from_command(project.command(&listen));
    let provider =
        format!("[providers.far]\napi = \"chat\"\nbase_url = \"http://{}/v1\"\n", mock.address());
    // In the user's own file, because a project that names a provider would need trust.
    project.write(".config/longhaul/longhaul.toml", &provider);
    (project, mock)
}

fn count_events(project: &Project, run: &str, kind: &str) -> usize {
    project.events(run).iter().filter(|event| event["type"] == kind).count()
}

#[test]
fn a_run_survives_a_provider_that_answers_503_for_a_while() {
    let (project, _mock) = project_with_mock(
        "replies:\n- text: Looking.\n  tools: [{ name: vault_list, input: {} }]\n\
         - error: { status: 503, times: 5 }\n  text: Bought.\n",
    );
    let run = project.submit("buyer", "milk");
    let _worker = project.start_worker();
    // `resume` skips the waits, so that the test does not take as long as the outage.
    for failures in 1..=5 {
        let is_waiting = |view: &Value| view["status"] == "waiting";
        project.wait_until(&run, |view| {
            is_waiting(view) && count_events(&project, &run, "turn.failed") == failures
        });
        if failures < 5 {
            project.run(&["resume", &run], 0);
        }
    }
    // Polls, because the timer of a quick retry that `resume` skipped still fires, and wakes the run
    // for a moment.
    let why = RefCell::new(String::new());
    project.wait_until(&run, |view| {
        assert_ne!(view["status"], "completed", "the wait ended without `resume`");
        *why.borrow_mut() = project.run(&["why", &run], 0).out;
        view["reason"] == "outage" && !why.borrow().contains("about to call the model")
    });
    let why = why.into_inner();
    for part in ["unavailable (overloaded) since 20", "next attempt is at 20", "longhaul resume"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let output = project.run(&["watch", &run, "--no-input", "-q"], 3);
    assert!(output.err.contains("The provider is unavailable (overloaded)"), "{output:?}");
    assert!(output.err.contains(&format!("longhaul resume {run}")), "{output:?}");
    project.run(&["resume", &run], 0);
    let done = project.wait_until(&run, has_status("completed"));
    assert_eq!(done["output"]["text"], "Bought.", "{done}");
    assert_eq!(count_events(&project, &run, "tool.started"), 1, "no effect is repeated");
}

#[test]
fn a_run_whose_key_is_refused_continues_after_resume() {
    let (project, _mock) = project_with_mock(
        "replies:\n- text: Looking.\n  tools: [{ name: vault_list, input: {} }]\n\
         - error: { status: 401, times: 1 }\n  text: Bought.\n",
    );
    let output = project.run(&["run", "buyer", "milk", "--no-input", "--json"], 3);
    let run = output.json()["id"].as_str().unwrap().to_owned();
    let why = project.json(&["why", &run, "--json"]);
    assert_eq!(why["status"], "blocked", "{why}");
    assert_eq!(why["command"], format!("longhaul resume {run}"));
    let message = why["message"].as_str().unwrap();
    assert!(message.contains("far answered 401") && message.contains("key"), "{message}");
    project.run(&["resume", &run], 0);
    let _worker = project.start_worker();
    let done = project.wait_until(&run, has_status("completed"));
    assert_eq!(done["output"]["text"], "Bought.", "{done}");
    assert_eq!(count_events(&project, &run, "tool.started"), 1, "no effect is repeated");
}
