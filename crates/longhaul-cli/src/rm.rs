//! `longhaul rm`: deletes ended runs with their child runs, notes and cassettes.
//!
//! Invariant: nothing is deleted without a confirmation at the terminal or `--yes`.

use anyhow::Context as _;
use clap::Args;
use longhaul_api::operations::DELETE_RUN;
use longhaul_api::query::RunsQuery;
use longhaul_api::run::RunView;
use longhaul_api::run_list::DeletedRunView;
use longhaul_core::id::RunId;
use longhaul_project::assemble::cassette_file_path;

use crate::client::Client;
use crate::client::connect::with_client;
use crate::error::{CliError, fail};
use crate::event_printer::first_line;
use crate::exit::Exit;
use crate::format::{count_with_noun, json_text};
use crate::{environment, output, resolve};

/// Maximum number of runs of a tree that are counted before the question.
const COUNTED_MAX: usize = 1_000;

const EXAMPLES: &str = "Examples:
  longhaul rm @last             asks before it deletes the run and its child runs
  longhaul rm 7k3qv9 m2x4ta     several runs, one question each
  longhaul rm 7k3qv9 --yes      in a script

Deleted are the journal, the gates, the usage, the notes about resources that the run wrote, and
.longhaul/cassettes/RUN.jsonl. Kept are notes in the vault, messages of threads, retries and forks,
and backups. An open run is not deleted: longhaul cancel RUN";

/// Arguments of `longhaul rm`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RemoveRunsCommand {
    /// Runs to delete: their ids, parts of the ids, or @last
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
    /// Delete without asking
    #[arg(long)]
    yes: bool,
    /// Print what was deleted as one JSON object per run
    #[arg(long)]
    json: bool,
}

impl RemoveRunsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        if !self.yes && !output::is_interactive() {
            let message = "a deletion can't be undone, and there is no terminal to ask on";
            return Err(CliError::usage_error(message)
                .with_hint("delete without a question", "add --yes")
                .into());
        }
        with_client(async |client| {
            let mut runs = Vec::new();
            for run in &self.runs {
                runs.push(resolve::resolve_run_id(client, run).await?);
            }
            let mut exit = Exit::Done;
            for run in runs {
                match self.delete_run(client, run).await {
                    Ok(()) => {}
                    // The other runs are still deleted, as far as possible.
                    Err(error) if self.runs.len() > 1 => {
                        output::print_error(&error);
                        exit = Exit::RunFailed;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(exit)
        })
    }

    async fn delete_run(&self, client: &Client, run: RunId) -> anyhow::Result<()> {
        let view = client.get_run(run).await?;
        if !view.status.is_terminal() {
            let message =
                format!("{run} is {}, and only ended runs are deleted", view.status.as_str());
            return fail(message, "end the run first", format!("longhaul cancel {run}"));
        }
        if !self.yes && !confirm_deletion(client, &view).await? {
            output::eprint_line(&format!("{run} is kept."));
            return Ok(());
        }
        let deleted = client.send(DELETE_RUN.at(run)).await?;
        let cassettes = if client.is_remote() { 0 } else { delete_cassettes(&deleted)? };
        output::show(self.json, &deleted, |deleted| print_deleted(deleted, cassettes))
    }
}

async fn confirm_deletion(client: &Client, view: &RunView) -> anyhow::Result<bool> {
    let query = RunsQuery { root: Some(view.root), ..RunsQuery::default() };
    let others = client.list_runs(query, COUNTED_MAX).await?.len().saturating_sub(1);
    let others = match others {
        0 => String::new(),
        count => format!(" and {} of its tree", count_with_noun(count as u64, "other run")),
    };
    let task = first_line(&json_text(&view.input.to_value()));
    output::eprint_line(&format!("{}  {}: {task}", view.id, view.agent));
    Ok(output::confirms(&format!("delete it{others} for ever? [y/N]")))
}

/// Deletes the cassettes that `export` has named after these runs, and returns their number.
fn delete_cassettes(deleted: &DeletedRunView) -> anyhow::Result<usize> {
    let config = environment::load_config_quietly(&environment::current_process_env()?)?;
    let mut count = 0;
    for run in &deleted.runs {
        let Ok(path) = cassette_file_path(&config, &run.to_string()) else { continue };
        match std::fs::remove_file(&path) {
            Ok(()) => count += 1,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let path = path.display().to_string();
                return Err(error).with_context(|| format!("{path} can't be deleted"));
            }
        }
    }
    Ok(count)
}

fn print_deleted(deleted: &DeletedRunView, cassettes: usize) -> anyhow::Result<()> {
    let counts = [
        (deleted.runs.len() as u64, "run"),
        (deleted.notes, "note"),
        (cassettes as u64, "cassette"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, noun)| count_with_noun(*count, noun)).collect();
    output::print_text(&format!("Deleted: {} ({}).", deleted.id, counts.join(", ")))?;
    deleted.kept.iter().for_each(|kept| output::eprint_line(&format!("kept: {kept}")));
    Ok(())
}
