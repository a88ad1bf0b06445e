//! `longhaul db`: backs up, checks and restores the store of this folder.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use longhaul_core::event::entry::JournalEntry;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_run::Run;
use longhaul_store::{JournalChecker, StoreCheckReport};
use serde_json::json;

use crate::error::{self, CliError, fail};
use crate::exit::Exit;
use crate::{environment, output, store_access};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul db backup /backups/longhaul-$(date +%F).db   also while a server is running
  longhaul db check                                     exit code 1 if something is damaged
  longhaul db check /backups/longhaul-2026-11-16.db
  longhaul db restore /backups/longhaul-2026-11-16.db   stop the server first

A plain copy (cp, rsync) of a store in use is usually damaged: use `longhaul db backup`.";

/// The subcommands of `longhaul db`.
#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Copies the store to a file, even while the store is in use, and checks the copy
    Backup {
        /// File to write the backup to
        file: PathBuf,
        /// Replace the backup file if it exists
        #[arg(long)]
        force: bool,
        /// Print the result as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Checks the store, or a backup, for damage in pages, rows and journals
    Check {
        /// Backup to check instead of the store
        file: Option<PathBuf>,
        /// Print the problems as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Replaces the store with a backup, and keeps the old store
    Restore {
        /// Backup file to restore
        file: PathBuf,
        /// Print the result as one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl DbCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Self::Backup { file, force, json } => back_up(file, *force, *json),
            Self::Check { file, json } => check(file.as_deref(), *json),
            Self::Restore { file, json } => restore(file, *json),
        }
    }
}

/// Copies the store to a file, even while the store is in use, and checks the copy.
fn back_up(file: &Path, force: bool, json: bool) -> anyhow::Result<Exit> {
    let store = existing_store_path()?;
    check_backup_file(file, &store, force)?;
    let mut percent = None;
    let mut progress = |fraction: f64| {
        let new_percent = (fraction * 100.0) as u8;
        if std::io::stderr().is_terminal() && percent.replace(new_percent) != Some(new_percent) {
            _ = write!(std::io::stderr(), "\r{new_percent:3} % copied");
        }
    };
    let mut replayer = JournalReplayer::default();
    let result = longhaul_store::back_up_store(&store, file, &mut replayer, &mut progress);
    if percent.is_some() {
        _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let report = result.map_err(|error| {
        error::from_store_error(&error).with_hint("see what is damaged", "longhaul db check")
    })?;
    let problems = report.problems.len() as u64 + report.unlisted;
    let data = json!({
        "file": file, "runs": report.runs, "events": report.events, "bytes": report.bytes,
        "problems": problems,
    });
    output::show_text(json, &data, |_| content_text(file, &report))?;
    if problems == 0 {
        return Ok(Exit::Done);
    }
    output::eprint_line(&format!(
        "The copy is complete, but the store has {problems} problems.
  see the problems   longhaul db check"
    ));
    Ok(Exit::RunFailed)
}

/// Fails if a backup can't or must not be written to this file.
fn check_backup_file(file: &Path, store: &Path, force: bool) -> anyhow::Result<()> {
    let name = file.display();
    let data =
        environment::load_config_quietly(&environment::current_process_env()?)?.data_folder();
    // The files that the runtime keeps beside the store and in the data folder.
    let canonical_store = store.canonicalize()?;
    let sqlite_files = ["-wal", "-shm", "-journal"].map(|suffix| {
        let mut name = canonical_store.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    });
    let lock = canonical_store.with_file_name("driver.lock");
    let in_data = ["driver.lock", "local.key", "server.json"].map(|name| data.join(name));
    let mut used_files = sqlite_files.iter().chain([&lock]).chain(&in_data);
    let reason = if file.is_dir() {
        "is a folder: name a file in it"
    } else if is_same_file(store, file) {
        "is the store itself: name another file"
    } else if used_files.any(|used_file| is_same_file(used_file, file)) {
        "is used by the runtime: name another file"
    } else if file.exists() && !force {
        let message = format!("`{name}` already exists, and a backup does not replace it");
        return fail(message, "replace the file", format!("longhaul db backup {name} --force"));
    } else {
        return Ok(());
    };
    Err(CliError::usage_error(format!("`{name}` {reason}")).into())
}

/// Checks the store or a backup for damage.
fn check(file: Option<&Path>, json: bool) -> anyhow::Result<Exit> {
    let file = match file {
        Some(file) => existing_backup(file)?.to_owned(),
        None => existing_store_path()?,
    };
    let report = longhaul_store::check_store(&file, &mut JournalReplayer::default())?;
    let is_healthy = report.problems.is_empty();
    let data = json!({
        "file": file, "ok": is_healthy, "runs": report.runs, "events": report.events,
        "bytes": report.bytes, "problems": report.problems, "unlisted": report.unlisted,
    });
    output::show(json, &data, |_| {
        for problem in &report.problems {
            let run_prefix = problem.run.map_or_else(String::new, |run| format!("{run}: "));
            output::print_text(&format!("{}: {run_prefix}{}", problem.kind, problem.message))?;
        }
        if is_healthy {
            return output::print_text(&format!("{}: ok", content_text(&file, &report)));
        }
        let count = report.problems.len() as u64 + report.unlisted;
        output::print_text(&format!("{}: {count} problems", file.display()))?;
        output::eprint_line("  restore a backup            longhaul db restore FILE");
        if report.problems.iter().all(|problem| problem.kind == "queue") {
            output::eprint_line("  a driver repairs these      longhaul worker");
        }
        Ok(())
    })?;
    Ok(if is_healthy { Exit::Done } else { Exit::RunFailed })
}

/// Replaces the store with a backup.
fn restore(file: &Path, json: bool) -> anyhow::Result<Exit> {
    let store = configured_store_path()?;
    let file = existing_backup(file)?;
    let (report, kept_file) =
        longhaul_store::restore_store(file, &store, &mut JournalReplayer::default())?;
    let data = json!({
        "file": store, "kept": kept_file, "runs": report.runs, "events": report.events,
        "bytes": report.bytes,
    });
    output::show(json, &data, |_| {
        output::print_text(&format!("{}, restored", content_text(&store, &report)))?;
        if let Some(kept_file) = &kept_file {
            output::eprint_line(&format!("The old store is kept in {}", kept_file.display()));
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}

/// Returns the path of a backup that the user named. Fails if there is no such file.
fn existing_backup(file: &Path) -> anyhow::Result<&Path> {
    let message = || CliError::usage_error(format!("there is no file `{}`", file.display()));
    Ok(Some(file).filter(|file| file.is_file()).ok_or_else(message)?)
}

/// Returns whether two paths name the same file, even if the file does not exist.
fn is_same_file(first: &Path, second: &Path) -> bool {
    let real_path = |path: &Path| {
        path.canonicalize().ok().or_else(|| {
            let parent = path.parent().filter(|parent| *parent != Path::new(""));
            Some(parent.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
        })
    };
    real_path(first).is_some_and(|first| real_path(second) == Some(first))
}

/// Returns the path of this folder's store. The file need not exist.
fn configured_store_path() -> anyhow::Result<PathBuf> {
    Ok(sqlite_store_path(&environment::load_config(&environment::current_process_env()?)?)?)
}

/// Returns the path of this folder's store. Fails if the file does not exist.
fn existing_store_path() -> anyhow::Result<PathBuf> {
    let store = configured_store_path()?;
    match store.is_file() {
        true => Ok(store),
        false => Err(store_access::no_runs_error().into()),
    }
}

/// Describes what a store or backup contains, with the size of its file.
fn content_text(file: &Path, report: &StoreCheckReport) -> String {
    let StoreCheckReport { runs, events, bytes, .. } = report;
    let size = match *bytes {
        0..=1_023 => format!("{bytes} bytes"),
        1_024..=1_048_575 => format!("{:.1} KiB", *bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", *bytes as f64 / 1_048_576.0),
    };
    format!("{}: {runs} runs, {events} events, {size}", file.display())
}

/// Replays the journal of one run at a time. Holds the run's state so far.
#[derive(Debug, Default)]
struct JournalReplayer(Option<Run>);

impl JournalChecker for JournalReplayer {
    fn check_next_entry(&mut self, entry: &JournalEntry) -> Result<(), String> {
        let result = match &mut self.0 {
            Some(run) => run.apply(entry),
            None => Run::from_first_entry(entry).map(|run| self.0 = Some(run)),
        };
        result.map_err(|error| error.to_string())
    }

    fn finish_journal_check(&mut self, run_ended: bool) -> Result<(), String> {
        let status = self.0.take().map(|run| run.status());
        match status {
            None => Err("the journal is empty".to_owned()),
            Some(status) if status.is_terminal() == run_ended => Ok(()),
            Some(status) => {
                let row_status = if run_ended { "ended" } else { "not ended" };
                Err(format!(
                    "the run's head row says {row_status}, but the journal says {}",
                    status.as_str()
                ))
            }
        }
    }
}
