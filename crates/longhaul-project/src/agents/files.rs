//! Finds agent files in a folder and reads their bytes, without parsing them.

use std::path::{Path, PathBuf};

use longhaul_core::id::AgentName;

use crate::agents::loaded_agents::AgentSource;
use crate::agents::problem::{AgentFileProblem, ProblemKind};
use crate::agents::split::{BODY_BYTES_MAX, FRONT_MATTER_BYTES_MAX};
use crate::project_file::{self, ProjectFileError};
use crate::spanned::escape_to_one_line;

/// Maximum depth of nested folders below `.claude/agents`.
const FOLDER_DEPTH_MAX: usize = 8;

/// A file that may define an agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentFile {
    /// File name without `.md`.
    pub(crate) stem: String,
    /// Path of the file as shown to people.
    pub(crate) path: PathBuf,
    /// Where the file was found: in the project's folder or in Claude Code's.
    pub(crate) source: AgentSource,
}

/// The agent files that were found in a folder.
#[derive(Debug, Default)]
pub(crate) struct AgentFileListing {
    /// Agent files with their paths on disk, sorted by folder and name.
    pub(crate) files: Vec<(PathBuf, AgentFile)>,
    /// Folders that could not be listed.
    pub(crate) problems: Vec<AgentFileProblem>,
    /// Skipped folders, each with the reason why it was skipped.
    pub(crate) notes: Vec<(PathBuf, String)>,
}

/// Lists the agent files of a folder. Hidden files and files without the suffix `.md` are ignored.
/// Subfolders are searched only in `.claude/agents`, as Claude Code does.
pub(crate) fn list_agent_files(
    folder: &Path,
    display_path: &Path,
    source: AgentSource,
) -> AgentFileListing {
    let mut listing = AgentFileListing::default();
    listing.list_folder((folder, display_path), source, 0);
    let sort_key =
        |(at, file): &(PathBuf, AgentFile)| (at.parent().map(Path::to_owned), file.stem.clone());
    listing.files.sort_by_key(sort_key);
    listing
}

impl AgentFileListing {
    fn list_folder(
        &mut self,
        (folder, display_path): (&Path, &Path),
        source: AgentSource,
        depth: usize,
    ) {
        let problem = |error: &std::io::Error| AgentFileProblem {
            path: display_path.to_path_buf(),
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
            let (file_path, path) = (entry.path(), display_path.join(name.as_ref()));
            match name.strip_suffix(".md").filter(|stem| !stem.is_empty()) {
                Some(stem) => {
                    let stem = stem.to_owned();
                    self.files.push((file_path, AgentFile { stem, path, source }));
                }
                None if file_path.is_dir() => {
                    self.list_subfolder((&file_path, &path), source, depth + 1)
                }
                None => {}
            }
        }
    }

    /// Searches a subfolder for agent files, or adds a note if the subfolder is skipped and
    /// contains `.md` files.
    fn list_subfolder(
        &mut self,
        (folder, display_path): (&Path, &Path),
        source: AgentSource,
        depth: usize,
    ) {
        let reason = match source {
            AgentSource::Project | AgentSource::BuiltIn => {
                "agents are read only from the parent folder"
            }
            AgentSource::Claude if folder.is_symlink() => {
                "the folder is a symbolic link, which is not followed"
            }
            AgentSource::Claude if depth > FOLDER_DEPTH_MAX => "the folder is nested too deeply",
            AgentSource::Claude => {
                return self.list_folder((folder, display_path), source, depth);
            }
        };
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files = files.filter(|file| file.path().extension().is_some_and(|end| end == "md"));
        if files.next().is_some() {
            let note = format!("the files in this folder are ignored: {reason}");
            self.notes.push((display_path.to_owned(), note));
        }
    }
}

/// Reads the agent file at `path`, which must be below `root`.
pub(crate) fn read_agent_file(root: &Path, path: &Path) -> Result<Vec<u8>, String> {
    // Generous limit, for line ends of two bytes and the fences. `split` checks the exact limits.
    let bytes_max = 2 * (FRONT_MATTER_BYTES_MAX + BODY_BYTES_MAX);
    let relative = path.strip_prefix(root).unwrap_or(path);
    project_file::read_file_in_project(root, relative, bytes_max).map_err(|error| match error {
        ProjectFileError::TooLong(_) => format!(
            "the file is too long: {FRONT_MATTER_BYTES_MAX} bytes of front matter and {BODY_BYTES_MAX} of prompt at most"
        ),
        ProjectFileError::Missing | ProjectFileError::OutsideProject | ProjectFileError::Symlink => format!("the file can't be read: {error}"),
        ProjectFileError::NotAFile | ProjectFileError::Io(_) => error.to_string(),
    })
}

/// Parses an agent name. A valid name needs no quotes in a shell, a URL or a file name.
pub(crate) fn parse_agent_name(text: &str) -> Result<AgentName, String> {
    let is_name_char = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_valid = text.chars().all(is_name_char) && text.starts_with(char::is_alphanumeric);
    let name = AgentName::new(text).ok().filter(|_| is_valid);
    name.ok_or_else(|| {
        let text = escape_to_one_line(text);
        format!("`{text}` is not a valid agent name: use letters, digits, `-`, `_` and `.`")
    })
}
