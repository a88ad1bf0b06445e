//! `longhaul batch`: submits a file of tasks as a batch, and shows a batch.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use longhaul_api::operations::{SHOW_BATCH, SUBMIT_BATCH};
use longhaul_api::problem::Problem;
use longhaul_api::task::{NewBatchBody, Task};
use longhaul_core::id::BatchId;
use longhaul_core::task::RunBatchMode;

use crate::client::connect::{with_client, with_client_or_new_store};
use crate::error::CliError;
use crate::ls::agent_and_step_text;
use crate::output;
use crate::run_status::needs_driver;
use crate::table;
use crate::task_args::parse_idempotency_key;

/// Maximum size of a file of tasks in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul batch submit tasks.jsonl                one task per line, such as
                                                   {\"agent\": \"writer\", \"input\": \"Hello\"}
  longhaul batch submit tasks.jsonl --sequential   each task starts when the one before it has
                                                   completed; after a failure the rest is cancelled
  longhaul batch submit - < tasks.jsonl
  longhaul batch show batch_01k3rzc...

A task has the fields of the body of POST /v1/runs. All tasks are submitted, or none.";

/// The subcommands of `longhaul batch`.
#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Submits the tasks of a file, one JSON object per line: all of them or none
    Submit {
        /// File of tasks, one JSON object per line; `-` reads them from stdin
        file: PathBuf,
        /// Start each task when the one before it has completed; cancel the rest after a failure
        #[arg(long)]
        sequential: bool,
        /// Idempotency key: submit only once, even if this command is repeated with the same key
        #[arg(long, value_name = "KEY", value_parser = parse_idempotency_key)]
        idempotency_key: Option<String>,
        /// Print the batch as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Shows the runs of a batch, in order
    Show {
        /// Id of the batch
        batch: BatchId,
        /// Print the batch as one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl BatchCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Submit { file, sequential, idempotency_key, json } => {
                let mode = match sequential {
                    true => RunBatchMode::Sequential,
                    false => RunBatchMode::Parallel,
                };
                submit_batch(file, mode, idempotency_key.clone(), *json)
            }
            Self::Show { batch, json } => show_batch(*batch, *json),
        }
    }
}

fn submit_batch(
    file: &Path,
    mode: RunBatchMode,
    idempotency_key: Option<String>,
    json: bool,
) -> anyhow::Result<()> {
    let runs = parse_batch_tasks(&read_batch_file(file)?)?;
    let request = SUBMIT_BATCH.at(()).body(&NewBatchBody { runs, mode });
    let request = request.idempotency_key(idempotency_key);
    let batch = with_client_or_new_store(async |client| client.send(request).await);
    let batch = batch.map_err(name_task_in_error)?;
    if json {
        return output::print_json(&batch);
    }
    output::print_line(&batch.id.to_string())
        .context(format!("{} was submitted, but its id can't be printed", batch.id))?;
    batch.runs.iter().try_for_each(|run| output::print_line(&format!("  {}", run.id)))
}

/// Prints the runs of a batch. A run whose chain has gone on is printed with the state of the
/// newest run of the chain.
fn show_batch(id: BatchId, json: bool) -> anyhow::Result<()> {
    with_client(async |client| {
        let batch = client.send(SHOW_BATCH.at(id)).await?;
        if json {
            return output::print_json(&batch);
        }
        let has_worker = client.has_process_driving_runs().await?;
        let mut rows = Vec::with_capacity(batch.runs.len());
        for batch_run in &batch.runs {
            let run = client.newest_run_in_chain(batch_run.clone()).await?;
            // Without a worker a run does nothing, whatever its journal says.
            let activity = match has_worker || !needs_driver(run.status) {
                true => run.now.clone(),
                false => format!("no worker; last known: {}", run.now),
            };
            let agent = agent_and_step_text(&run.agent, run.chain.as_ref());
            rows.push(table::row(&[&batch_run.id, &agent, &run.status.as_str(), &activity]));
        }
        let (mode, count) = (batch.mode.as_str(), batch.runs.len());
        output::print_text(&format!("{} ({mode}, {count} runs)", batch.id))?;
        table::print_table(&["RUN", "AGENT", "STATUS", "NOW"], rows)
    })
}

/// Replaces the position of a task in a request body, with which a problem begins, by its number in the
/// file.
fn name_task_in_error(error: anyhow::Error) -> anyhow::Error {
    let Some(problem) = error.downcast_ref::<Problem>() else { return error };
    let position = problem.detail.strip_prefix("`runs[").and_then(|rest| rest.split_once("]`: "));
    let Some((Ok(index), reason)) =
        position.map(|(index, reason)| (index.parse::<usize>(), reason))
    else {
        return error;
    };
    let detail = format!("task {}: {reason}", index + 1);
    Problem { detail, ..problem.clone() }.into()
}

fn read_batch_file(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let text = output::read_text(path, FILE_BYTES_MAX + 1)
        .map_err(|error| CliError::usage_error(format!("`{name}` can't be read: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("`{name}` is longer than {FILE_BYTES_MAX} bytes");
        return Err(CliError::usage_error(message).into());
    }
    Ok(text)
}

/// Parses the tasks of a file. Empty lines are skipped.
fn parse_batch_tasks(text: &str) -> anyhow::Result<Vec<Task>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let tasks = lines.map(|(index, line)| {
        serde_json::from_str(line).map_err(|error| {
            let message = format!("line {} is not a task: {error}", index + 1);
            anyhow::Error::from(
                CliError::usage_error(message).with_hint("see the format", "longhaul batch --help"),
            )
        })
    });
    tasks.collect()
}
