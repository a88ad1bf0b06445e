//! Bad input to commands: one clear message with a hint, the right exit code, and no partial
//! changes on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::project::{CommandOutput, Project};

const UNKNOWN_RUN: &str = "run_00000000000000000000000000";
const UNKNOWN_GATE: &str = "gate_00000000000000000000000000";

/// A problem, a command, and the expected message.
struct Case {
    name: &'static str,
    /// Files to create first.
    files: &'static [(&'static str, &'static str)],
    env: &'static [(&'static str, &'static str)],
    args: &'static [&'static str],
    code: i32,
    expected: &'static [&'static str],
}

const GARBAGE: &str = "this is not a database, and it is longer than the header of one would be";

const CASES: &[Case] = &[
    Case {
        name: "an unknown agent",
        files: &[],
        env: &[],
        args: &["run", "tydi", "x"],
        code: 2,
        expected: &["no agent named `tydi`", "longhaul agents"],
    },
    Case {
        name: "an agent file with a wrong tool",
        files: &[("agents/bad.md", "---\ntools: [vault_wirte]\n---\nYou.")],
        env: &[],
        args: &["submit", "bad", "x"],
        code: 2,
        expected: &["agents/bad.md:2:9", "`vault_write`", "longhaul agents"],
    },
    Case {
        name: "an agent file that is not YAML",
        files: &[("agents/bad.md", "---\ntools: [\n---\nYou.")],
        env: &[],
        args: &["run", "bad", "x"],
        code: 2,
        expected: &["agents/bad.md:", "longhaul agents"],
    },
    Case {
        name: "a broken script",
        files: &[("scripts/plain.yaml", "replies:\n  - txet: hello\n")],
        env: &[],
        args: &["run", "plain", "x"],
        code: 2,
        expected: &["scripts/plain.yaml:2:5", "txet", "did you mean `text`?"],
    },
    Case {
        name: "a missing script",
        files: &[("agents/lost.md", "---\nmodel: scripted/nowhere\n---\nYou.")],
        env: &[],
        args: &["run", "lost", "x"],
        code: 2,
        expected: &["nowhere", "longhaul config show"],
    },
    Case {
        name: "a misspelled setting",
        files: &[("longhaul.toml", "[worker]\nlese = \"20s\"\n")],
        env: &[],
        args: &["ls"],
        code: 2,
        expected: &["longhaul.toml:2:1", "`worker.lease`", "longhaul config path"],
    },
    Case {
        name: "a settings file that is not TOML",
        files: &[("longhaul.toml", "[worker\n")],
        env: &[],
        args: &["run", "plain", "x"],
        code: 2,
        expected: &["longhaul.toml:1", "longhaul config path"],
    },
    Case {
        name: "a store that is a folder",
        files: &[],
        env: &[("LONGHAUL_STORE", "sqlite:agents")],
        args: &["run", "plain", "x"],
        code: 2,
        expected: &["agents", "LONGHAUL_"],
    },
    Case {
        name: "a folder as a store that is only read",
        files: &[],
        env: &[("LONGHAUL_STORE", "sqlite:agents")],
        args: &["ls"],
        code: 2,
        expected: &["agents", "LONGHAUL_"],
    },
    Case {
        name: "a store below a file",
        files: &[],
        env: &[("LONGHAUL_STORE", "sqlite:longhaul.toml/runs.db")],
        args: &["submit", "plain", "x"],
        code: 2,
        expected: &["longhaul.toml", "LONGHAUL_"],
    },
    Case {
        name: "a folder that is not writable",
        files: &[],
        env: &[("LONGHAUL_STORE", "sqlite:/proc/longhaul/runs.db")],
        args: &["run", "plain", "x"],
        code: 2,
        expected: &["/proc/longhaul", "LONGHAUL_"],
    },
    Case {
        name: "an unsupported kind of store",
        files: &[],
        env: &[("LONGHAUL_STORE", "mysql://localhost/runs")],
        args: &["run", "plain", "x"],
        code: 2,
        expected: &["mysql", "longhaul config"],
    },
    Case {
        name: "a store file with garbage",
        files: &[(".longhaul/longhaul.db", GARBAGE)],
        env: &[],
        args: &["run", "plain", "x"],
        code: 2,
        expected: &["longhaul.db", "not a SQLite database", "LONGHAUL_STORE="],
    },
    Case {
        name: "a store file with garbage that is only read",
        files: &[(".longhaul/longhaul.db", GARBAGE)],
        env: &[],
        args: &["ls"],
        code: 2,
        expected: &["longhaul.db", "not a SQLite database", "LONGHAUL_STORE="],
    },
    Case {
        name: "an input with a mistake in its JSON",
        files: &[],
        env: &[],
        args: &["run", "plain", "{\"version\": \"1.2\",}"],
        code: 2,
        expected: &["begins like JSON", "line 1 column 19", "--text"],
    },
    Case {
        name: "a payload with a mistake in its JSON",
        files: &[],
        env: &[],
        args: &["inbox", "post", "mail", "[\"a\""],
        code: 2,
        expected: &["begins like JSON", "line 1 column 4", "--text"],
    },
    Case {
        name: "a schedule with a mistake in its JSON",
        files: &[],
        env: &[],
        args: &["schedules", "add", "s", "--every", "1h", "--agent", "plain", "--input", "{a: 1}"],
        code: 2,
        expected: &["begins like JSON", "line 1 column 2", "--text"],
    },
    Case {
        name: "an option that hides a part of itself",
        files: &[],
        env: &[],
        args: &["run", "plain", "--mo\u{202e}led", "x\u{1b}[8m"],
        code: 2,
        expected: &["--mo·led"],
    },
];

/// Expected messages for unknown runs and gates, in a project with runs.
const UNKNOWN_NAMES: &[(&[&str], &[&str])] = &[
    (&["show", UNKNOWN_RUN], &["there is no run", "longhaul ls --all"]),
    (&["show", UNKNOWN_RUN, "--events"], &["there is no run", "longhaul ls --all"]),
    (&["show", UNKNOWN_RUN, "--transcript"], &["there is no run", "longhaul ls --all"]),
    (&["why", UNKNOWN_RUN], &["there is no run", "longhaul ls --all"]),
    (&["watch", UNKNOWN_RUN], &["there is no run", "longhaul ls --all"]),
    (&["steer", UNKNOWN_RUN, "x"], &["there is no run", "longhaul ls --all"]),
    (&["steer", UNKNOWN_RUN, "--status"], &["there is no run", "longhaul ls --all"]),
    (&["cancel", UNKNOWN_RUN], &["there is no run", "longhaul ls --all"]),
    (&["pause", UNKNOWN_RUN], &["there is no run", "longhaul ls --all"]),
    (&["resume", UNKNOWN_RUN], &["there is no run", "longhaul ls --all"]),
    (&["gates", "--run", UNKNOWN_RUN], &["there is no run", "longhaul ls --all"]),
    (&["approve", UNKNOWN_RUN, "--yes"], &["there is no run", "longhaul ls --all"]),
    (&["approve", UNKNOWN_GATE, "--yes"], &["there is no gate", "longhaul gates"]),
    (&["reject", UNKNOWN_GATE], &["there is no gate", "longhaul gates"]),
    (&["answer", UNKNOWN_GATE, "x"], &["there is no gate", "longhaul gates"]),
    (&["gates", "show", UNKNOWN_GATE], &["there is no gate", "longhaul gates"]),
    (&["show", "zzzzzz"], &["no run whose id begins or ends with `zzzzzz`", "longhaul ls --all"]),
    (&["approve", "zzzzzz"], &["begins or ends with `zzzzzz`", "longhaul"]),
    (&["show", "x"], &["`x` is not an id", "longhaul ls --all"]),
    (&["show", "gate_0000000000000000000000000"], &["is not an id", "longhaul ls --all"]),
];

/// Returns every file below a folder with its content.
fn read_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.insert(path.clone(), Vec::new());
            found.extend(read_files(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

/// Asserts that there is one message, in our own words and with a hint.
fn assert_error(case: &str, output: &CommandOutput, code: i32, expected: &[&str]) {
    assert_eq!(output.code, code, "{case}: {output:?}");
    assert_eq!(output.out, "", "{case}: {output:?}");
    let errors = output.err.lines().filter(|line| line.starts_with("error:"));
    assert_eq!(errors.count(), 1, "{case}: {output:?}");
    for part in expected {
        assert!(output.err.contains(part), "{case}, {part}: {output:?}");
    }
    for forbidden in ["panicked", "RUST_BACKTRACE", "SqliteFailure", "Os {"] {
        assert!(!output.err.contains(forbidden), "{case}: {output:?}");
    }
}

#[test]
fn an_error_is_printed_once_and_leaves_no_files() {
    for case in CASES {
        let project = Project::new();
        for (name, text) in case.files {
            project.write(name, text);
        }
        let before = read_files(project.path());
        let mut command = project.command(case.args);
        let output = command.envs(case.env.iter().copied()).output();
        assert_error(
            case.name,
            &CommandOutput::from_output(&output.unwrap()),
            case.code,
            case.expected,
        );
        assert!(read_files(project.path()) == before, "{}: files have changed", case.name);
    }
}

#[test]
fn an_unknown_name_is_reported_with_a_list_command() {
    let project = Project::new();
    project.submit("plain", "milk");
    for (args, expected) in UNKNOWN_NAMES {
        let output = project.run(args, 2);
        assert_error(&args.join(" "), &output, 2, expected);
    }
    let run = project.run_until_gate("both");
    let output = project.run(&["approve", &run, "--yes"], 2);
    assert_error("two gates", &output, 2, &["has 2 open gates", "longhaul gates show gate_"]);
    assert_eq!(output.err.matches("gates show gate_").count(), 2, "{output:?}");
}

#[test]
fn a_store_of_a_newer_build_is_left_alone() {
    let project = Project::new();
    project.submit("plain", "milk");
    #[expect(
        clippy::disallowed_methods,
        reason = "the test plays the other program that wrote the file"
    )]
    let conn = rusqlite::Connection::open(project.store()).unwrap();
    let sql =
        "INSERT INTO migration VALUES (2, 'later', x'00', 0); PRAGMA wal_checkpoint(TRUNCATE)";
    conn.execute_batch(sql).unwrap();
    drop(conn);
    let before = fs::read(project.store()).unwrap();
    for args in [&["ls"][..], &["run", "plain", "x"], &["show", "@last"], &["worker"]] {
        let output = CommandOutput::from_output(&project.command(args).output().unwrap());
        assert_error(
            "newer",
            &output,
            2,
            &["schema version 2", "use a newer longhaul", "longhaul version"],
        );
    }
    let after = fs::read(project.store()).unwrap();
    let changed_offsets = (0..before.len()).filter(|at| before.get(*at) != after.get(*at));
    let changed_offsets: Vec<usize> = changed_offsets.take(8).collect();
    assert!(changed_offsets.is_empty(), "the file was changed at {changed_offsets:?}");
}

/// A small mounted disk, if this user may mount one.
struct MountedDisk(tempfile::TempDir);

impl MountedDisk {
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount_output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "longhaul-test"])
            .arg(folder.path())
            .output();
        let is_mounted = mount_output.is_ok_and(|output| output.status.success());
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn a_full_or_read_only_disk_is_reported() {
    for (options, expected) in [
        ("size=64k", &["is full", "LONGHAUL_STORE=sqlite:/other/disk"][..]),
        ("size=64k,ro", &["can't be written", "LONGHAUL_"]),
    ] {
        let Some(disk) = MountedDisk::mount(options) else {
            eprintln!("skipped: mounting is not allowed here");
            return;
        };
        let project = Project::new();
        let store = format!("sqlite:{}/runs.db", disk.0.path().display());
        for args in [&["run", "plain", "x"][..], &["submit", "plain", "x"], &["worker"]] {
            let mut command = project.command(args);
            let output = command.env("LONGHAUL_STORE", &store).output();
            assert_error(options, &CommandOutput::from_output(&output.unwrap()), 2, expected);
        }
    }
}

/// A store on a full or read-only disk can still be read.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn a_full_or_read_only_disk_can_be_read() {
    let Some(disk) = MountedDisk::mount("size=4m") else {
        eprintln!("skipped: mounting is not allowed here");
        return;
    };
    let project = Project::new();
    let store = format!("sqlite:{}/runs.db", disk.0.path().display());
    let run_cli = |args: &[&str]| {
        let mut command = project.command(args);
        CommandOutput::from_output(&command.env("LONGHAUL_STORE", &store).output().unwrap())
    };
    assert_eq!(run_cli(&["run", "plain", "x"]).code, 0);
    let fill_file = disk.0.path().join("fill");
    // Fails when the disk is full, which is intended.
    _ = std::fs::write(&fill_file, vec![0; 8 << 20]);
    let check_reads = |case: &str, expected: &str| {
        let listed = run_cli(&["ls"]);
        assert_eq!(listed.code, 0, "{case}: {listed:?}");
        assert!(listed.out.contains("completed"), "{case}: {listed:?}");
        assert_eq!(run_cli(&["show", "@last", "--json"]).code, 0, "{case}");
        assert_error(case, &run_cli(&["submit", "plain", "x"]), 2, &[expected]);
    };
    check_reads("full", "is full");
    std::fs::remove_file(fill_file).unwrap();
    let remount = ["-o", "remount,ro"];
    let remount_status = Command::new("mount").args(remount).arg(disk.0.path()).status();
    assert!(remount_status.unwrap().success());
    check_reads("read-only", "can't be written");
}
