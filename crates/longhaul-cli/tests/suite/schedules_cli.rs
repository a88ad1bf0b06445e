//! `schedules`, `agents stats`, `--event` and `--link` with the real binary, with and without a
//! server.

use serde_json::json;

use super::project::Project;
use super::server_harness::TestServer;

const ADD: [&str; 12] = [
    "schedules",
    "add",
    "digest",
    "--cron",
    "0 9 * * MON-FRI",
    "--tz",
    "Europe/Berlin",
    "--agent",
    "plain",
    "--input",
    "milk",
    "--json",
];

/// Checks that the schedule `digest` is edited, paused and resumed.
fn check_changes(project: &Project) {
    let edit = ["schedules", "edit", "digest", "--every", "2h", "--input", "tea", "--json"];
    let edited = project.json(&edit);
    assert_eq!((&edited["every_ms"], &edited["cron"]), (&json!(7_200_000), &json!(null)));
    assert_eq!((&edited["input"], &edited["agent"]), (&json!("tea"), &json!("plain")));
    project.run(&["schedules", "edit", "digest", "--cron", "1 2 3"], 2);
    project.run(&["schedules", "edit", "gone", "--every", "1h"], 2);
    project.run(&["schedules", "edit", "digest", "--cron", ADD[4], "--tz", ADD[6]], 0);
    for _ in 0..2 {
        let paused = project.run(&["schedules", "pause", "digest"], 0).out;
        assert!(paused.contains("is paused"), "{paused}");
    }
    let listed = project.json(&["schedules", "ls", "--json"]);
    assert_eq!(
        (&listed["data"][0]["paused"], &listed["data"][0]["next_at"]),
        (&json!(true), &json!(null))
    );
    assert!(project.run(&["schedules"], 0).out.contains("paused"));
    let resumed = project.run(&["schedules", "resume", "digest"], 0).out;
    assert!(resumed.contains("fires next: "), "{resumed}");
}

/// Checks the commands on a project, whatever drives it.
fn check_commands(project: &Project) {
    let schedule = project.json(&ADD);
    assert_eq!((&schedule["cron"], &schedule["tz"]), (&json!(ADD[4]), &json!(ADD[6])));
    let next_at = schedule["next_at"].as_str().unwrap();
    assert!(next_at.contains("T07:00:00") || next_at.contains("T08:00:00"), "{schedule}");
    let output = project.run(&ADD, 2);
    assert!(output.err.contains("longhaul schedules rm digest"), "{output:?}");
    let listed = project.json(&["schedules", "ls", "--json"]);
    assert_eq!(listed["data"][0]["name"], "digest");
    check_changes(project);
    let run = project.run(&["schedules", "run", "digest"], 0).out;
    assert!(run.starts_with("run_"), "{run}");
    let table = project.run(&["schedules"], 0).out;
    assert!(
        table.contains("0 9 * * MON-FRI Europe/Berlin") && table.contains(run.trim()),
        "{table}"
    );
    for (args, reason) in [
        (&["--cron", "1 2 3", "--input", "x"][..], "an example is"),
        (&["--cron", "* * * * *", "--tz", "Mars", "--input", "x"], "an example is"),
        (&["--every", "10ms", "--input", "x"], "between 1 second and 366 days"),
        (&["--every", "soon", "--input", "x"], "expected a duration"),
        (&["--every", "30s"], "--input"),
        (&["--input", "x"], "--cron"),
        (&["--every", "30s", "--tz", "UTC", "--input", "x"], "`cron`"),
    ] {
        let output =
            project.run(&[&["schedules", "add", "x", "--agent", "plain"], args].concat(), 2);
        assert!(output.err.contains(reason), "{args:?}: {output:?}");
    }
    let add_args =
        ["schedules", "add", "tick", "--every", "2s", "--agent", "plain", "--input", "x"];
    let output = project.run(&add_args, 0).out;
    assert_eq!(output.matches(':').count(), 3, "a time with seconds: {output}");
    project.run(&["schedules", "rm", "tick"], 0);
    let output = project.run(&["schedules", "rm", "digest"], 0);
    assert_eq!(output.out, "The schedule `digest` is removed.\n");
    let output = project.run(&["schedules", "run", "digest"], 2);
    assert!(output.err.contains("there is no schedule named `digest`"), "{output:?}");
    assert!(output.err.contains("longhaul schedules"), "{output:?}");

    let event =
        ["submit", "plain", "", "--event", "quake", "--link", "task=t1", "--link", "task=t2"];
    let run = project.json(&[&event[..], &["--link", "project=p", "--json"]].concat());
    assert_eq!((&run["type"], &run["budget"]["turns"]), (&json!("quake"), &json!(6)));
    assert_eq!(run["links"], json!({ "task": ["t1", "t2"], "project": "p" }));
    project.run(&["submit", "plain", "", "--event", "a", "--type", "b"], 2);
    project.run(&["submit", "plain", "", "--event", ""], 2);
    let output = project.run(&["submit", "plain", "x", "--link", "task"], 2);
    assert!(output.err.contains("--link task must be written as NAME=VALUE"), "{output:?}");
    project.wait_until(run["id"].as_str().unwrap(), |run| run["status"] == "completed");

    let stats = project.json(&["agents", "stats", "plain", "--since", "1h", "--json"]);
    let plain_stats = &stats["data"][0];
    assert_eq!(
        (&plain_stats["agent"], &plain_stats["runs"]["total"]),
        (&json!("plain"), &json!(2)),
        "{stats}"
    );
    assert_eq!(plain_stats["success_rate"], 1.0);
    let table = project.run(&["agents", "stats"], 0).out;
    assert!(table.contains("100 %") && !table.contains("looping"), "{table}");
    let output = project.run(&["agents", "stats", "nobody"], 2);
    assert!(output.err.contains("there is no agent named `nobody`"), "{output:?}");
    project.run(&["agents", "stats", "--since", "soon"], 2);
}

#[test]
fn schedules_and_statistics_work_beside_a_worker() {
    let project = Project::new();
    let _worker = project.start_worker();
    check_commands(&project);
}

#[test]
fn schedules_and_statistics_work_with_a_server() {
    let project = Project::new();
    let _server = TestServer::start(&project);
    check_commands(&project);
}

#[test]
fn a_server_fires_schedules_that_were_added_before_its_start() {
    let project = Project::new();
    let output = project.run(&["schedules"], 0);
    assert!(output.err.contains("There are no schedules yet"), "{output:?}");
    assert!(!project.store().exists(), "listing creates no store");
    let add_args =
        ["schedules", "add", "ticking", "--every", "1s", "--agent", "plain", "--input", "milk"];
    let output = project.run(&add_args, 0);
    assert!(output.out.starts_with("The schedule `ticking` fires next: "), "{output:?}");
    assert!(output.err.contains("No worker is running"), "{output:?}");
    for (zone, suffix) in [("UTC", " UTC"), ("Asia/Tokyo", " JST")] {
        let table = project.command(&["schedules"]).env("TZ", zone).output().unwrap();
        let table = String::from_utf8(table.stdout).unwrap();
        assert!(table.contains(suffix), "{table}");
    }
    let mut server = TestServer::start(&project);
    let line = server.wait_for_line("schedule fired");
    assert!(line.contains("ticking"), "{line}");
    let listed = project.json(&["schedules", "ls", "--json"]);
    let run = listed["data"][0]["last_run"].as_str().unwrap().to_owned();
    let run = project.wait_until(&run, |run| run["status"] == "completed");
    assert_eq!(run["metadata"]["schedule"], "ticking");
}
