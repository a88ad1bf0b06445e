//! Conditions that every bench names, and the folder that it measures in.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

/// Whether a target is met.
pub(crate) const fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// Number of cores.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What kind of build this is.
pub(crate) const fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "debug build: not for comparing"
    } else {
        "release"
    }
}

/// A new folder in this one, or where temporary files go; it is removed in the end.
pub(crate) fn folder(dir: Option<&Path>) -> anyhow::Result<TempDir> {
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    let made = tempfile::Builder::new()
        .prefix("longhaul-bench-")
        .tempdir_in(&dir);
    made.with_context(|| {
        let dir = dir.display();
        format!("`{dir}` can't be written to; name another folder with --dir")
    })
}
