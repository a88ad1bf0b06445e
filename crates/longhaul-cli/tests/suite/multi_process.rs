//! Several processes at once: one drives, others inspect, answer and steer.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::project::{Project, has_status};

#[test]
fn other_processes_inspect_and_answer_while_one_drives() {
    let project = Project::new();
    let _worker = project.start_worker();
    let slow_run = project.submit("slow", "milk");
    let tidy_run = project.submit("tidy", "milk");
    project.wait_until(&tidy_run, has_status("waiting"));
    let output = project.run(&["ls"], 0);
    for part in ["▲ waiting: approval", "● running"] {
        assert!(output.out.contains(part), "{part}: {output:?}");
    }
    assert!(output.err.contains("longhaul ls --mine"), "{output:?}");
    let output = project.run(&["approve", &tidy_run, "--yes"], 0);
    assert!(output.out.contains(" resumes at event "), "{output:?}");
    assert!(!output.out.contains("when a worker"), "{output:?}");
    project.wait_until(&tidy_run, has_status("completed"));
    // `run` and `watch` work beside another driver.
    let output = project.run(&["run", "plain", "bread"], 0);
    assert_eq!(output.out, "Done: bread\n");
    assert!(output.err.contains("driven by"), "{output:?}");
    let output = project.run(&["watch", &slow_run, "--timeout", "200ms"], 124);
    assert!(output.err.contains("The run continues"), "{output:?}");
    project.run(&["pause", &slow_run], 0);
    project.run(&["cancel", &slow_run], 0);
    project.wait_until(&slow_run, has_status("cancelled"));
}

#[test]
fn a_follower_takes_over_when_the_driver_is_gone() {
    for args in [&["run", "steady", "milk"][..], &["watch", "@last"]] {
        let project = Project::new();
        let worker = project.start_worker();
        if args[0] == "watch" {
            project.submit("steady", "milk");
        }
        let mut command = project.command(&[args, &["--no-input"]].concat());
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut wait_for_line = |text: &str| stderr.any(|line| line.unwrap().contains(text));
        assert!(wait_for_line("driven by"));
        drop(worker);
        assert!(wait_for_line("this process drives the run now"), "{args:?}");
        assert!(wait_for_line("turn"), "{args:?}");
        project.run(&["cancel", "@last"], 0);
        std::thread::spawn(move || stderr.for_each(drop));
        assert_eq!(child.wait().unwrap().code(), Some(7), "{args:?}");
    }
}

#[test]
fn a_run_names_the_worker_that_would_take_it() {
    let project = Project::new();
    let submit_output =
        project.run(&["submit", "plain", "milk", "--inbox", "mail", "--type", "letter"], 0);
    let run = submit_output.out.trim();
    let worker = project.start_worker();
    let default = project.submit("plain", "bread");
    project.wait_until(&default, has_status("completed"));
    let why = project.run(&["why", run], 0);
    assert!(why.out.contains("No worker serves the inbox `mail`"), "{why:?}");
    assert!(why.out.contains("add it to `[worker] inboxes` in longhaul.toml"), "{why:?}");
    drop(worker);
    let _worker =
        project.start_worker_with(&["--inbox", "default", "--inbox", "mail", "--type", "letter"]);
    project.wait_until(run, has_status("completed"));
    let untyped_run = project.submit("plain", "bread");
    let why = project.run(&["why", &untyped_run], 0);
    assert!(why.out.contains("do not take tasks without a type"), "{why:?}");
}

/// Returns whether the journal has an event of this kind.
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
        project
            .wait_until(&run, |run| run["now"].as_str().unwrap().contains("is calling the model"));
        let output = project.run(&["cancel", &run], 0);
        let messages = ["cancel requested; it takes effect within 10 s", "is cancelled"];
        assert!(messages.iter().any(|text| output.out.contains(text)), "{output:?}");
        project.wait_until(&run, has_status("cancelled"));
        // The cancel did not wait for the model's reply, a minute away.
        assert!(!has_event(&project.events(&run), "turn.completed"));
    }
}

#[test]
fn a_submitted_run_wakes_the_worker_before_its_next_poll() {
    let project = Project::new();
    let _worker = project.start_worker();
    // The worker found nothing to claim and waits.
    for _ in 0..2 {
        let run = project.submit("plain", "milk");
        project.wait_until(&run, has_status("completed"));
    }
}
