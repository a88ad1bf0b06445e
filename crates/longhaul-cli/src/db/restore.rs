//! `longhaul db restore`: replaces the store with a backup.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::db::store_file::{JournalReplayer, configured_store_path, format_file_size};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct RestoreCommand {
    /// Backup file to restore
    file: PathBuf,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl RestoreCommand {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = configured_store_path()?;
        if !self.file.is_file() {
            let message = format!("there is no file `{}`", self.file.display());
            return Err(CliError::usage_error(message).into());
        }
        let result =
            longhaul_store::restore_store(&self.file, &store, &mut JournalReplayer::default());
        let (report, kept_file) = result?;
        let (runs, events, bytes) = (report.runs, report.events, report.bytes);
        if self.json {
            let value = json!({
                "file": store, "kept": kept_file, "runs": runs, "events": events, "bytes": bytes,
            });
            output::print_json(&value)?;
        } else {
            let (display_path, size) = (store.display(), format_file_size(bytes));
            output::print_text(&format!(
                "{display_path}: {runs} runs, {events} events, {size}, restored"
            ))?;
            if let Some(kept_file) = kept_file {
                output::eprint_line(&format!("The old store is kept in {}", kept_file.display()));
            }
        }
        Ok(Exit::Done)
    }
}
