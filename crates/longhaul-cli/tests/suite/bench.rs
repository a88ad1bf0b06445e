//! `longhaul bench`: each benchmark runs and reports its figures.

use serde_json::Value;

use crate::suite::cli::longhaul;

#[test]
fn the_journal_is_measured_against_the_disk_limits() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let dir = folder.path().to_str().expect("the path is UTF-8");
    let output = longhaul(&["bench", "journal", "--events", "512", "--dir", dir, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(report["fdatasync_us"]["p50"].as_f64() > Some(0.0), "{report}");
    assert!(report["bare_commits_per_second"].as_f64() > Some(0.0), "{report}");
    let lines = report["lines"].as_array().expect("a list of rows");
    let runs: Vec<_> = lines.iter().filter_map(|line| line["runs"].as_u64()).collect();
    assert_eq!(runs, [1, 16, 64, 256]);
    for line in lines {
        assert!(line["ratio"].as_f64() > Some(0.0), "{line}");
        // A single run waits for each of its commits; several runs share commits.
        let commits = line["store_commits"].as_u64().expect("a number");
        match line["runs"].as_u64() {
            Some(1) => assert_eq!(commits, 51, "{line}"),
            _ => assert!((2..512).contains(&commits), "{line}"),
        }
    }
    let file_count = std::fs::read_dir(folder.path()).expect("the folder is readable").count();
    assert_eq!(file_count, 0, "nothing is left behind");
}

#[test]
fn the_queue_is_measured_against_a_bare_loop() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let dir = folder.path().to_str().expect("the path is UTF-8");
    let args = ["bench", "queue", "--tasks", "100", "--queued", "300", "--dir", dir, "--json"];
    let output = longhaul(&args);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    for figure in [
        "tasks_per_second",
        "commits_per_task",
        "bare_tasks_per_second",
        "ratio",
        "resident_memory_mb",
        "long_queue_ratio",
        "behind_lanes_ratio",
    ] {
        assert!(report[figure].as_f64() > Some(0.0), "{figure}: {report}");
    }
    assert!(report["claim_when_idle_us"]["p99"].as_f64() > Some(0.0), "{report}");
    let file_count = std::fs::read_dir(folder.path()).expect("the folder is readable").count();
    assert_eq!(file_count, 0, "nothing is left behind");
}

#[test]
fn a_turn_is_measured_and_takes_two_commits() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let dir = folder.path().to_str().expect("the path is UTF-8");
    let output = longhaul(&[
        "bench",
        "turn",
        "--only",
        "engine,crash",
        "--turns",
        "200",
        "--kills",
        "2",
        "--dir",
        dir,
        "--json",
    ]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let runs = report["runs"].as_array().expect("a list of rows");
    let turns: Vec<_> = runs.iter().filter_map(|run| run["turns"].as_u64()).collect();
    assert_eq!(turns, [50, 200]);
    for run in runs {
        // The claim, the preparation and the end add a few commits per run.
        let turns = run["turns"].as_f64().expect("a number");
        let commits = run["commits_per_turn"].as_f64().expect("a number") * turns;
        assert!((2.0 * turns..2.0 * turns + 8.0).contains(&commits), "{run}");
        let stored = run["stored_per_transcript_byte"].as_f64().expect("a number");
        assert!((0.5..1.8).contains(&stored), "{run}");
    }
    assert_eq!(report["runs_lost"], 0, "{report}");
    assert_eq!(report["results_repeated"], 0, "{report}");
    assert!(report["model_calls_repeated"].as_u64() <= Some(2), "{report}");
    let file_count = std::fs::read_dir(folder.path()).expect("the folder is readable").count();
    assert_eq!(file_count, 0, "nothing is left behind");
}

#[test]
fn a_turn_over_http_is_measured_and_every_message_is_sent() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let dir = folder.path().to_str().expect("the path is UTF-8");
    for wire in ["chat", "anthropic", "responses"] {
        let report = measure_http(dir, wire);
        let http = &report["http"];
        assert_eq!(http["wire"], wire, "{http}");
        let single_run = &http["one_run"];
        let commits = single_run["commits_per_turn"].as_f64().expect("a number");
        assert!((2.0..2.2).contains(&commits), "{single_run}");
        let rows = http["history"].as_array().expect("a list of rows");
        let messages: Vec<_> = rows.iter().filter_map(|row| row["messages"].as_u64()).collect();
        assert_eq!(messages, [10, 100]);
        let bytes: Vec<f64> =
            rows.iter().filter_map(|row| row["body_bytes_per_turn"].as_f64()).collect();
        // There are 45 turns between the two, each with its result.
        assert!(bytes[1] - bytes[0] > 45.0 * 200.0, "{http}");
        for part in ["concurrent", "concurrent_with_latency"] {
            let rate = http[part]["turns_per_second"].as_f64();
            assert!(rate > Some(0.0), "{http}");
        }
        assert_eq!(
            http["concurrent_with_latency"]["ideal_per_second"].as_f64().map(f64::round),
            Some(36.0),
            "four runs of ten turns, with eleven delays each"
        );
        assert_eq!(report.get("runs"), None, "only one part was selected");
    }
    let file_count = std::fs::read_dir(folder.path()).expect("the folder is readable").count();
    assert_eq!(file_count, 0, "nothing is left behind");
}

fn measure_http(dir: &str, wire: &str) -> Value {
    let output = longhaul(&[
        "bench",
        "turn",
        "--only",
        "http",
        "--wire",
        wire,
        "--messages",
        "100",
        "--runs",
        "4",
        "--dir",
        dir,
        "--json",
    ]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn a_tool_call_is_measured_separately_from_its_turn() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let dir = folder.path().to_str().expect("the path is UTF-8");
    let args = ["bench", "tools", "--turns", "10", "--rounds", "1", "--dir", dir];
    let output = longhaul(&[&args[..], &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let count = |section: &str, field: &str| {
        let count = report[section][field].as_f64();
        count.unwrap_or_else(|| panic!("no {section}.{field}: {report}"))
    };
    // Parallel calls share the commits of their turn; sequential calls have their own.
    assert!(count("parallel", "commits_per_call").abs() < 0.1, "{report}");
    let sequential_commits = count("sequential", "commits_per_call");
    assert!((0.9..1.1).contains(&sequential_commits), "{report}");
    // So few turns are not representative of the CPU time, so only its presence is checked.
    assert!(count("parallel", "cpu_us_per_call").is_finite());
    assert!(report["schema_check_cpu_ns"].as_f64() > Some(0.0), "{report}");
    let entries = std::fs::read_dir(folder.path()).expect("the folder is readable");
    assert_eq!(entries.count(), 0, "nothing is left behind");
    let output = longhaul(&args);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains(" CPU for each further call"), "{stdout}");
}

#[test]
fn parked_runs_are_measured_and_resumed_with_few_commits() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let dir = folder.path().to_str().expect("the path is UTF-8");
    let args = ["bench", "park", "--runs", "40", "--idle", "1", "--dir", dir];
    let output = longhaul(&[&args[..], &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["runs"], 40, "{report}");
    // An answer, the claim, and the result with the start of the turn.
    assert_eq!(report["resume"]["runs"], 40, "{report}");
    assert!((2..=4).contains(&report["resume"]["commits_max"].as_u64().unwrap_or(0)), "{report}");
    assert!(report["resume"]["cpu_us"]["p50"].as_f64() > Some(0.0), "{report}");
    for figure in ["added_memory_mb", "memory_bytes_per_run", "idle_cpu_percent"] {
        assert!(report[figure].as_f64().is_some(), "{figure}: {report}");
    }
    let entries = std::fs::read_dir(folder.path()).expect("the folder is readable");
    assert_eq!(entries.count(), 0, "nothing is left behind");
    let output = longhaul(&args);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains("from an answer to the next model request, 40 runs"), "{stdout}");
}
