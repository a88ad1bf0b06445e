//! `longhaul db backup`: a checked copy of the store, also while it is in use.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::db::file::{existing_store_path, format_size, runtime_files};
use crate::db::journals::JournalFold;
use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write
    file: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = existing_store_path()?;
        let said = self.file.display();
        if self.file.is_dir() {
            return Err(CliError::usage(format!("`{said}` is a folder: name a file in it")).into());
        }
        if is_same_file(&store, &self.file) {
            return Err(CliError::usage(format!("`{said}` is the store itself")).into());
        }
        if runtime_files(&store)?.iter().any(|own| is_same_file(own, &self.file)) {
            let words = format!("`{said}` is a file of the runtime's own: name another");
            return Err(CliError::usage(words).into());
        }
        if self.file.exists() && !self.force {
            let words = format!("`{said}` is there already, and a backup replaces nothing");
            return Err(CliError::usage(words)
                .hint("replace it", format!("longhaul db backup {said} --force"))
                .into());
        }
        let mut percent = None;
        let mut progress = |share: f64| {
            let now = (share * 100.0) as u8;
            if std::io::stderr().is_terminal() && percent.replace(now) != Some(now) {
                _ = write!(std::io::stderr(), "\r{now:3} % copied");
            }
        };
        let copied =
            longhaul_store::backup(&store, &self.file, &mut JournalFold::default(), &mut progress);
        if percent.is_some() && std::io::stderr().is_terminal() {
            _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let report = copied.map_err(|error| {
            error::from_store_error(&error).hint("see what is damaged", "longhaul db check")
        })?;
        let (runs, events, bytes) = (report.runs, report.events, report.bytes);
        let problems = report.problems.len() as u64 + report.unlisted;
        if self.json {
            let line = json!({
                "file": self.file, "runs": runs, "events": events, "bytes": bytes,
                "problems": problems,
            });
            output::stdout_json(&line)?;
        } else {
            let size = format_size(bytes);
            output::stdout_text(&format!("{said}: {runs} runs, {events} events, {size}"))?;
        }
        if problems == 0 {
            return Ok(Exit::Done);
        }
        output::stderr_line(&format!("It is a whole copy of a store with {problems} problems."));
        output::stderr_line("  see them   longhaul db check");
        Ok(Exit::RunFailed)
    }
}

/// Whether two paths name the same file, be it there or not.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let place = |path: &Path| {
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        Some(real(parent.unwrap_or(Path::new(".")))?.join(path.file_name()?))
    };
    let is_same = |one: Option<PathBuf>, other| one.is_some() && one == other;
    is_same(real(one), real(other)) || is_same(place(one), place(other))
}
