//! Runs that work in sandboxes, while their worker is killed with SIGKILL repeatedly. The result is
//! verified from the journals, the folders of the sandboxes and what the commands wrote there.

use std::fs;
use std::path::PathBuf;

use longhaul_core::change::{SandboxFilter, SandboxState};
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;

use super::chaos::{
    block_on, call_records, kill_count, list_runs, open_outsider, read_journal, survive_kills,
};
use super::cli::longhaul_in;

/// Compares the commands of one run with the lines that they wrote in its sandbox. Returns the number
/// of commands in doubt.
fn check_against_lines(run: RunId, entries: &[JournalEntry], lines: &str) -> u64 {
    let mut in_doubt_count = 0;
    for (call, record) in call_records(entries) {
        assert_eq!(record.ends, 1, "{run} {call} has one result");
        if record.tool != "shell" {
            continue;
        }
        assert_eq!(record.starts, 1, "{run} {call} must not be started again");
        in_doubt_count += u64::from(record.in_doubt);
        // The command of turn 8 writes nothing.
        if call.turn != 8 {
            let name = format!("{}.{}", call.turn, call.index);
            let count =
                |step| lines.lines().filter(|line| *line == format!("{step} {name}")).count();
            let counts = (count("start"), count("end"));
            let is_complete = counts == (1, 1);
            let is_at_most_once = counts.0 <= 1 && counts.1 <= counts.0;
            assert!(is_complete || record.in_doubt && is_at_most_once, "{run} {name}: {lines}");
        }
    }
    in_doubt_count
}

#[test]
fn sandboxes_survive_kills() {
    let kills = kill_count(36) / 3;
    let (_temp, scorecard) = survive_kills(kills, &["--sandbox"]);
    let folder = PathBuf::from(scorecard["folder"].as_str().unwrap());
    let runtime = open_outsider(&folder);
    let sandboxes = block_on(runtime.longhaul.list_sandboxes(SandboxFilter {
        with_gone: true,
        limit: 10_000,
        ..SandboxFilter::default()
    }));
    let sandboxes = sandboxes.unwrap();
    let runs = list_runs(&runtime);
    assert_eq!(sandboxes.len(), runs.len(), "each run has kept its sandbox");
    assert_eq!(scorecard["sandboxes"], sandboxes.len());
    let mut in_doubt_count = 0;
    for sandbox in &sandboxes {
        assert_eq!(sandbox.state, SandboxState::Stopped, "{sandbox:?}");
        let workspace = folder.join(".longhaul/sandboxes").join(&sandbox.handle).join("workspace");
        let lines = fs::read_to_string(workspace.join("lines")).unwrap();
        let entries = read_journal(&runtime, sandbox.run);
        in_doubt_count += check_against_lines(sandbox.run, &entries, &lines);
    }
    assert!(in_doubt_count > 0 || kills < 50, "no kill has hit a command");
    drop(runtime);
    // Finds slots of sandboxes that do not run.
    let output = longhaul_in(&folder, &["db", "check"], &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
