//! `longhaul db check`: looks for damage in the store or in a backup of it.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::db::file::{existing_store_path, format_size};
use crate::db::journals::JournalFold;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// A backup to check instead of the store
    file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let file = match &self.file {
            Some(file) if !file.is_file() => {
                let words = format!("there is no file `{}`", file.display());
                return Err(CliError::usage(words).into());
            }
            Some(file) => file.clone(),
            None => existing_store_path()?,
        };
        let report = longhaul_store::check(&file, &mut JournalFold::default())?;
        let is_good = report.problems.is_empty();
        if self.json {
            let line = json!({
                "file": file,
                "ok": is_good,
                "runs": report.runs,
                "events": report.events,
                "bytes": report.bytes,
                "problems": report.problems,
                "unlisted": report.unlisted,
            });
            output::stdout_json(&line)?;
        } else {
            let (said, size) = (file.display(), format_size(report.bytes));
            let (runs, events) = (report.runs, report.events);
            for problem in &report.problems {
                let of = problem.run.map_or_else(String::new, |run| format!("{run}: "));
                output::stdout_text(&format!("{}: {of}{}", problem.kind, problem.message))?;
            }
            let count = report.problems.len() as u64 + report.unlisted;
            match is_good {
                true => output::stdout_text(&format!(
                    "{said}: {runs} runs, {events} events, {size}: ok"
                ))?,
                false => {
                    output::stdout_text(&format!("{said}: {count} problems"))?;
                    output::stderr_line("  put a backup in its place   longhaul db restore FILE");
                    if report.problems.iter().all(|problem| problem.kind == "queue") {
                        output::stderr_line("  a driver repairs these      longhaul worker");
                    }
                }
            }
        }
        Ok(if is_good { Exit::Done } else { Exit::RunFailed })
    }
}
