//! `longhaul db check`: checks the store or a backup for damage.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::db::store_file::{JournalReplayer, existing_store_path, format_file_size};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct CheckStoreCommand {
    /// Backup to check instead of the store
    file: Option<PathBuf>,
    /// Print the problems as one JSON object
    #[arg(long)]
    json: bool,
}

impl CheckStoreCommand {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let file = match &self.file {
            Some(file) if !file.is_file() => {
                let message = format!("there is no file `{}`", file.display());
                return Err(CliError::usage_error(message).into());
            }
            Some(file) => file.clone(),
            None => existing_store_path()?,
        };
        let report = longhaul_store::check_store(&file, &mut JournalReplayer::default())?;
        let is_healthy = report.problems.is_empty();
        if self.json {
            let value = json!({
                "file": file,
                "ok": is_healthy,
                "runs": report.runs,
                "events": report.events,
                "bytes": report.bytes,
                "problems": report.problems,
                "unlisted": report.unlisted,
            });
            output::print_json(&value)?;
        } else {
            let (display_path, size) = (file.display(), format_file_size(report.bytes));
            let (runs, events) = (report.runs, report.events);
            for problem in &report.problems {
                let run_prefix = problem.run.map_or_else(String::new, |run| format!("{run}: "));
                output::print_text(&format!("{}: {run_prefix}{}", problem.kind, problem.message))?;
            }
            let count = report.problems.len() as u64 + report.unlisted;
            match is_healthy {
                true => output::print_text(&format!(
                    "{display_path}: {runs} runs, {events} events, {size}: ok"
                ))?,
                false => {
                    output::print_text(&format!("{display_path}: {count} problems"))?;
                    output::eprint_line("  restore a backup            longhaul db restore FILE");
                    if report.problems.iter().all(|problem| problem.kind == "queue") {
                        output::eprint_line("  a driver repairs these      longhaul worker");
                    }
                }
            }
        }
        Ok(if is_healthy { Exit::Done } else { Exit::RunFailed })
    }
}
