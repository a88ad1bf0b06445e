//! Nobody drives, nobody sits at the terminal, or somebody wants it ended: what
//! is said then is true at once.

use crate::suite::project::{Project, stands};

#[test]
fn a_driver_that_was_killed_is_known_to_be_gone_at_once() {
    let project = Project::new();
    let worker = project.worker();
    let asked = project.submit("tidy", "milk");
    let busy = project.submit("slow", "milk");
    project.until(&asked, stands("waiting"));
    project.until(&busy, |run| {
        run["now"].as_str().unwrap().contains("asks the model")
    });
    let said = project.say(&["why", &busy], 0);
    assert!(!said.out.contains("Nobody drives"), "{said:?}");
    let said = project.say(&["ls"], 0);
    assert!(said.out.contains("● running"), "{said:?}");
    // Killed with SIGKILL: it gives no last sign.
    drop(worker);
    let said = project.say(&["why", &busy], 0);
    assert!(said.out.contains("Nobody drives it now"), "{said:?}");
    // The list and the page say the same.
    for args in [&["ls"][..], &["show", &busy]] {
        let said = project.say(args, 0).out;
        assert!(said.contains("○ running: nobody drives"), "{said}");
        assert!(!said.contains("● running"), "{said}");
    }
    let said = project.say(&["ls"], 0);
    assert!(said.out.contains("last known: turn 1"), "{said:?}");
    assert!(said.err.contains("Nobody drives now"), "{said:?}");
    let said = project.say(&["approve", &asked, "--yes"], 0);
    assert!(said.out.contains("as soon as somebody drives"), "{said:?}");
    let said = project.say(&["cancel", &busy], 0);
    assert!(said.out.contains("Nobody drives it now"), "{said:?}");
    let said = project.say(&["why", &busy], 0);
    assert!(said.out.contains("told to end"), "{said:?}");
    project.say(&["watch", &busy], 7);
    project.say(&["watch", &asked], 0);
}

#[test]
fn without_a_terminal_a_wait_is_told_with_what_helps() {
    let project = Project::new();
    for (args, words) in [
        (&["run", "tidy", "milk", "--json"][..], "longhaul approve"),
        (&["run", "tidy", "milk", "-q"], "longhaul approve"),
        (&["run", "poor", "milk"], "longhaul resume"),
        (&["run", "stuck", "milk", "-q"], "longhaul answer"),
    ] {
        let said = project.interrupt(args, &["--no-input would end here"]);
        assert_eq!(said.code, 130, "{said:?}");
        assert!(said.err.contains(words), "{args:?}: {said:?}");
    }
}

#[test]
fn an_order_to_end_saves_the_run_as_ctrl_c_does() {
    let project = Project::new();
    for signal in ["-TERM", "-HUP"] {
        let said = project.signal(signal, &["run", "steady", "x"], &["turn 1"]);
        assert_eq!(said.code, 130, "{said:?}");
        assert!(said.err.contains("saved at event "), "{said:?}");
        project.say(&["cancel", "@last"], 0);
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let project = Project::new();
    for (args, words) in [
        (
            &["run", "plain", "x", "--budget", "turns=0"][..],
            "--budget",
        ),
        (
            &["run", "plain", "x", "--context", "recipient=bob"],
            "asks for no such name",
        ),
    ] {
        let said = project.say(args, 2);
        assert!(said.err.contains(words), "{said:?}");
    }
    assert!(!project.store().exists());
}

#[test]
fn who_drives_for_one_run_serves_its_inbox() {
    let project = Project::new();
    let within = ["--timeout", "60s"];
    let run = ["run", "plain", "it", "--inbox", "mail"];
    let said = project.say(&[&run[..], &within].concat(), 0);
    assert_eq!(said.out, "Done: it\n");
    let sent = project.json(&["submit", "plain", "it", "--inbox", "mail", "--json"]);
    let other = project.json(&["submit", "plain", "it", "--inbox", "other", "--json"]);
    let [sent, other] = [&sent, &other].map(|run| run["id"].as_str().unwrap());
    project.say(&[&["watch", sent][..], &within].concat(), 0);
    // Nobody asked for that one.
    assert_eq!(
        project.json(&["show", other, "--json"])["status"],
        "pending"
    );
}
