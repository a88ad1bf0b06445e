//! The binary's help, version and usage errors.

use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn longhaul(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul")).args(args).output().expect("the binary runs")
}

/// Removes every model of the user who runs the tests from a command's environment.
pub(crate) fn remove_model_env(command: &mut Command) {
    for provider in longhaul_model::providers::built_in::BUILT_IN_PROVIDERS {
        for name in provider.key_env {
            command.env_remove(name);
        }
    }
    command
        .env_remove("KIMI_CONVERSATION_MODEL")
        .env_remove("KIMI_IDLE_MODEL")
        // Nothing listens there.
        .env("OLLAMA_HOST", "127.0.0.1:1");
}

/// Runs the binary in a folder, with only the given settings.
pub(crate) fn longhaul_in(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    command_in(folder, args, env).output().expect("the binary runs")
}

/// Builds a command of the binary in a folder, with only the given settings.
pub(crate) fn command_in(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGHAUL_") {
            command.env_remove(name);
        }
    }
    remove_model_env(&mut command);
    command
        .args(args)
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .envs(env.iter().copied());
    command
}

fn assert_output(args: &[&str], code: i32, expected: &str) {
    let output = longhaul(args);
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(text.contains(expected), "{args:?} said: {text}");
}

#[test]
fn help_and_version_are_printed() {
    assert_output(&["--help"], 0, "A durable runtime for AI agents");
    assert_output(&["version"], 0, "journal format 1");
    assert_output(&["version", "--json"], 0, "\"journal_format\":1");
    assert_output(&[], 2, "Usage");
}

#[test]
fn the_help_is_on_stdout_and_shows_commands_in_groups() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let output = longhaul(args);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let groups = ["\nStart:\n  init", "\nRuns:\n  run", "\nPeople:\n", "\nAdmin:\n"];
        assert!(groups.iter().all(|group| text.contains(group)), "{text}");
        assert!(!text.contains("Other:") && text.lines().all(|line| line.len() <= 100), "{text}");
    }
}

#[test]
fn shells_complete_commands_agents_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("agents")).unwrap();
    std::fs::write(folder.path().join("agents/tidy.md"), "---\n---\nYou.").unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = longhaul_in(folder.path(), &["completions", shell], &[]);
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && script.contains("LONGHAUL_COMPLETE"), "{script}");
    }
    let complete = |line: &[&str]| {
        let args = [&["--", "longhaul"], line].concat();
        let output = longhaul_in(folder.path(), &args, &[("LONGHAUL_COMPLETE", "fish")]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(complete(&["sched"]).starts_with("schedules\t"));
    assert!(complete(&["run", "ti"]).starts_with("tidy"));
    assert!(complete(&["agents", "show", ""]).contains("tidy"));
    for args in [&["show", ""][..], &["cancel", ""], &["fork", ""]] {
        assert!(complete(args).contains("@last\t"), "{args:?}");
    }
    assert!(!folder.path().join(".longhaul").exists());
}

#[test]
fn manual_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = longhaul_in(folder.path(), &["man", "man1"], &[]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(folder.path().join("man1/longhaul-run.1")).unwrap();
    assert!(page.contains(".TH longhaul-run 1") && page.contains("Examples:"), "{page}");
    std::fs::write(folder.path().join("file"), "").unwrap();
    let output = longhaul_in(folder.path(), &["man", "file/x"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_an_error() {
    let full_device =
        std::fs::File::options().write(true).open("/dev/full").expect("/dev/full can be opened");
    let status = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .arg("version")
        .stdout(full_device)
        .status()
        .expect("the binary runs");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn usage_errors_name_a_command_that_helps() {
    assert_output(&["verison"], 2, "similar subcommand exists: 'version'");
    assert_output(&["chaos", "--runs", "0"], 2, "1..=10000");
}
