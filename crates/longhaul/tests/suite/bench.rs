//! `longhaul bench` measures something, and says under which conditions.

use serde_json::Value;

use crate::suite::front::longhaul;

#[test]
fn the_journal_is_measured_against_its_own_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a path in UTF-8");
    let output = longhaul(&[
        "bench", "journal", "--events", "512", "--dir", dir, "--json",
    ]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(
        report["fdatasync_us"]["p50"].as_f64() > Some(0.0),
        "{report}"
    );
    assert!(
        report["commit_per_event_per_second"].as_f64() > Some(0.0),
        "{report}"
    );
    let lines = report["lines"].as_array().expect("a line for each");
    let runs: Vec<_> = lines
        .iter()
        .filter_map(|line| line["runs"].as_u64())
        .collect();
    assert_eq!(runs, [1, 16, 64, 256]);
    for line in lines {
        assert!(line["ratio"].as_f64() > Some(0.0), "{line}");
        // One run waits for every commit of its own; many share them.
        let commits = line["store_commits"].as_u64().expect("a count");
        match line["runs"].as_u64() {
            Some(1) => assert_eq!(commits, 51, "{line}"),
            _ => assert!((2..512).contains(&commits), "{line}"),
        }
    }
    let left = std::fs::read_dir(folder.path())
        .expect("the folder is there")
        .count();
    assert_eq!(left, 0, "nothing is left behind");
}
