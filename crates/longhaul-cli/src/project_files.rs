//! Writes the files of a project that a command brings itself.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Writes files by their paths in this folder, and the folders that they lie in.
pub(crate) fn write_files(root: &Path, files: &[(&str, &str)]) -> anyhow::Result<()> {
    for (name, text) in files {
        let path = root.join(name);
        let folder = path.parent().unwrap_or(root);
        let made = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
        made.with_context(|| path.display().to_string())?;
    }
    Ok(())
}
