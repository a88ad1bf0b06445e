//! The marker that a server leaves beside its store, so that commands find it.
//!
//! Never: proof that the server lives. The store's lock is, and an answer.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::private_file::{self, Guard, PrivateFileError};

/// The file's name, beside the store.
const NAME: &str = "server.json";

/// More than this is no marker.
const BYTES_MAX: u64 = 4 * 1024;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Where it is.
    pub url: String,
    /// Which process.
    pub pid: u32,
    /// Over which store.
    pub store: PathBuf,
}

/// Where the marker of this store is.
pub fn path(store: &Path) -> PathBuf {
    store.with_file_name(NAME)
}

/// The marker of this store, if there is one for it.
pub fn read(store: &Path) -> Option<Marker> {
    let text = private_file::read(&path(store), BYTES_MAX, Guard::Hint);
    let text = text.ok()??;
    let marker: Marker = serde_json::from_str(&text).ok()?;
    let same = |other: &Path| fs::canonicalize(other).ok();
    (same(&marker.store)? == same(store)?).then_some(marker)
}

/// A marker that is there as long as this is.
#[derive(Debug)]
pub struct Standing {
    at: PathBuf,
    marker: Marker,
}

impl Standing {
    /// Leaves a marker. Whoever holds the store's lock may.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn leave(marker: Marker) -> Result<Self, PrivateFileError> {
        let at = path(&marker.store);
        let text = serde_json::to_string(&marker).unwrap_or_default();
        private_file::write(&at, &text)?;
        Ok(Self { at, marker })
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // A next server may have left its own by now.
        if read(&self.marker.store).as_ref() == Some(&self.marker) {
            _ = fs::remove_file(&self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_for_its_own_store_and_goes_with_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("longhaul.db");
        let other = folder.path().join("other.db");
        fs::write(&store, "").unwrap();
        fs::write(&other, "").unwrap();
        assert_eq!(read(&store), None);
        let marker = Marker {
            url: "http://127.0.0.1:4180".into(),
            pid: 7,
            store: store.clone(),
        };
        let standing = Standing::leave(marker.clone()).unwrap();
        assert_eq!(read(&store), Some(marker.clone()));
        assert_eq!(read(&other), None);
        let next = Standing::leave(Marker { pid: 8, ..marker }).unwrap();
        drop(standing);
        assert_eq!(read(&store).map(|found| found.pid), Some(8));
        drop(next);
        assert_eq!(read(&store), None);
        fs::write(path(&store), "{").unwrap();
        assert_eq!(read(&store), None);
    }
}
