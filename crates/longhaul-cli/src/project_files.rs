//! Writes the files of a project that is built into this program, for benchmarks and chaos tests.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Writes these files, given as path and content, below this folder, and creates their parent
/// folders.
pub(crate) fn write_project_files(root: &Path, files: &[(&str, &str)]) -> anyhow::Result<()> {
    for (name, text) in files {
        let path = root.join(name);
        let folder = path.parent().unwrap_or(root);
        let result = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
        result.with_context(|| path.display().to_string())?;
    }
    Ok(())
}
