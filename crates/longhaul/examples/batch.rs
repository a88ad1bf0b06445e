//! Batches: several tasks that are submitted together. In a sequential batch each run starts when the
//! run before it has completed, and a failure cancels the rest.
//!
//! A Rust function replaces the agent, and nothing is stored, so this runs anywhere.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use longhaul::{Error, HandlerError, Mode, Runtime, Status, Task};

/// Counts the lines of a text. An empty text is an error.
fn count_lines(text: &str) -> Result<usize, HandlerError> {
    match text.lines().count() {
        0 => Err(HandlerError::new("the text is empty")),
        lines => Ok(lines),
    }
}

async fn run_batch(runtime: &Runtime, texts: &[&str], mode: Mode) -> Result<Vec<Status>, Error> {
    let tasks = texts.iter().map(|text| Task::new("count_lines").input(text));
    let batch = runtime.submit_all(tasks, mode).await?;
    let mut statuses = Vec::new();
    for run in batch.wait().await? {
        match run.data::<usize>() {
            Ok(lines) => println!("{}: {lines} lines", run.id),
            Err(error) => println!("{}: {error}", run.id),
        }
        statuses.push(run.status);
    }
    Ok(statuses)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let runtime = Runtime::builder()
        .store("sqlite::memory:")
        .handler(
            "count_lines",
            |request, _| async move { count_lines(&request.input::<String>()?) },
        )
        .open()
        .await?;
    let worker = runtime.worker().spawn();
    let texts = ["to be or", "", "not to be"];
    let parallel = run_batch(&runtime, &texts, Mode::Parallel).await?;
    assert_eq!(parallel, [Status::Completed, Status::Failed, Status::Completed]);
    let sequential = run_batch(&runtime, &texts, Mode::Sequential).await?;
    assert_eq!(sequential, [Status::Completed, Status::Failed, Status::Cancelled]);
    worker.stop().await
}
