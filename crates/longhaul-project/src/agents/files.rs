//! Finds agent files in a folder, reads their bytes, and splits them into front matter and body. They
//! are not parsed here.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use longhaul_core::id::AgentName;

use crate::agents::loaded_agents::AgentSource;
use crate::agents::problem::AgentFileProblem;
use crate::project_file::{self, ProjectFileError};
use crate::spanned::{Position, escape_to_one_line};

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
    pub(crate) content: AgentFileContent,
}

/// Where the content of an agent file is.
#[derive(Debug, Clone)]
pub(crate) enum AgentFileContent {
    OnDisk(PathBuf),
    Text(String),
}

/// The agent files that were found in a folder.
#[derive(Debug, Default)]
pub(crate) struct AgentFileListing {
    /// Agent files, sorted by folder and name.
    pub(crate) files: Vec<AgentFile>,
    /// Folders that could not be listed.
    pub(crate) problems: Vec<AgentFileProblem>,
    /// Skipped folders, each with the reason why it was skipped.
    pub(crate) notes: Vec<(PathBuf, String)>,
}

/// Lists the agent files of a folder. Hidden files and files without the suffix `.md` are ignored.
/// Subfolders are searched only in `.claude/agents`, as Claude Code does.
pub(crate) fn list_files(folder: &Path, shown: &Path, source: AgentSource) -> AgentFileListing {
    let mut listing = AgentFileListing::default();
    listing.list_folder((folder, shown), source, 0);
    listing.files.sort_by_key(|file| (file.path.parent().map(Path::to_owned), file.stem.clone()));
    listing
}

impl AgentFileListing {
    fn list_folder(&mut self, (folder, shown): (&Path, &Path), source: AgentSource, depth: usize) {
        let problem = |error: std::io::Error| {
            AgentFileProblem::of_file(shown, format!("the folder can't be read: {error}"))
        };
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.problems.push(problem(error)),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.problems.push(problem(error));
                    continue;
                }
            };
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            let (file_path, path) = (entry.path(), shown.join(name.as_ref()));
            match name.strip_suffix(".md").filter(|stem| !stem.is_empty()) {
                Some(stem) => {
                    let (stem, content) = (stem.to_owned(), AgentFileContent::OnDisk(file_path));
                    self.files.push(AgentFile { stem, path, source, content });
                }
                None if file_path.is_dir() => {
                    self.list_nested((&file_path, &path), source, depth + 1)
                }
                None => {}
            }
        }
    }

    /// Searches a subfolder for agent files, or adds a note if the subfolder is skipped and
    /// contains `.md` files.
    fn list_nested(&mut self, (folder, shown): (&Path, &Path), source: AgentSource, depth: usize) {
        let reason = match source {
            AgentSource::Project | AgentSource::BuiltIn => {
                "agents are read only from the parent folder"
            }
            AgentSource::Claude if folder.is_symlink() => {
                "the folder is a symbolic link, which is not followed"
            }
            AgentSource::Claude if depth > FOLDER_DEPTH_MAX => "the folder is nested too deeply",
            AgentSource::Claude => {
                return self.list_folder((folder, shown), source, depth);
            }
        };
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files = files.filter(|file| file.path().extension().is_some_and(|end| end == "md"));
        if files.next().is_some() {
            let note = format!("the files in this folder are ignored: {reason}");
            self.notes.push((shown.to_owned(), note));
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

/// Maximum size of the front matter of an agent file in bytes.
pub(crate) const FRONT_MATTER_BYTES_MAX: usize = 16 << 10;

/// Maximum size of the body of an agent file in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 256 << 10;

/// Front matter and body of an agent file. Line ends are normalized to `\n`, so that an agent has
/// the same version on every machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AgentFileParts {
    /// YAML text of the front matter. An empty line replaces the first `---`, so that line numbers
    /// match the file.
    pub(crate) front_matter: String,
    /// Text after the front matter: the prompt.
    pub(crate) body: String,
    /// Line of the file at which the body starts.
    pub(crate) body_line: usize,
}

/// Splits an agent file into front matter and body. The error is a position and a message.
pub(crate) fn split_agent_file(bytes: &[u8]) -> Result<AgentFileParts, (Position, String)> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid_text = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let position = Position::from_offset(&valid_text, valid_text.len());
        (position, "the file is not UTF-8: save it as UTF-8".to_owned())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text: Cow<'_, str> =
        if text.contains('\r') { text.replace("\r\n", "\n").into() } else { text.into() };
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    if !lines.next().is_some_and(is_fence) {
        let message = "an agent file starts with a line `---`, its front matter and another \
                       `---`; move other files to another folder";
        return Err((Position::START, message.to_owned()));
    }
    let mut front_matter = "\n".to_owned();
    let mut body_line = 2;
    loop {
        let Some(line) = lines.next() else {
            let message = "the front matter is not closed: add a line `---` below it";
            return Err((Position::START, message.to_owned()));
        };
        body_line += 1;
        if is_fence(line) {
            break;
        }
        front_matter.push_str(line);
        if front_matter.len() > FRONT_MATTER_BYTES_MAX {
            let message = format!("the front matter is longer than {FRONT_MATTER_BYTES_MAX} bytes");
            return Err((Position::START, message));
        }
    }
    let body: String = lines.collect();
    let position = Position { line: body_line, column: 1 };
    if body.len() > BODY_BYTES_MAX {
        let message = format!("the prompt is longer than {BODY_BYTES_MAX} bytes");
        return Err((position, message));
    }
    let trimmed = body.trim_start_matches('\n');
    Ok(AgentFileParts {
        front_matter,
        body_line: body_line + body.len() - trimmed.len(),
        body: trimmed.trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_agent_file_split(file: &[u8], front_matter: &str, body: &str, body_line: usize) {
        let parts = split_agent_file(file).unwrap();
        let found = (parts.front_matter.as_str(), parts.body.as_str(), parts.body_line);
        assert_eq!(found, (front_matter, body, body_line));
    }

    #[test]
    fn a_file_is_split_into_front_matter_and_body() {
        assert_agent_file_split(b"---\nname: a\n---\nHello.\n", "\nname: a\n", "Hello.", 4);
        assert_agent_file_split(b"---\n---\n\n\nHello.", "\n", "Hello.", 5);
        assert_agent_file_split(b"---\nname: a\n---", "\nname: a\n", "", 4);
        let windows = b"\xEF\xBB\xBF---\r\nname: a\r\n---\r\nOne.\r\nTwo.\r\n";
        assert_agent_file_split(windows, "\nname: a\n", "One.\nTwo.", 4);
        assert_agent_file_split(b"--- \nname: a\n---  \nA\n---\nB", "\nname: a\n", "A\n---\nB", 4);
    }

    #[test]
    fn files_without_front_matter_are_refused() {
        let check_error = |file: &[u8], position: &str, expected: &str| {
            let (at, message) = split_agent_file(file).unwrap_err();
            assert_eq!(at.to_string(), position);
            assert!(message.contains(expected), "{message}");
        };
        check_error(b"# Read me\n", "1:1", "starts with a line `---`");
        check_error(b"", "1:1", "starts with a line `---`");
        check_error(b"---\nname: a\n", "1:1", "is not closed");
        check_error(b"---\nname: \xff\n---\n", "2:7", "UTF-8");
        let long = format!("---\na: {}\n---\n", "x".repeat(FRONT_MATTER_BYTES_MAX));
        check_error(long.as_bytes(), "1:1", "longer than 16384 bytes");
        let long = format!("---\n---\n{}", "x".repeat(BODY_BYTES_MAX + 1));
        check_error(long.as_bytes(), "3:1", "longer than 262144 bytes");
    }
}
