//! Gates that have expired, and runs that stay open for messages, at the terminal and without one.

use super::project::{Project, has_status};
use super::terminal::run_at_terminal;

#[test]
fn an_expired_gate_offers_no_decision_and_is_closed_by_the_next_driver() {
    let project = Project::new();
    for _ in 0..3 {
        let run = project.run_until_gate("hasty");
        let gate = project.json(&["gates", "--run", &run, "--json"])["data"][0]["id"].clone();
        let gate = gate.as_str().unwrap();
        // No worker runs, so nobody closes the gate.
        project.wait_until(&run, |run| run["now"].as_str().unwrap().contains("has expired"));
        let shown = project.json(&["gates", "show", gate, "--json"]);
        assert_eq!(shown["status"], "expired", "{shown}");
        for args in [&["why", &run][..], &["show", &run], &["gates", "show", gate], &["ls"]] {
            let output = project.run(args, 0).out;
            assert!(output.contains("expired"), "{args:?}: {output}");
            assert!(!output.contains("longhaul approve"), "{args:?}: {output}");
        }
        let output = project.run(&["approve", gate, "--yes"], 2);
        assert!(output.err.contains("expired"), "{output:?}");
        let output = project.run(&["watch", &run, "--no-input"], 0);
        assert!(output.out.starts_with("Done: "), "{output:?}");
    }
}

fn session_project() -> Project {
    let project = Project::new();
    let agent = "---\nmodel: scripted/session\nkeep_open: 1h\ntools: []\n---\nYou.\n";
    project.write("agents/session.md", agent);
    project.write("scripts/session.yaml", "replies:\n- text: First.\n- text: Second.\n");
    project
}

#[test]
fn a_session_without_a_terminal_ends_with_its_result() {
    let project = session_project();
    for options in [&[][..], &["--no-input"]] {
        let output = project.run(&[&["run", "session", "x"], options].concat(), 0);
        assert_eq!(output.out, "First.\n", "{output:?}");
        assert!(output.err.contains("longhaul steer run_"), "{output:?}");
        let run = project.json(&["show", "@last", "--json"]);
        assert_eq!(run["reason"], "message", "{run}");
        assert_eq!(run["output"]["text"], "First.", "{run}");
        let run = run["id"].as_str().unwrap();
        let output = project.run(&["steer", run, "more"], 0).out;
        assert!(output.contains("stays open for a message until 20"), "{output}");
        assert!(output.contains("Will be delivered at once, before turn 2."), "{output}");
        let output = project.run(&["watch", run, "--no-input"], 0);
        assert_eq!(output.out, "Second.\n", "{output:?}");
    }
}

#[test]
fn a_session_at_a_terminal_takes_messages() {
    let project = session_project();
    let steps = [("type a message", "and then?\r"), ("type a message", "d\r")];
    let (screen, code) = run_at_terminal(project.path(), &["run", "session", "x"], &[], &steps);
    assert_eq!(code, Some(130), "{screen}");
    let (first, rest) = screen.split_once("First.\n").unwrap();
    assert!(!first.contains("Second."), "{screen}");
    assert_eq!(rest.matches("\nSecond.\n").count(), 1, "{screen}");
    assert_eq!(screen.matches("type a message").count(), 2, "{screen}");
    let run = project.wait_until("@last", has_status("waiting"));
    let run = run["id"].as_str().unwrap();
    let transcript = project.run(&["show", run, "--transcript"], 0).out;
    assert!(transcript.contains("and then?"), "{transcript}");
}

#[test]
fn an_open_session_is_closed_with_its_result() {
    let project = session_project();
    project.run(&["run", "session", "x", "--no-input"], 0);
    let closed = project.run(&["close", "@last"], 0);
    assert!(closed.out.contains(" is completed."), "{closed:?}");
    let run = project.json(&["show", "@last", "--json"]);
    assert_eq!((&run["status"], &run["output"]["text"]), (&"completed".into(), &"First.".into()));
    let again = project.run(&["close", "@last"], 2);
    assert!(again.err.contains("has already ended: its status is completed"), "{again:?}");
    let pending = project.submit("session", "y");
    let refused = project.run(&["close", &pending], 2);
    assert!(refused.err.contains("(`keep_open`) can be closed"), "{refused:?}");
    assert!(refused.err.contains(&format!("longhaul why {pending}")), "{refused:?}");
}

#[test]
fn a_cancelled_session_keeps_its_result() {
    let project = session_project();
    project.run(&["run", "session", "x", "--no-input"], 0);
    project.run(&["cancel", "@last"], 0);
    let run = project.json(&["show", "@last", "--json"]);
    assert_eq!((&run["status"], &run["output"]["text"]), (&"cancelled".into(), &"First.".into()));
    let watched = project.run(&["watch", "@last", "--no-input"], 7);
    assert_eq!(watched.out, "First.\n");
}

#[test]
fn a_session_at_a_terminal_is_ended_by_a_command() {
    let project = session_project();
    let steps = [("type a message", "/end\r")];
    let (screen, code) = run_at_terminal(project.path(), &["run", "session", "x"], &[], &steps);
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(screen.matches("\nFirst.\n").count(), 1, "{screen}");
    let run = project.json(&["show", "@last", "--json"]);
    assert_eq!((&run["status"], &run["output"]["text"]), (&"completed".into(), &"First.".into()));
}

#[test]
fn a_resume_of_a_run_that_nobody_paused_is_refused() {
    let project = session_project();
    let run = project.submit("session", "x");
    let refused = project.run(&["resume", &run], 2);
    assert!(refused.err.contains("nobody has paused the run"), "{refused:?}");
    assert!(refused.err.contains(&format!("longhaul why {run}")), "{refused:?}");
    let events = project.run(&["show", &run, "--events"], 0).out;
    assert!(!events.contains("run.resumed"), "{events}");
}
