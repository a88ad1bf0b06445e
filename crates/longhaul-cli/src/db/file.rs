//! Paths of the store's files, and file sizes as text.

use std::path::{Path, PathBuf};

use longhaul::assemble::sqlite_store_path;

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
