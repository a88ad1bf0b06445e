//! A worker that serves two inboxes: one in the store, to which the program submits tasks, and a
//! folder, into which anybody can put files.
//!
//! It needs no model and stores nothing, so it runs anywhere.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use longhaul::inbox::FolderInbox;
use longhaul::{Runtime, Task, WorkerHandle};

async fn open() -> Result<Runtime, longhaul::Error> {
    Runtime::builder()
        .store("sqlite::memory:")
        .handler("count_words", |request, _progress| async move {
            let text: String = request.input()?;
            Ok(format!("{} words", text.split_whitespace().count()))
        })
        .open()
        .await
}

fn start_worker(runtime: &Runtime, folder: &Path) -> io::Result<WorkerHandle> {
    let notes = FolderInbox::open("notes", folder, "count_words")?;
    let worker = runtime
        .worker()
        .inbox("mail")
        .source(notes)
        .max_concurrent(4)
        .on_task_complete(|run| println!("{} of the inbox {} completed", run.id, run.inbox));
    Ok(worker.spawn())
}

/// Waits for the result of the task that was the file `note.txt`.
async fn wait_for_result(folder: &Path) -> Result<String, Box<dyn Error>> {
    loop {
        for entry in fs::read_dir(folder.join("done"))? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(".result.json") {
                return Ok(fs::read_to_string(path)?);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let runtime = open().await?;
    let worker = start_worker(&runtime, folder.path())?;
    let task = Task::new("count_words").inbox("mail").input("Dear Sir or Madam");
    println!("{}", runtime.submit(task).await?.wait().await?.text()?);
    // Renamed when it is complete, so that it is never read half-written.
    fs::write(folder.path().join("note.part"), "To whom it may concern")?;
    fs::rename(folder.path().join("note.part"), folder.path().join("note.txt"))?;
    println!("{}", wait_for_result(folder.path()).await?);
    worker.stop().await?;
    Ok(())
}
