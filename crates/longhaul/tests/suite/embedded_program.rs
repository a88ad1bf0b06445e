//! Builds the first program of `docs/library.md` outside of this workspace, with `longhaul` as its only
//! Longhaul dependency and without the code of projects, kills it during its work, and runs it again.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use longhaul::{HandlerError, Runtime, Task};

use super::standalone_build::{build_program, package_and_workspace};

fn first_program() -> String {
    program_in_document("docs/library.md")
}

fn program_in_document(path: &str) -> String {
    let (_, workspace) = package_and_workspace();
    let document = fs::read_to_string(workspace.join(path)).unwrap();
    let (_, rest) = document.split_once("```rust program\n").expect("the program");
    let (program, _) = rest.split_once("```").expect("the end of the program");
    program.to_owned()
}

fn spawn_program(program: &Path, folder: &Path) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child =
        Command::new(program).current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.map(Result::unwrap))
}

#[test]
fn the_first_program_has_ten_lines_which_the_readme_shows() {
    let program = first_program();
    let body = program.lines().skip_while(|line| !line.contains("fn main"));
    let body = body.skip(1).take_while(|line| *line != "}");
    let body: Vec<&str> = body.map(|line| line.strip_prefix("    ").unwrap()).collect();
    assert_eq!(body.len(), 10, "{program}");
    let readme_program = program_in_document("README.md");
    assert_eq!(readme_program.lines().collect::<Vec<_>>(), body);
}

#[tokio::test]
async fn the_first_program_resumes_after_a_kill_and_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = build_program("longhaul-first-program", &["project"], &first_program(), folder);
    let file = |name: &str| folder.join(name);
    fs::write(file("one.txt"), "to be or").unwrap();
    fs::write(file("three.txt"), "the rest is silence").unwrap();
    let mkfifo_status = Command::new("mkfifo").arg(file("two.txt")).status();
    assert!(mkfifo_status.unwrap().success());

    let (mut child, mut lines) = spawn_program(&program, folder);
    assert_eq!(lines.next().as_deref(), Some("one.txt: 3 words"));
    // Opening a pipe for writing waits for the reader, so the handler is reading the file now.
    let fifo_writer = File::options().write(true).open(file("two.txt")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(fifo_writer);

    // If the first file were counted again, the program would fail.
    fs::remove_file(file("one.txt")).unwrap();
    fs::remove_file(file("two.txt")).unwrap();
    fs::write(file("two.txt"), "not to be").unwrap();
    let (mut child, lines) = spawn_program(&program, folder);
    let printed: Vec<String> = lines.collect();
    assert!(child.wait().unwrap().success());
    let expected = ["one.txt: 3 words", "two.txt: 3 words", "three.txt: 4 words"];
    assert_eq!(printed, expected);

    // The journals confirm it: only the interrupted call was started twice.
    let store = format!("sqlite:{}", file("agents.db").display());
    let unused_handler =
        |_, _| async move { Err::<(), _>(HandlerError::new("the handler was called again")) };
    let builder = Runtime::builder().store(store).handler("count", unused_handler);
    let runtime = builder.open().await.unwrap();
    for (path, expected_starts) in [("one.txt", 1), ("two.txt", 2), ("three.txt", 1)] {
        let task = Task::new("count").input(path).idempotency_key(path);
        let run = runtime.submit(task).await.unwrap();
        let mut events = run.events();
        let mut kinds = Vec::new();
        while let Some(entry) = events.next().await {
            kinds.push(entry.unwrap().event.kind());
        }
        let count = |wanted: &str| kinds.iter().filter(|kind| **kind == wanted).count();
        assert_eq!(count("tool.started"), expected_starts, "{path}: {kinds:?}");
        assert_eq!(count("run.completed"), 1, "{path}: {kinds:?}");
    }
}
