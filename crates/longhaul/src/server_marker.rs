//! The marker that a server leaves beside its store, so that commands find it.
//!
//! Never: proof that the server lives. The store's lock is, and an answer.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::private_file::{self, AccessCheck, PrivateFileError};

/// The file's name, beside the store.
const FILE_NAME: &str = "server.json";

/// More than this is no marker.
const BYTES_MAX: u64 = 4 * 1024;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMarker {
    /// Where it is.
    pub url: String,
    /// Which process.
    pub pid: u32,
    /// Over which store.
    pub store: PathBuf,
}

/// Where the marker of this store is.
pub fn path(store: &Path) -> PathBuf {
    store.with_file_name(FILE_NAME)
}

/// The marker of this store, if there is one for it.
pub fn load(store: &Path) -> Option<ServerMarker> {
    let text = private_file::read(&path(store), BYTES_MAX, AccessCheck::Unchecked);
    let text = text.ok()??;
    let marker: ServerMarker = serde_json::from_str(&text).ok()?;
    let same = |other: &Path| fs::canonicalize(other).ok();
    (same(&marker.store)? == same(store)?).then_some(marker)
}

/// A marker that is there as long as this is.
#[derive(Debug)]
pub struct MarkerGuard {
    path: PathBuf,
    marker: ServerMarker,
}

impl MarkerGuard {
    /// Leaves a marker. Whoever holds the store's lock may.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn create(marker: ServerMarker) -> Result<Self, PrivateFileError> {
        let at = path(&marker.store);
        let text = serde_json::to_string(&marker).unwrap_or_default();
        private_file::write(&at, &text)?;
        Ok(Self { path: at, marker })
    }
}

impl Drop for MarkerGuard {
    fn drop(&mut self) {
        // A next server may have left its own by now.
        if load(&self.marker.store).as_ref() == Some(&self.marker) {
            _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_valid_for_its_store_only_and_removed_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("longhaul.db");
        let other = folder.path().join("other.db");
        fs::write(&store, "").unwrap();
        fs::write(&other, "").unwrap();
        assert_eq!(load(&store), None);
        let marker =
            ServerMarker { url: "http://127.0.0.1:4180".into(), pid: 7, store: store.clone() };
        let standing = MarkerGuard::create(marker.clone()).unwrap();
        assert_eq!(load(&store), Some(marker.clone()));
        assert_eq!(load(&other), None);
        let next = MarkerGuard::create(ServerMarker { pid: 8, ..marker }).unwrap();
        drop(standing);
        assert_eq!(load(&store).map(|found| found.pid), Some(8));
        drop(next);
        assert_eq!(load(&store), None);
        fs::write(path(&store), "{").unwrap();
        assert_eq!(load(&store), None);
    }
}
