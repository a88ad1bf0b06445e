//! Finds agents' files in a folder and reads their bytes.
//!
//! Never: looks into them.

use std::path::{Path, PathBuf};

use longhaul_core::id::AgentName;

use crate::agents::cut::{BODY_BYTES_MAX, FRONT_BYTES_MAX};
use crate::agents::loaded::Source;
use crate::agents::problem::{Problem, ProblemKind};
use crate::inside::{self, Unread};
use crate::written::plain_line;

/// So deep folders may stand in each other.
const DEPTH_MAX: usize = 8;

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

/// What was found in a folder.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Each file, and where it is; those of the folder itself first, by name.
    pub(crate) files: Vec<(PathBuf, File)>,
    /// Why something can't be listed.
    pub(crate) problems: Vec<Problem>,
    /// What was passed over.
    pub(crate) notes: Vec<(PathBuf, String)>,
}

/// The files of a folder. Hidden files and what does not end in `.md` are none of
/// ours. Claude's may stand in folders below, as Claude Code reads them.
pub(crate) fn list(folder: &Path, said: &Path, source: Source) -> Listed {
    let mut listed = Listed::default();
    listed.walk((folder, said), source, 0);
    let place = |(at, file): &(PathBuf, File)| (at.parent().map(Path::to_owned), file.stem.clone());
    listed.files.sort_by_key(place);
    listed
}

impl Listed {
    fn walk(&mut self, (folder, said): (&Path, &Path), source: Source, depth: usize) {
        let problem = |error: &std::io::Error| Problem {
            path: said.to_path_buf(),
            line: 1,
            column: 1,
            message: format!("the folder can't be read: {error}"),
            kind: ProblemKind::Fault,
        };
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.problems.push(problem(&error)),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.problems.push(problem(&error));
                    continue;
                }
            };
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            let (at, path) = (entry.path(), said.join(name.as_ref()));
            match name.strip_suffix(".md").filter(|stem| !stem.is_empty()) {
                Some(stem) => {
                    let stem = stem.to_owned();
                    self.files.push((at, File { stem, path, source }));
                }
                None if at.is_dir() => self.step((&at, &path), source, depth + 1),
                None => {}
            }
        }
    }

    /// Goes into a folder, or says why not where it holds something.
    fn step(&mut self, (at, path): (&Path, &Path), source: Source, depth: usize) {
        let passed = match source {
            Source::Project | Source::BuiltIn => "agents are read from the folder above only",
            Source::Claude if at.is_symlink() => "it is a link to a folder, which is not followed",
            Source::Claude if depth > DEPTH_MAX => "it lies too deep",
            Source::Claude => return self.walk((at, path), source, depth),
        };
        let files = std::fs::read_dir(at).into_iter().flatten().flatten();
        let mut files = files.filter(|file| file.path().extension().is_some_and(|end| end == "md"));
        if files.next().is_some() {
            let note = format!("what is in it is not read: {passed}");
            self.notes.push((path.to_owned(), note));
        }
    }
}

/// The bytes of a file below `root`.
pub(crate) fn bytes(root: &Path, path: &Path) -> Result<Vec<u8>, String> {
    // Line ends of two bytes and the fences come on top; the exact caps are the cutter's.
    let most = 2 * (FRONT_BYTES_MAX + BODY_BYTES_MAX);
    let relative = path.strip_prefix(root).unwrap_or(path);
    inside::read(root, relative, most).map_err(|unread| match unread {
        Unread::Long(_) => format!(
            "is too long: {FRONT_BYTES_MAX} bytes of front matter and {BODY_BYTES_MAX} of prompt at most"
        ),
        Unread::Missing | Unread::Outside | Unread::Linked => format!("can't be read: it {unread}"),
        Unread::Strange | Unread::Io(_) => unread.to_string(),
    })
}

/// A name that needs no quotes in a shell, an address or a file.
pub(crate) fn name(text: &str) -> Result<AgentName, String> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let right = text.chars().all(fits) && text.starts_with(char::is_alphanumeric);
    let name = AgentName::new(text).ok().filter(|_| right);
    name.ok_or_else(|| {
        let text = plain_line(text);
        format!("`{text}` is no name for an agent: use letters, digits, `-`, `_` and `.`")
    })
}
