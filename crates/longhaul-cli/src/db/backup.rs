//! `longhaul db backup`: copies the store, even while the store is in use, and checks the copy.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::db::store_file::{
    JournalReplayer, existing_store_path, files_used_by_runtime, format_file_size,
};
use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct BackupCommand {
    /// File to write the backup to
    file: PathBuf,
    /// Replace the backup file if it exists
    #[arg(long)]
    force: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl BackupCommand {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = existing_store_path()?;
        let display_path = self.file.display();
        if self.file.is_dir() {
            return Err(CliError::usage_error(format!(
                "`{display_path}` is a folder: name a file in it"
            ))
            .into());
        }
        if is_same_file(&store, &self.file) {
            return Err(CliError::usage_error(format!(
                "`{display_path}` is the store itself: name another file"
            ))
            .into());
        }
        if files_used_by_runtime(&store)?
            .iter()
            .any(|used_file| is_same_file(used_file, &self.file))
        {
            let message = format!("`{display_path}` is used by the runtime: name another file");
            return Err(CliError::usage_error(message).into());
        }
        if self.file.exists() && !self.force {
            let message =
                format!("`{display_path}` already exists, and a backup does not replace it");
            return Err(CliError::usage_error(message)
                .with_hint("replace the file", format!("longhaul db backup {display_path} --force"))
                .into());
        }
        let mut percent = None;
        let mut progress = |fraction: f64| {
            let new_percent = (fraction * 100.0) as u8;
            if std::io::stderr().is_terminal() && percent.replace(new_percent) != Some(new_percent)
            {
                _ = write!(std::io::stderr(), "\r{new_percent:3} % copied");
            }
        };
        let result = longhaul_store::back_up_store(
            &store,
            &self.file,
            &mut JournalReplayer::default(),
            &mut progress,
        );
        if percent.is_some() && std::io::stderr().is_terminal() {
            _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let report = result.map_err(|error| {
            error::from_store_error(&error).with_hint("see what is damaged", "longhaul db check")
        })?;
        let (runs, events, bytes) = (report.runs, report.events, report.bytes);
        let problems = report.problems.len() as u64 + report.unlisted;
        if self.json {
            let value = json!({
                "file": self.file, "runs": runs, "events": events, "bytes": bytes,
                "problems": problems,
            });
            output::print_json(&value)?;
        } else {
            let size = format_file_size(bytes);
            output::print_text(&format!("{display_path}: {runs} runs, {events} events, {size}"))?;
        }
        if problems == 0 {
            return Ok(Exit::Done);
        }
        output::eprint_line(&format!(
            "The copy is complete, but the store has {problems} problems."
        ));
        output::eprint_line("  see the problems   longhaul db check");
        Ok(Exit::RunFailed)
    }
}

/// Returns whether two paths name the same file, even if the file does not exist.
fn is_same_file(first: &Path, second: &Path) -> bool {
    let canonicalize = |path: &Path| path.canonicalize().ok();
    let canonicalize_parent = |path: &Path| {
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        Some(canonicalize(parent.unwrap_or(Path::new(".")))?.join(path.file_name()?))
    };
    let is_same = |first: Option<PathBuf>, second| first.is_some() && first == second;
    is_same(canonicalize(first), canonicalize(second))
        || is_same(canonicalize_parent(first), canonicalize_parent(second))
}
