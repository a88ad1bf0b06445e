//! Finds agents' files in a folder and reads their bytes.
//!
//! Never: looks into them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use longhaul_core::id::AgentName;

use crate::agents::cut::{BODY_BYTES_MAX, FRONT_BYTES_MAX};
use crate::agents::loaded::Source;
use crate::agents::problem::{Problem, ProblemKind};

/// A file that may hold an agent.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Its name without `.md`.
    pub(crate) stem: String,
    /// As it is said to people.
    pub(crate) path: PathBuf,
    /// Where it comes from.
    pub(crate) source: Source,
}

/// The files of a folder, by name, and why they can't be listed. Hidden files and
/// what does not end in `.md` are none of ours.
pub(crate) fn list(folder: &Path, said: &Path, source: Source) -> (Vec<File>, Option<Problem>) {
    let problem = |error: &std::io::Error| Problem {
        path: said.to_path_buf(),
        line: 1,
        column: 1,
        message: format!("the folder can't be read: {error}"),
        kind: ProblemKind::Fault,
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (Vec::new(), None),
        Err(error) => return (Vec::new(), Some(problem(&error))),
    };
    let mut files = Vec::new();
    let mut failed = None;
    for entry in entries {
        match entry {
            Ok(entry) => {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let stem = name
                    .strip_suffix(".md")
                    .filter(|stem| !stem.starts_with('.'));
                if let Some(stem) = stem.filter(|stem| !stem.is_empty()) {
                    files.push(File {
                        stem: stem.to_owned(),
                        path: said.join(name.as_ref()),
                        source,
                    });
                }
            }
            Err(error) => failed = Some(problem(&error)),
        }
    }
    files.sort_by(|a, b| a.stem.cmp(&b.stem));
    (files, failed)
}

/// The bytes of a file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("can't be read: {error}");
    // A pipe of that name would be waited for without end.
    if !std::fs::metadata(path).map_err(said)?.is_file() {
        return Err("is no file".to_owned());
    }
    // Line ends of two bytes and the fences come on top; the exact caps are the cutter's.
    let most = 2 * (FRONT_BYTES_MAX + BODY_BYTES_MAX) as u64;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(said)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(said)?;
    if bytes.len() as u64 > most {
        return Err(format!(
            "is too long: {FRONT_BYTES_MAX} bytes of front matter and {BODY_BYTES_MAX} of prompt at most"
        ));
    }
    Ok(bytes)
}

/// A name that needs no quotes in a shell, an address or a file.
pub(crate) fn name(text: &str) -> Result<AgentName, String> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let right = text.chars().all(fits) && text.starts_with(char::is_alphanumeric);
    let name = AgentName::new(text).ok().filter(|_| right);
    name.ok_or_else(|| {
        format!("`{text}` is no name for an agent: use letters, digits, `-`, `_` and `.`")
    })
}
