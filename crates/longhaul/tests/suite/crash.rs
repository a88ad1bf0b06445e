//! Tests of handlers whose process is killed during a call. The test binary starts itself as a child process.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul::{Handler, HandlerError, Runtime, RuntimeBuilder, Status, Task};

/// Variable with the store folder of the child process. It is not set in the test itself.
const FOLDER_VAR: &str = "CRASH_TEST_FOLDER";

fn builder(folder: &Path) -> RuntimeBuilder {
    Runtime::builder().store(format!("sqlite:{}", folder.join("agents.db").display()))
}

fn task() -> Task {
    Task::new("dig").input(7).idempotency_key("hole")
}

/// Prints the attempt and waits until the process is killed.
async fn run_hanging_handler(folder: OsString, is_once: bool) {
    let handler = Handler::new("dig", |request, _| async move {
        let depth: u32 = request.input()?;
        writeln!(
            std::io::stdout(),
            "attempt {} of {depth}, {}",
            request.attempt,
            request.key == request.run.to_string()
        )?;
        std::future::pending::<Result<(), HandlerError>>().await
    });
    let handler = if is_once { handler.once() } else { handler };
    let runtime = builder(Path::new(&folder)).register(handler).open().await.unwrap();
    let _worker = runtime.worker().spawn();
    let run = runtime.submit(task()).await.unwrap();
    run.wait().await.unwrap();
}

/// Starts the child process, waits until the handler runs and kills it. Returns the printed line.
fn start_and_kill(folder: &Path, test: &str) -> String {
    let mut child = Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(FOLDER_VAR, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let attempt_line = lines.find(|line| line.starts_with("attempt "));
    child.kill().unwrap();
    child.wait().unwrap();
    attempt_line.expect("the process ended before the handler was called")
}

#[tokio::test]
async fn a_call_that_was_killed_is_made_again_as_the_second_attempt() {
    if let Some(folder) = env::var_os(FOLDER_VAR) {
        return run_hanging_handler(folder, false).await;
    }
    let test = "suite::crash::a_call_that_was_killed_is_made_again_as_the_second_attempt";
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start_and_kill(folder.path(), test), "attempt 1 of 7, true");
    let builder =
        builder(folder.path()).handler("dig", |request, _| async move { Ok(request.attempt) });
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(task()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().data::<u32>().unwrap(), 2);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_is_blocked_after_four_crashes_at_the_same_place() {
    if let Some(folder) = env::var_os(FOLDER_VAR) {
        return run_hanging_handler(folder, false).await;
    }
    let test = "suite::crash::a_run_is_blocked_after_four_crashes_at_the_same_place";
    let folder = tempfile::tempdir().unwrap();
    for attempt in 1..=4 {
        let line = start_and_kill(folder.path(), test);
        assert_eq!(line, format!("attempt {attempt} of 7, true"));
    }
    let builder = builder(folder.path()).handler("dig", |_, _| async move {
        Err::<(), _>(HandlerError::new("the handler was called a fifth time"))
    });
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(task()).await.unwrap();
    let mut events = run.events();
    while let Some(entry) = events.next().await {
        if entry.unwrap().event.kind() == "run.blocked" {
            break;
        }
    }
    let view = run.view().await.unwrap();
    assert_eq!(view.status, Status::Blocked, "{view:?}");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_runs_once_is_in_doubt_after_a_crash() {
    if let Some(folder) = env::var_os(FOLDER_VAR) {
        return run_hanging_handler(folder, true).await;
    }
    let test = "suite::crash::a_handler_that_runs_once_is_in_doubt_after_a_crash";
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start_and_kill(folder.path(), test), "attempt 1 of 7, true");
    let handler = Handler::new("dig", |_, _| async move { Ok("again") }).once();
    let runtime = builder(folder.path()).register(handler).open().await.unwrap();
    let worker = runtime.worker().spawn();
    let done = runtime.submit(task()).await.unwrap().wait().await.unwrap();
    let error = done.error.expect("the handler was called again");
    assert_eq!(error.code, "in_doubt", "{error:?}");
    worker.stop().await.unwrap();
}
