//! `longhaul db restore`: puts a backup in the place of the store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::db::file::{format_size, store_path};
use crate::db::journals::JournalFold;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Restore {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = store_path()?;
        if !self.file.is_file() {
            let words = format!("there is no file `{}`", self.file.display());
            return Err(CliError::usage(words).into());
        }
        let restored = longhaul_store::restore(&self.file, &store, &mut JournalFold::default());
        let (report, kept) = restored?;
        let (runs, events, bytes) = (report.runs, report.events, report.bytes);
        if self.json {
            let line = json!({
                "file": store, "kept": kept, "runs": runs, "events": events, "bytes": bytes,
            });
            output::stdout_json(&line)?;
        } else {
            let (said, size) = (store.display(), format_size(bytes));
            output::stdout_text(&format!(
                "{said}: {runs} runs, {events} events, {size}, restored"
            ))?;
            if let Some(kept) = kept {
                output::stderr_line(&format!(
                    "What was there before is kept in {}",
                    kept.display()
                ));
            }
        }
        Ok(Exit::Done)
    }
}
