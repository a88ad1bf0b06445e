//! Finds agents' files in a folder and reads their bytes.
//!
//! Never: looks into them.

use std::path::{Path, PathBuf};

use longhaul_core::id::AgentName;

use crate::agents::loaded_agents::AgentSource;
use crate::agents::problem::{Problem, ProblemKind};
use crate::agents::split::{BODY_BYTES_MAX, FRONT_MATTER_BYTES_MAX};
use crate::project_file::{self, ProjectFileError};
use crate::spanned::escape_line;

/// So deep folders may stand in each other.
const DEPTH_MAX: usize = 8;

/// A file that may hold an agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentFile {
    /// Its name without `.md`.
    pub(crate) stem: String,
    /// As it is said to people.
    pub(crate) path: PathBuf,
    /// Where it comes from.
    pub(crate) source: AgentSource,
}

/// What was found in a folder.
#[derive(Debug, Default)]
pub(crate) struct FileListing {
    /// Each file, and where it is; those of the folder itself first, by name.
    pub(crate) files: Vec<(PathBuf, AgentFile)>,
    /// Why something can't be listed.
    pub(crate) problems: Vec<Problem>,
    /// What was passed over.
    pub(crate) notes: Vec<(PathBuf, String)>,
}

/// The files of a folder. Hidden files and what does not end in `.md` are none of
/// ours. Claude's may stand in folders below, as Claude Code reads them.
pub(crate) fn list(folder: &Path, said: &Path, source: AgentSource) -> FileListing {
    let mut listed = FileListing::default();
    listed.walk((folder, said), source, 0);
    let place =
        |(at, file): &(PathBuf, AgentFile)| (at.parent().map(Path::to_owned), file.stem.clone());
    listed.files.sort_by_key(place);
    listed
}

impl FileListing {
    fn walk(&mut self, (folder, said): (&Path, &Path), source: AgentSource, depth: usize) {
        let problem = |error: &std::io::Error| Problem {
            path: said.to_path_buf(),
            line: 1,
            column: 1,
            message: format!("the folder can't be read: {error}"),
            kind: ProblemKind::Invalid,
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
                    self.files.push((at, AgentFile { stem, path, source }));
                }
                None if at.is_dir() => self.enter_folder((&at, &path), source, depth + 1),
                None => {}
            }
        }
    }

    /// Goes into a folder, or says why not where it holds something.
    fn enter_folder(&mut self, (at, path): (&Path, &Path), source: AgentSource, depth: usize) {
        let passed = match source {
            AgentSource::Project | AgentSource::BuiltIn => {
                "agents are read from the folder above only"
            }
            AgentSource::Claude if at.is_symlink() => {
                "it is a link to a folder, which is not followed"
            }
            AgentSource::Claude if depth > DEPTH_MAX => "it lies too deep",
            AgentSource::Claude => return self.walk((at, path), source, depth),
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
pub(crate) fn read(root: &Path, path: &Path) -> Result<Vec<u8>, String> {
    // Line ends of two bytes and the fences come on top; the exact caps are the cutter's.
    let most = 2 * (FRONT_MATTER_BYTES_MAX + BODY_BYTES_MAX);
    let relative = path.strip_prefix(root).unwrap_or(path);
    project_file::read(root, relative, most).map_err(|unread| match unread {
        ProjectFileError::TooLong(_) => format!(
            "is too long: {FRONT_MATTER_BYTES_MAX} bytes of front matter and {BODY_BYTES_MAX} of prompt at most"
        ),
        ProjectFileError::Missing | ProjectFileError::OutsideProject | ProjectFileError::Symlink => format!("can't be read: it {unread}"),
        ProjectFileError::NotAFile | ProjectFileError::Io(_) => unread.to_string(),
    })
}

/// A name that needs no quotes in a shell, an address or a file.
pub(crate) fn parse_name(text: &str) -> Result<AgentName, String> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let right = text.chars().all(fits) && text.starts_with(char::is_alphanumeric);
    let name = AgentName::new(text).ok().filter(|_| right);
    name.ok_or_else(|| {
        let text = escape_line(text);
        format!("`{text}` is no name for an agent: use letters, digits, `-`, `_` and `.`")
    })
}
