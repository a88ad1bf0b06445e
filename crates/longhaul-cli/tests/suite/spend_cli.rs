//! `longhaul spend` and `[[caps]]` with the real binary.

use super::project::{Project, has_status};

#[test]
fn a_run_waits_at_a_cap_until_it_is_raised() {
    let project = Project::new();
    let no_caps = project.run(&["spend"], 0);
    assert!(no_caps.err.contains("No caps are set"), "{no_caps:?}");
    project.write("longhaul.toml", "[[caps]]\nwindow = \"month\"\nruns = 1\n");
    project.run(&["spend"], 0);
    assert!(!project.path().join(".longhaul").exists(), "a reading command creates no store");
    let _worker = project.start_worker();
    let first = project.submit("plain", "one");
    project.wait_until(&first, has_status("completed"));
    let second = project.submit("plain", "two");
    let waiting_run = project.wait_until(&second, has_status("waiting"));
    assert_eq!(waiting_run["reason"], "cap");
    let why = project.run(&["why", &second], 0).out;
    assert!(why.contains("The cap `month-runs-all`"), "{why}");
    assert!(why.contains("which needs up to 1 run (left: 0 runs of 1 run)"), "{why}");
    assert!(why.contains("longhaul spend raise month-runs-all --runs 2"), "{why}");
    let output = project.run(&["ls"], 0).out;
    assert!(output.contains("waits: spend cap until 20"), "{output}");
    let output = project.run(&["spend"], 0).out;
    let row: Vec<&str> = output.lines().nth(1).unwrap().split_whitespace().take(7).collect();
    assert_eq!(row, ["month-runs-all", "all", "1", "0", "0", "1", "1"], "{output}");
    for (args, part) in [
        (&["spend", "raise", "month-runs-all"][..], "in runs"),
        (&["spend", "raise", "month-runs-all", "--runs", "1"], "higher than the current"),
        (&["spend", "raise", "month-runs-all", "--runs", "0"], "above 0"),
        (&["spend", "raise", "month-runs-all", "--usd", "NaN"], "in runs"),
        (&["spend", "raise", "month-runs-all", "--runs", "9999999999999999"], "at most 1125899"),
        (&["spend", "raise", "month-usd-all", "--usd", "5"], "no spend cap named `month-usd-all`"),
        (
            &["spend", "raise", "month-runs-al", "--runs", "5"],
            "longhaul spend raise month-runs-all",
        ),
    ] {
        let output = project.run(args, 2);
        assert!(output.err.contains(part) && output.err.contains("longhaul spend"), "{output:?}");
    }
    let output = project.run(&["spend", "raise", "month-runs-all", "--runs", "2"], 0);
    assert!(output.err.contains("1 run waited at the cap"), "{output:?}");
    project.wait_until(&second, has_status("completed"));
    let caps = project.json(&["spend", "--json"]);
    assert_eq!(caps["data"][0]["counts"][0]["used"], 2);
}

#[test]
fn a_cap_refuses_a_task_and_an_invalid_one_is_reported() {
    let project = Project::new();
    project.write("longhaul.toml", "[[caps]]\nwindow = \"month\"\nruns = 1\nat_cap = \"refuse\"\n");
    project.submit("plain", "one");
    let output = project.run(&["submit", "plain", "two"], 5);
    assert!(output.err.contains("the cap `month-runs-all` is reached"), "{output:?}");
    assert!(output.err.contains("longhaul spend"), "{output:?}");
    project.write("longhaul.toml", "[[caps]]\nwindow = \"month\"\nusd = -1.0\n");
    let output = project.run(&["spend"], 2);
    assert!(output.err.contains("cap 1: `usd` must be dollars above 0"), "{output:?}");
}

#[test]
fn a_run_at_a_cap_ends_the_command_without_a_terminal() {
    let project = Project::new();
    project.write("longhaul.toml", "[[caps]]\nwindow = \"month\"\nruns = 1\n");
    project.run(&["run", "plain", "one"], 0);
    let raise = "longhaul spend raise month-runs-all --runs 2";
    for options in [&[][..], &["-q"], &["--no-input", "--json"]] {
        let output = project.run(&[&["run", "plain", "two"], options].concat(), 4);
        let last = output.err.lines().last().unwrap();
        assert!(last.contains("The cap `month-runs-all`") && last.contains(raise), "{output:?}");
        // In the line of the event, too.
        let is_event_printed = output.err.contains("at the spend cap month-runs-all until 20");
        assert_eq!(is_event_printed, options.is_empty(), "{output:?}");
    }
    let run = project.json(&["show", "@last", "--json"]);
    assert_eq!((&run["status"], &run["reason"]), (&"waiting".into(), &"cap".into()), "{run}");
    let output = project.run(&["watch", "@last", "--no-input", "--after", "99"], 4);
    assert!(output.err.contains(raise), "{output:?}");
    let waiting = ["run", "plain", "three", "-q", "--wait", "--timeout", "1s"];
    let output = project.run(&waiting, 124);
    assert!(output.err.contains(raise), "{output:?}");
    let output = project.run(&["steer", "@last", "--interrupt", "hurry"], 0).out;
    let expected = "Will be delivered before turn 1, when the run continues: longhaul why run_";
    assert!(output.contains(expected), "{output}");
}
