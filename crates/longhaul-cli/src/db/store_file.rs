//! What the commands about the store share: paths of its files, file sizes as text, and the replay
//! of every journal, which finds invalid events.

use std::path::{Path, PathBuf};

use longhaul_core::event::entry::JournalEntry;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_run::Run;
use longhaul_store::JournalChecker;

use crate::{environment, store_access};

/// Returns the path of this folder's store. The file need not exist.
pub(super) fn configured_store_path() -> anyhow::Result<PathBuf> {
    Ok(sqlite_store_path(&environment::load_config(&environment::current_process_env()?)?)?)
}

/// Returns the path of this folder's store. Fails if the file does not exist.
pub(super) fn existing_store_path() -> anyhow::Result<PathBuf> {
    let store = configured_store_path()?;
    match store.is_file() {
        true => Ok(store),
        false => Err(store_access::no_runs_error().into()),
    }
}

/// Returns the files that the runtime keeps beside the store and in the data folder.
pub(super) fn files_used_by_runtime(store: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let store = store.canonicalize()?;
    let data =
        environment::load_config_quietly(&environment::current_process_env()?)?.data_folder();
    let sqlite_files = ["-wal", "-shm", "-journal"].map(|suffix| {
        let mut name = store.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    });
    let mut files = vec![store.with_file_name("driver.lock")];
    files.extend(sqlite_files);
    files.extend(["driver.lock", "local.key", "server.json"].map(|name| data.join(name)));
    Ok(files)
}

/// Formats a file size with a unit, such as bytes or MiB.
pub(super) fn format_file_size(bytes: u64) -> String {
    match bytes {
        0..=1_023 => format!("{bytes} bytes"),
        1_024..=1_048_575 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Replays the journal of one run at a time. Holds the run's state so far.
#[derive(Debug, Default)]
pub(super) struct JournalReplayer(Option<Run>);

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
