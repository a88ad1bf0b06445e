//! Two processes at once: one drives, others look, decide and steer.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::project::{Project, has_status};

#[test]
fn other_processes_inspect_and_answer_while_one_drives() {
    let project = Project::new();
    let _worker = project.start_worker();
    let slow = project.submit("slow", "milk");
    let tidy = project.submit("tidy", "milk");
    project.wait_until(&tidy, has_status("waiting"));
    let listed = project.run(&["ls"], 0);
    for part in ["▲ waiting: you", "● running"] {
        assert!(listed.out.contains(part), "{part}: {listed:?}");
    }
    assert!(listed.err.contains("longhaul gates"), "{listed:?}");
    let said = project.run(&["approve", &tidy, "--yes"], 0);
    assert!(said.out.contains(" resumes at event "), "{said:?}");
    assert!(!said.out.contains("somebody"), "{said:?}");
    project.wait_until(&tidy, has_status("completed"));
    // `run` and `watch` stand beside who drives.
    let said = project.run(&["run", "plain", "bread"], 0);
    assert_eq!(said.out, "Done: bread\n");
    assert!(said.err.contains("driven by"), "{said:?}");
    let said = project.run(&["watch", &slow, "--timeout", "200ms"], 124);
    assert!(said.err.contains("The run goes on"), "{said:?}");
    project.run(&["pause", &slow], 0);
    project.run(&["cancel", &slow], 0);
    project.wait_until(&slow, has_status("cancelled"));
}

#[test]
fn a_follower_takes_over_when_the_driver_is_gone() {
    for words in [&["run", "steady", "milk"][..], &["watch", "@last"]] {
        let project = Project::new();
        let worker = project.start_worker();
        if words[0] == "watch" {
            project.submit("steady", "milk");
        }
        let mut command = project.command(&[words, &["--no-input"]].concat());
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut hear = |words: &str| said.any(|line| line.unwrap().contains(words));
        assert!(hear("driven by"));
        drop(worker);
        assert!(hear("driven from here now"), "{words:?}");
        assert!(hear("turn"), "{words:?}");
        project.run(&["cancel", "@last"], 0);
        std::thread::spawn(move || said.for_each(drop));
        assert_eq!(child.wait().unwrap().code(), Some(7), "{words:?}");
    }
}

/// Whether the journal holds an event of this kind.
fn has_event(events: &[Value], kind: &str) -> bool {
    events.iter().any(|event| event["type"] == kind)
}

#[test]
fn an_answer_wakes_the_driver_before_its_next_poll() {
    let project = Project::new();
    let _worker = project.start_worker();
    let run = project.submit("tidy", "milk");
    project.wait_until(&run, has_status("waiting"));
    project.run(&["approve", &run, "--yes"], 0);
    project.wait_until(&run, has_status("completed"));
    assert!(has_event(&project.events(&run), "tool.completed"));
}

#[test]
fn a_cancel_ends_a_run_in_the_middle_of_a_long_call() {
    let project = Project::new();
    let _worker = project.start_worker();
    for _ in 0..3 {
        let run = project.submit("slow", "milk");
        project.wait_until(&run, |run| run["now"].as_str().unwrap().contains("asks the model"));
        let said = project.run(&["cancel", &run], 0);
        let heard = ["is told to end; it ends when its driver hears, within 10 s", "is cancelled"];
        assert!(heard.iter().any(|words| said.out.contains(words)), "{said:?}");
        project.wait_until(&run, has_status("cancelled"));
        // The model's reply, a minute away, was not waited for.
        assert!(!has_event(&project.events(&run), "turn.completed"));
    }
}

#[test]
fn a_submitted_run_wakes_the_worker_before_its_next_poll() {
    let project = Project::new();
    let _worker = project.start_worker();
    // The worker has found nothing to claim and waits.
    for _ in 0..2 {
        let run = project.submit("plain", "milk");
        project.wait_until(&run, has_status("completed"));
    }
}
