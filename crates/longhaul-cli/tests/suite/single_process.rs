//! Output without a driver, without a terminal, and after a signal.

use crate::suite::project::{Project, has_status};

#[test]
fn a_killed_driver_is_detected_at_once() {
    let project = Project::new();
    let worker = project.start_worker();
    let waiting_run = project.submit("tidy", "milk");
    let busy_run = project.submit("slow", "milk");
    project.wait_until(&waiting_run, has_status("waiting"));
    project.wait_until(&busy_run, |run| run["now"].as_str().unwrap().contains("calling the model"));
    let output = project.run(&["why", &busy_run], 0);
    assert!(!output.out.contains("No worker drives"), "{output:?}");
    let output = project.run(&["ls"], 0);
    assert!(output.out.contains("● running"), "{output:?}");
    // Killed with SIGKILL, so the worker can't report its end.
    drop(worker);
    let output = project.run(&["why", &busy_run], 0);
    assert!(output.out.contains("No worker drives the run now"), "{output:?}");
    // `ls` and `show` agree.
    for args in [&["ls"][..], &["show", &busy_run]] {
        let output = project.run(args, 0).out;
        assert!(output.contains("○ running: no worker"), "{output}");
        assert!(!output.contains("● running"), "{output}");
    }
    let output = project.run(&["ls"], 0);
    assert!(output.out.contains("last known: turn 1"), "{output:?}");
    assert!(output.err.contains("No worker is running"), "{output:?}");
    let output = project.run(&["approve", &waiting_run, "--yes"], 0);
    assert!(output.out.contains("when a worker drives it"), "{output:?}");
    let output = project.run(&["cancel", &busy_run], 0);
    assert!(output.out.contains("No worker drives the run now"), "{output:?}");
    let output = project.run(&["why", &busy_run], 0);
    assert!(output.out.contains("The run is being cancelled"), "{output:?}");
    project.run(&["watch", &busy_run], 7);
    project.run(&["watch", &waiting_run], 0);
}

#[test]
fn without_a_terminal_a_command_ends_or_waits_with_the_command_that_helps() {
    let project = Project::new();
    for (args, code, expected) in [
        (&["run", "tidy", "milk", "--json"][..], 3, "longhaul approve"),
        (&["run", "tidy", "milk", "-q"], 3, "longhaul approve"),
        (&["run", "poor", "milk"], 4, "longhaul resume"),
        (&["run", "stuck", "milk", "-q"], 3, "longhaul answer"),
    ] {
        let output = project.run(args, code);
        assert!(output.err.contains(expected), "{args:?}: {output:?}");
        let waiting_args = [&[args[0], "--wait"], &args[1..]].concat();
        for waiting_args in [&waiting_args[..], &["watch", "@last"]] {
            let output = project.run_and_interrupt(waiting_args, &["--no-input would exit here"]);
            assert_eq!(output.code, 130, "{output:?}");
            assert!(output.err.contains(expected), "{args:?}: {output:?}");
        }
    }
    let both_flags = project.run(&["run", "tidy", "milk", "--wait", "--no-input"], 2);
    assert!(both_flags.err.contains("cannot be used with"), "{both_flags:?}");
}

#[test]
fn sigterm_and_sighup_save_the_run_like_ctrl_c() {
    let project = Project::new();
    for signal in ["-TERM", "-HUP"] {
        let output = project.run_and_signal(signal, &["run", "steady", "x"], &["turn 1"]);
        assert_eq!(output.code, 130, "{output:?}");
        assert!(output.err.contains("saved at event "), "{output:?}");
        project.run(&["cancel", "@last"], 0);
    }
}

#[test]
fn ctrl_c_stops_the_worker_after_it_has_counted_the_turns() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let output = project.run_and_interrupt(&["worker"], &["completed"]);
    assert_eq!(output.code, 0, "{output:?}");
    let completed = format!("  {run}  run completed  agent=plain  turns=1\n");
    let (_, after) = output.err.split_once(&completed).expect(&output.err);
    assert!(after.contains("  shutting down:"), "{output:?}");
}

#[test]
fn a_worker_prints_the_question_and_the_command_where_a_person_is_needed() {
    let project = Project::new();
    let run = project.submit("tidy", "milk");
    let output = project.run_and_interrupt(&["worker"], &["longhaul approve"]);
    let waiting = format!("{run}  The run waits for an approval: ");
    assert!(output.err.contains(&waiting), "{output:?}");
    assert!(output.err.contains(&format!("longhaul approve {run}  agent=tidy")), "{output:?}");
}

#[test]
fn invalid_flags_are_refused_before_anything_is_created() {
    let project = Project::new();
    for (args, expected) in [
        (&["run", "plain", "x", "--budget", "turns=0"][..], "--budget"),
        (&["run", "plain", "x", "--budget", "usd=0.0000001"], "--budget"),
        (
            &["run", "plain", "x", "--context", "recipient=bob"],
            "does not declare this context value",
        ),
    ] {
        let output = project.run(args, 2);
        assert!(output.err.contains(expected), "{output:?}");
    }
    assert!(!project.store().exists());
}
