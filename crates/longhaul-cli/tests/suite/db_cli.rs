//! `longhaul db`: backups of a store in use, checks and restores.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::project::{Project, has_status};

#[test]
fn a_run_resumes_from_a_backup_made_while_driven() {
    let project = Project::new();
    let worker = project.start_worker();
    let tidy_run = project.submit("tidy", "milk");
    project.wait_until(&tidy_run, has_status("waiting"));
    // The driver keeps writing during the copy.
    for _ in 0..20 {
        project.submit("plain", "bread");
    }
    let output = project.run(&["db", "backup", "copy.db"], 0);
    assert!(output.out.starts_with("copy.db: "), "{output:?}");
    let mode = fs::metadata(project.path().join("copy.db")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let checked = project.json(&["db", "check", "copy.db", "--json"]);
    assert_eq!(checked["ok"], true, "{checked}");
    assert_eq!(project.json(&["db", "check", "--json"])["ok"], true);

    let output = project.run(&["db", "backup", "copy.db"], 2);
    assert!(output.err.contains("--force"), "{output:?}");
    project.run(&["db", "backup", "copy.db", "--force"], 0);

    let output = project.run(&["db", "restore", "copy.db"], 5);
    assert!(output.err.contains("pid "), "{output:?}");
    drop(worker);
    fs::remove_file(project.store()).unwrap();
    for suffix in ["-wal", "-shm"] {
        _ = fs::remove_file(format!("{}{suffix}", project.store().display()));
    }
    let output = project.run(&["db", "restore", "copy.db"], 0);
    assert!(output.out.contains("restored"), "{output:?}");
    project.run(&["approve", &tidy_run, "--yes"], 0);
    project.run(&["watch", &tidy_run, "--no-input"], 0);
    project.wait_until(&tidy_run, has_status("completed"));
}

#[test]
fn a_damaged_store_is_reported_and_kept_by_a_restore() {
    let project = Project::new();
    let output = project.run(&["db", "check"], 2);
    assert!(output.err.contains("longhaul demo"), "{output:?}");
    project.run(&["run", "plain", "bread"], 0);
    let output = project.run(&["db", "check"], 0);
    assert!(output.out.contains("1 runs") && output.out.contains(": ok"), "{output:?}");
    project.run(&["db", "backup", "copy.db"], 0);

    let store_bytes = fs::read(project.store()).unwrap();
    fs::write(project.store(), &store_bytes[..store_bytes.len() / 2]).unwrap();
    let output = project.run(&["db", "check"], 1);
    assert!(output.out.contains("pages: "), "{output:?}");
    assert!(output.err.contains("longhaul db restore FILE"), "{output:?}");
    for args in [&["ls"][..], &["ls", "--json"], &["show", "@last"], &["gates"], &["why", "@last"]]
    {
        let output = project.run(args, 2);
        for expected in ["is corrupt", "longhaul db check", "longhaul db restore FILE"] {
            assert!(output.err.contains(expected), "{args:?}: {output:?}");
        }
    }
    let output = project.run(&["db", "check", "--json"], 1).json();
    assert_eq!(output["ok"], false);
    assert_eq!(output["problems"][0]["kind"], "pages");

    let restored = project.json(&["db", "restore", "copy.db", "--json"]);
    let kept_file = restored["kept"].as_str().unwrap();
    assert_eq!(fs::read(kept_file).unwrap(), &store_bytes[..store_bytes.len() / 2]);
    assert_eq!(project.json(&["db", "check", "--json"])["runs"], 1);
}
