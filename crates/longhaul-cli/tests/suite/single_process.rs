//! Nobody drives, nobody sits at the terminal, or somebody wants it ended: what
//! is said then is true at once.

use crate::suite::project::{Project, has_status};

#[test]
fn a_killed_driver_is_detected_at_once() {
    let project = Project::new();
    let worker = project.start_worker();
    let asked = project.submit("tidy", "milk");
    let busy = project.submit("slow", "milk");
    project.wait_until(&asked, has_status("waiting"));
    project.wait_until(&busy, |run| run["now"].as_str().unwrap().contains("asks the model"));
    let said = project.run(&["why", &busy], 0);
    assert!(!said.out.contains("Nobody drives"), "{said:?}");
    let said = project.run(&["ls"], 0);
    assert!(said.out.contains("● running"), "{said:?}");
    // Killed with SIGKILL: it gives no last sign.
    drop(worker);
    let said = project.run(&["why", &busy], 0);
    assert!(said.out.contains("Nobody drives it now"), "{said:?}");
    // The list and the page say the same.
    for args in [&["ls"][..], &["show", &busy]] {
        let said = project.run(args, 0).out;
        assert!(said.contains("○ running: nobody drives"), "{said}");
        assert!(!said.contains("● running"), "{said}");
    }
    let said = project.run(&["ls"], 0);
    assert!(said.out.contains("last known: turn 1"), "{said:?}");
    assert!(said.err.contains("Nobody drives now"), "{said:?}");
    let said = project.run(&["approve", &asked, "--yes"], 0);
    assert!(said.out.contains("as soon as somebody drives"), "{said:?}");
    let said = project.run(&["cancel", &busy], 0);
    assert!(said.out.contains("Nobody drives it now"), "{said:?}");
    let said = project.run(&["why", &busy], 0);
    assert!(said.out.contains("told to end"), "{said:?}");
    project.run(&["watch", &busy], 7);
    project.run(&["watch", &asked], 0);
}

#[test]
fn without_a_terminal_a_wait_is_printed_with_the_command_that_helps() {
    let project = Project::new();
    for (args, words) in [
        (&["run", "tidy", "milk", "--json"][..], "longhaul approve"),
        (&["run", "tidy", "milk", "-q"], "longhaul approve"),
        (&["run", "poor", "milk"], "longhaul resume"),
        (&["run", "stuck", "milk", "-q"], "longhaul answer"),
    ] {
        let said = project.run_and_interrupt(args, &["--no-input would end here"]);
        assert_eq!(said.code, 130, "{said:?}");
        assert!(said.err.contains(words), "{args:?}: {said:?}");
    }
}

#[test]
fn sigterm_and_sighup_save_the_run_like_ctrl_c() {
    let project = Project::new();
    for signal in ["-TERM", "-HUP"] {
        let said = project.run_and_signal(signal, &["run", "steady", "x"], &["turn 1"]);
        assert_eq!(said.code, 130, "{said:?}");
        assert!(said.err.contains("saved at event "), "{said:?}");
        project.run(&["cancel", "@last"], 0);
    }
}

#[test]
fn invalid_flags_are_refused_before_anything_is_created() {
    let project = Project::new();
    for (args, words) in [
        (&["run", "plain", "x", "--budget", "turns=0"][..], "--budget"),
        (&["run", "plain", "x", "--context", "recipient=bob"], "asks for no such name"),
    ] {
        let said = project.run(args, 2);
        assert!(said.err.contains(words), "{said:?}");
    }
    assert!(!project.store().exists());
}

#[test]
fn driving_one_run_serves_only_its_inbox() {
    let project = Project::new();
    let within = ["--timeout", "60s"];
    let run = ["run", "plain", "it", "--inbox", "mail"];
    let said = project.run(&[&run[..], &within].concat(), 0);
    assert_eq!(said.out, "Done: it\n");
    let sent = project.json(&["submit", "plain", "it", "--inbox", "mail", "--json"]);
    let other = project.json(&["submit", "plain", "it", "--inbox", "other", "--json"]);
    let [sent, other] = [&sent, &other].map(|run| run["id"].as_str().unwrap());
    project.run(&[&["watch", sent][..], &within].concat(), 0);
    // Nobody asked for that one.
    assert_eq!(project.json(&["show", other, "--json"])["status"], "pending");
}
