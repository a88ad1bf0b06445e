//! Each benchmark runs, reports its figures and leaves nothing behind. The figures that do not
//! depend on the machine are checked: commits, stored bytes, what a kill loses.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs a benchmark with small numbers and returns its report.
fn measure(args: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("the folder is created");
    let bench = Path::new(env!("CARGO_BIN_EXE_longhaul-bench"));
    let longhaul = bench.with_file_name("longhaul");
    assert!(longhaul.is_file(), "run `cargo build -p longhaul-cli` first");
    let output =
        Command::new(bench).args(args).args(["--json", "--dir"]).arg(folder.path()).output();
    let output = output.expect("the bench runs");
    assert!(output.status.success(), "{output:?}");
    let left = std::fs::read_dir(folder.path()).expect("the folder is readable").count();
    assert_eq!(left, 0, "nothing is left behind");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn figure(report: &Value, section: &str, name: &str) -> f64 {
    let figure = report[section][name].as_f64();
    figure.unwrap_or_else(|| panic!("no {section}.{name}: {report:#}"))
}

#[test]
fn durable_writes_share_commits() {
    let report = measure(&["journal", "--writes", "512"]);
    assert!(figure(&report, "disk", "write_and_fdatasync_p50_us") > 0.0);
    // A client that is alone waits for each of its commits.
    assert!((0.8..1.01).contains(&figure(&report, "clients_1", "writes_per_commit")), "{report:#}");
    for section in ["clients_16", "clients_64", "clients_256"] {
        assert!(figure(&report, section, "writes_per_commit") > 1.2, "{report:#}");
        assert!(figure(&report, section, "commits_to_disk_syncs") > 0.0);
        assert!(figure(&report, section, "write_p99_us") > 0.0);
    }
}

#[test]
fn a_turn_takes_two_commits_and_stores_little_more_than_its_transcript() {
    let report = measure(&["turn", "--only", "engine", "--turns", "200"]);
    for (section, turns) in [("engine_50_turns", 50.0), ("engine_200_turns", 200.0)] {
        // The claim, the preparation and the end add a few commits per run.
        let commits = figure(&report, section, "commits_per_turn") * turns;
        assert!((2.0 * turns..2.0 * turns + 12.0).contains(&commits), "{report:#}");
        assert!(figure(&report, section, "cpu_us_per_turn") > 0.0);
    }
    let stored = figure(&report, "engine_200_turns", "stored_to_transcript_bytes");
    assert!((0.5..1.8).contains(&stored), "{report:#}");
    assert_eq!(report["http_one_run"], Value::Null, "only one part was selected");
}

#[test]
fn a_turn_is_measured_over_every_provider_api() {
    for wire in ["chat", "anthropic", "responses"] {
        let report = measure(&["turn", "--only", "http", "--wire", wire, "--runs", "4"]);
        let commits = figure(&report, "http_one_run", "commits_per_turn");
        assert!((2.0..2.3).contains(&commits), "{report:#}");
        assert!(figure(&report, "http_4_runs_0_ms", "turns_per_s") > 0.0);
        // Each result of 200 bytes is sent again with all later turns.
        assert!(figure(&report, "http_4_runs_0_ms", "request_bytes_per_turn") > 1_000.0);
        let ideal = figure(&report, "http_4_runs_100_ms", "ideal_per_s");
        assert_eq!(ideal.round(), 36.0, "four runs of ten turns, with eleven delays each");
        let share = figure(&report, "http_4_runs_100_ms", "share_of_ideal");
        assert!((0.01..=1.0).contains(&share), "{report:#}");
    }
}

#[test]
fn the_queue_is_measured_with_long_queues_and_busy_lanes() {
    let report = measure(&["queue", "--tasks", "100", "--queued", "300"]);
    assert!(figure(&report, "tasks", "tasks_per_s") > 0.0);
    assert!(figure(&report, "tasks", "commits_per_task") > 0.0);
    assert!(figure(&report, "claim_when_idle", "p99_us") > 0.0);
    assert!(figure(&report, "long_queue", "rate_to_short_queue") > 0.0);
    assert!(figure(&report, "behind_lanes", "rate_to_short_queue") > 0.0);
}

#[test]
fn parked_runs_are_resumed_with_few_commits() {
    let report = measure(&["park", "--runs", "40", "--idle", "1"]);
    assert!(figure(&report, "parked", "idle_cpu_percent") >= 0.0);
    assert_eq!(figure(&report, "resume", "runs"), 40.0);
    // An answer, the claim, and the result with the start of the turn.
    let commits = figure(&report, "resume", "commits_p50");
    assert!((2.0..=4.0).contains(&commits), "{report:#}");
}

#[test]
fn the_binary_is_measured_from_outside() {
    let args = ["serve", "--runs", "3", "--requests", "100", "--streams", "5", "--store-mb", "1"];
    let report = measure(&args);
    for (section, name) in [
        ("exec_to_finished_run", "p50_ms"),
        ("server", "ready_ms"),
        ("server", "idle_mb"),
        ("library", "submit_p99_us"),
        ("http", "submit_p99_to_library"),
        ("http", "show_p99_us"),
    ] {
        assert!(figure(&report, section, name) > 0.0, "{section}.{name}: {report:#}");
    }
}

#[test]
fn kills_lose_and_repeat_nothing() {
    let report = measure(&["crash", "--kills", "4"]);
    assert_eq!(figure(&report, "w7", "kills"), 4.0, "{report:#}");
    assert_eq!(figure(&report, "w7", "runs_lost"), 0.0);
    assert_eq!(figure(&report, "w7", "guarantees_violated"), 0.0);
}

#[test]
#[cfg(target_os = "linux")]
fn sandboxes_are_measured_beside_plain_bubblewrap() {
    let report = measure(&["sandbox", "--repeats", "3", "--stopped", "4"]);
    for section in ["exec", "create_to_first_command", "start_to_first_command", "exec_10_at_once"]
    {
        assert!(figure(&report, section, "p50_to_plain") > 0.0, "{section}: {report:#}");
    }
    assert_eq!(figure(&report, "stopped_with_volumes", "sandboxes"), 4.0);
}
