//! The demo without a terminal and with one: its figures are correct, and it can be repeated.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::terminal::run_at_terminal;

fn run_demo(folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("demo").current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGHAUL_") {
            command.env_remove(name);
        }
    }
    command.output().expect("the demo runs")
}

fn output_text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_demo_survives_its_own_sigkill_and_can_be_run_again() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let first = output_text(&run_demo(folder.path()));
    for expected in [
        "no AI is called in this demo",
        "Carry out this plan?",
        "approved, by the demo, no terminal",
        "killed with SIGKILL, on purpose",
        "on a new worker",
        "4  model replies and 11 tool results were recorded before it",
        "0  of them were repeated",
        "1  model call was in flight and was repeated",
        "0  effects are in doubt",
        "$0.00 (scripted)",
    ] {
        assert!(first.contains(expected), "`{expected}` is missing in:\n{first}");
    }
    let (banner, _) = first.split_once("run_").expect("the run is printed");
    assert!(banner.contains("no terminal: the demo approves automatically"), "{banner}");
    assert!(banner.contains("elsewhere nothing is approved"), "{banner}");
    let notes = folder.path().join("longhaul-demo/.longhaul/vault");
    for note in [
        "Index.md",
        "Projects/Garden lamp.md",
        "Work/Tuesday meeting.md",
        "Home/Groceries.md",
        "Plans/Tidy the inbox.md",
    ] {
        assert!(notes.join(note).is_file(), "{note} was not written");
    }
    let second_output = output_text(&run_demo(folder.path()));
    assert!(second_output.contains("0  of them were repeated"), "{second_output}");
}

#[test]
fn the_demo_keeps_to_its_own_folder_in_a_project() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let file = folder.path().join("longhaul.toml");
    std::fs::write(&file, "# mine\n").expect("the file is written");
    output_text(&run_demo(folder.path()));
    assert!(folder.path().join(".longhaul/demo/agents/demo-tidier.md").is_file());
    assert!(!folder.path().join(".longhaul/longhaul.db").exists());
    assert!(!folder.path().join("agents").exists());
}

#[test]
fn an_unwritable_folder_is_reported() {
    let output = run_demo(Path::new("/proc"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("change to another folder"), "{stderr}");
}

#[test]
fn the_demo_is_answered_from_a_terminal() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let steps = [("a approve ·", "w\n"), ("The run waits for an approval", "a\n")];
    let (text, code) = run_at_terminal(folder.path(), &["demo"], &[], &steps);
    assert_eq!(code, Some(0), "{text}");
    for expected in
        ["The run waits for an approval", "approved, by cli", "0  of them were repeated"]
    {
        assert!(text.contains(expected), "`{expected}` is missing in:\n{text}");
    }
    assert!(!text.contains("no terminal"), "{text}");
    assert_eq!(text.matches("approve · r").count(), 1, "one answer is enough:\n{text}");
}
