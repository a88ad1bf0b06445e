//! The marker file with the URL of a running server. The server writes it next to its store, so
//! that CLI commands find the server.
//!
//! The marker does not prove that the server is alive: only the store's lock or a response does.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::private_file::{self, FileAccessCheck, PrivateFileError};

/// Name of the marker file, which contains the URL of a running server, in the folder of the store.
const FILE_NAME: &str = "server.json";

/// Maximum size in bytes of the marker file.
const BYTES_MAX: u64 = 4 * 1024;

/// Content of the marker file: URL, process and store of a running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningServerRecord {
    /// Base URL of the server.
    pub url: String,
    /// Process id of the server.
    pub pid: u32,
    /// Path of the store that the server uses.
    pub store: PathBuf,
}

/// Returns the path of the marker file for the server that uses this store.
pub fn running_server_record_path(store: &Path) -> PathBuf {
    store.with_file_name(FILE_NAME)
}

/// Loads the marker file of the server that uses this store. `None` means that the file is missing,
/// invalid or of another store.
pub fn load_running_server_record(store: &Path) -> Option<RunningServerRecord> {
    let text = private_file::read_private_file(
        &running_server_record_path(store),
        BYTES_MAX,
        FileAccessCheck::Unchecked,
    );
    let text = text.ok()??;
    let marker: RunningServerRecord = serde_json::from_str(&text).ok()?;
    let canonical_path = |other: &Path| fs::canonicalize(other).ok();
    (canonical_path(&marker.store)? == canonical_path(store)?).then_some(marker)
}

/// Guard that removes the marker file of a server when it is dropped.
#[derive(Debug)]
pub struct RunningServerRecordGuard {
    path: PathBuf,
    marker: RunningServerRecord,
}

impl RunningServerRecordGuard {
    /// Writes the marker file with the URL of a running server. The caller must hold the store's
    /// lock.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn create(record: RunningServerRecord) -> Result<Self, PrivateFileError> {
        let path = running_server_record_path(&record.store);
        let text = serde_json::to_string(&record).unwrap_or_default();
        private_file::write_private_file(&path, &text)?;
        Ok(Self { path, marker: record })
    }
}

impl Drop for RunningServerRecordGuard {
    fn drop(&mut self) {
        // Another server may have replaced the marker by now.
        if load_running_server_record(&self.marker.store).as_ref() == Some(&self.marker) {
            _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_record_is_valid_for_its_store_only_and_removed_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("longhaul.db");
        let other = folder.path().join("other.db");
        fs::write(&store, "").unwrap();
        fs::write(&other, "").unwrap();
        assert_eq!(load_running_server_record(&store), None);
        let marker = RunningServerRecord {
            url: "http://127.0.0.1:4180".into(),
            pid: 7,
            store: store.clone(),
        };
        let guard = RunningServerRecordGuard::create(marker.clone()).unwrap();
        assert_eq!(load_running_server_record(&store), Some(marker.clone()));
        assert_eq!(load_running_server_record(&other), None);
        let next =
            RunningServerRecordGuard::create(RunningServerRecord { pid: 8, ..marker }).unwrap();
        drop(guard);
        assert_eq!(load_running_server_record(&store).map(|found| found.pid), Some(8));
        drop(next);
        assert_eq!(load_running_server_record(&store), None);
        fs::write(running_server_record_path(&store), "{").unwrap();
        assert_eq!(load_running_server_record(&store), None);
    }
}
