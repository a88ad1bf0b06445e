//! The scripts of this repository, run with stub commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory of stub commands that precedes the real ones in `PATH`.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// Creates stubs: `apt-get` and `sudo` log their arguments, `id` prints the user id.
    fn new(uid: u32, sudo: &str) -> Self {
        let machine = Self { folder: TempDir::new().expect("a temporary directory") };
        let log = machine.path("log");
        machine.stub("apt-get", &format!("echo \"apt-get $*\" >>'{}'", log.display()));
        machine.stub("id", &format!("echo {uid}"));
        machine.stub("sudo", sudo);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn stub(&self, name: &str, body: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/usr/bin/env bash\n{body}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    fn setup(&self, list: &str) -> Output {
        fs::write(self.path("list"), list).expect("written");
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new(root().join("scripts/setup"))
            .arg(self.path("list"))
            .env("PATH", format!("{}:{path}", self.folder.path().display()))
            .output()
            .expect("setup starts")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).current_dir(root());
    command
}

fn output_text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

const MISSING: &str =
    "# a comment\n\nbash bash runs this\nno-such-thing thing-package for a test\n";

#[test]
fn setup_does_nothing_if_nothing_is_missing() {
    let machine = Machine::new(0, "exit 1");
    let output = machine.setup("bash bash runs this\n");
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(machine.log(), "");
}

#[test]
fn setup_installs_missing_packages_if_permitted() {
    let expected = "apt-get update -qq\napt-get install -y --no-install-recommends thing-package\n";
    let as_root = Machine::new(0, "exit 1");
    assert!(as_root.setup(MISSING).status.success());
    assert_eq!(as_root.log(), expected);
    let with_sudo = Machine::new(1000, "[[ $1 == -n ]] || exec \"$@\"");
    assert!(with_sudo.setup(MISSING).status.success());
    assert_eq!(with_sudo.log(), expected);
}

#[test]
fn setup_prints_the_command_if_not_permitted() {
    let machine = Machine::new(1000, "exit 1");
    let output = machine.setup(MISSING);
    assert_eq!(output.status.code(), Some(1));
    let expected =
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends thing-package";
    assert!(output_text(&output).contains(expected), "{}", output_text(&output));
    assert_eq!(machine.log(), "");
}

#[test]
fn a_failing_stage_stops_the_gate_and_says_how_to_repeat_it() {
    let script = "source scripts/lib.sh; stage one true; stage two grep 'a b' /dev/null; echo on";
    let output = bash(script).output().expect("bash starts");
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("== one: 0 s"), "{text}");
    assert!(
        text.contains("== two FAILED after 0 s") && text.contains("grep 'a b' /dev/null"),
        "{text}"
    );
    assert!(!text.contains("on\n== "), "{text}");
}

#[test]
fn ci_builds_under_the_cache_and_a_person_does_not() {
    let cache = TempDir::new().expect("a temporary directory");
    let target = |ci: &str, cache: &Path| {
        let mut command = bash("source scripts/lib.sh; echo \"${CARGO_TARGET_DIR:-here}\"");
        command.env_remove("CARGO_TARGET_DIR").env("CI", ci).env("XDG_CACHE_HOME", cache);
        output_text(&command.output().expect("bash starts")).trim().to_owned()
    };
    let expected = cache.path().join("longhaul/target").display().to_string();
    assert_eq!(target("true", cache.path()), expected);
    assert_eq!(target("", cache.path()), "here");
    assert_eq!(target("true", Path::new("/nonexistent")), "here");
}

#[test]
fn interop_programs_live_in_the_ci_cache_or_the_target_folder() {
    let cache = TempDir::new().expect("a temporary directory");
    let interop_dir = |ci: &str, configured: &str| {
        let mut command = bash("source scripts/lib.sh; echo \"${LONGHAUL_INTEROP_DIR#\"$PWD/\"}\"");
        command
            .env("LONGHAUL_INTEROP_DIR", configured)
            .env("CI", ci)
            .env("XDG_CACHE_HOME", cache.path());
        let output = command.output().expect("bash starts");
        self::output_text(&output).trim().to_owned()
    };
    let cached = cache.path().join("longhaul/interop").display().to_string();
    assert_eq!(interop_dir("true", ""), cached);
    assert_eq!(interop_dir("", ""), "target/interop");
    assert_eq!(interop_dir("true", "/elsewhere"), "/elsewhere");
}
