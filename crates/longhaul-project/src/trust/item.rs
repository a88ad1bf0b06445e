//! Trust items: each is an action of a project that a person must approve, with the text shown to
//! that person and the content that the decision covers, including the project files that a command
//! runs.
//!
//! A word of a command counts if it, or a part of it that a shell or an option would split off, is
//! the path of a regular file inside the project. Files that such a file loads are not included.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use longhaul_core::raw::Hash;

use crate::config::env::Env;
use crate::mcp::expand::expand_variables;
use crate::mcp::server::format_argv;
use crate::project_file;

/// Maximum number of characters of a line that describes a trust item (an action that needs
/// approval).
const LINE_CHARS_MAX: usize = 2_000;

/// Kind of action that a person allows by trusting an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustKind {
    /// Starts a program of the project.
    Run,
    /// Lets an agent run commands of its choice.
    Shell,
    /// Sends conversations, API keys or messages to a URL.
    Send,
    /// Opens access to the server or to additional hosts, or lets the files of a folder start runs.
    Open,
}

impl TrustKind {
    /// Returns the name of the kind of action, such as `run` or `send`, for output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Shell => "shell",
            Self::Send => "send",
            Self::Open => "open",
        }
    }

    /// Returns what does not happen without trust, as a clause such as "nothing is sent to it".
    pub const fn refusal_clause(self) -> &'static str {
        match self {
            Self::Run => "it is not run",
            Self::Shell => "no command is run",
            Self::Send => "nothing is sent to it",
            Self::Open => "it is not used",
        }
    }

    /// Returns which files contain the settings of items of this kind, as text for messages.
    pub(crate) const fn settings_source(self) -> &'static str {
        match self {
            Self::Run => ".mcp.json or .env",
            Self::Shell => "the agent's file",
            Self::Send | Self::Open => "longhaul.toml or .env",
        }
    }
}

/// An action of a project that a person must approve before it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustItem {
    /// Kind of action that the item allows.
    pub kind: TrustKind,
    /// Name of the item in lists: a file, a command, a URL or a setting.
    pub name: String,
    /// Name of the item with its kind, for use in a sentence. Trust decisions identify the item by
    /// this text.
    pub title: String,
    /// Digest of the settings that define what the item runs or where it sends data.
    pub settings_digest: Hash,
    /// Digests of the project files that the item runs, by path. The error names a file that
    /// can't be read.
    pub files: Result<BTreeMap<String, Hash>, String>,
    /// Exact description of the action, as lines to show.
    pub lines: Vec<String>,
    /// Names of the agents or commands that use the item.
    pub used_by: Vec<String>,
}

impl fmt::Display for TrustItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)
    }
}

impl TrustItem {
    /// Creates a trust item whose action runs no project files. Trust decisions identify the item
    /// by `title`.
    pub(crate) fn new(
        kind: TrustKind,
        name: &str,
        title: String,
        settings: &[impl AsRef<str>],
    ) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            title,
            settings_digest: digest_texts(settings.iter().map(|text| text.as_ref().as_bytes())),
            files: Ok(BTreeMap::new()),
            lines: Vec::new(),
            used_by: Vec::new(),
        }
    }

    /// Creates the trust item for a perception command, which returns data about the outside world.
    /// It is started in the folder `root`.
    pub fn for_perception_command(root: &Path, args: &[String]) -> Self {
        Self::of_command(root, args, |name| format!("the perception command `{name}`"))
    }

    /// Creates the trust item for a command that is started in the folder `root`. `title` makes the
    /// item's title from the formatted command.
    pub(crate) fn of_command(root: &Path, args: &[String], title: impl Fn(&str) -> String) -> Self {
        let name = format_argv(args);
        let mut files = CommandFileCollector::new(root);
        files.add_command_files(root, args);
        let item = Self::new(TrustKind::Run, &name, title(&name), args);
        Self { files: files.file_digests(), ..item.with_description_lines([name]) }
    }

    /// Sets the lines that describe the action of the trust item.
    #[must_use]
    pub(crate) fn with_description_lines(self, lines: impl IntoIterator<Item = String>) -> Self {
        let truncated = lines.into_iter().map(|line| truncate_line(&line)).collect();
        Self { lines: truncated, ..self }
    }

    /// Sets the names of the agents or commands that use the trust item.
    #[must_use]
    pub(crate) fn with_used_by(self, users: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { used_by: users.into_iter().map(Into::into).collect(), ..self }
    }

    /// Returns the paths of the project files that the action runs, as one text. `None` means that
    /// there are none.
    pub fn joined_file_names(&self) -> Option<String> {
        let files = self.files.as_ref().ok().filter(|files| !files.is_empty())?;
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        Some(truncate_line(&names.join(", ")))
    }
}

/// Returns one digest of several texts. Each text is prefixed with its length, so that different
/// lists have different digests.
pub(crate) fn digest_texts<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text);
    }
    Hash::digest(&bytes)
}

/// Shortens a line to `LINE_CHARS_MAX` characters, with a remark about how many are left out.
pub(crate) fn truncate_line(line: &str) -> String {
    let count = line.chars().count();
    if count <= LINE_CHARS_MAX {
        return line.to_owned();
    }
    let shown_part: String = line.chars().take(LINE_CHARS_MAX).collect();
    format!("{shown_part} ... and {} more characters", count - LINE_CHARS_MAX)
}

/// Maximum total size in bytes of the project files that one trust item (an action that needs
/// approval) runs.
const BYTES_MAX: usize = 64 << 20;

/// Characters at which a shell splits a word, or an option is separated from its value.
const SEPARATORS: &[char] =
    &[' ', '\t', '\n', '\r', ';', '&', '|', '(', ')', '<', '>', '"', '\'', '`', '=', ':', ','];

/// Names of the files that an interpreter runs if its argument is a folder.
const MODULE_ENTRY_FILES: &[&str] = &["__main__.py", "__init__.py", "index.js", "package.json"];

/// Collects the files of one project that commands run.
#[derive(Debug)]
pub(crate) struct CommandFileCollector {
    root: PathBuf,
    files: BTreeSet<PathBuf>,
}

impl CommandFileCollector {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            // A missing folder has no files.
            root: fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()),
            files: BTreeSet::new(),
        }
    }

    /// Adds the project files that a command runs when it is started in this folder. A program
    /// without a `/` is skipped, since it is found via PATH.
    pub(crate) fn add_command_files(&mut self, folder: &Path, args: &[String]) {
        let Some((program, rest)) = args.split_first() else {
            return;
        };
        if program.contains('/') {
            self.add_files_in_argument(folder, program);
        }
        let mut previous_arg = "";
        for arg in rest {
            self.add_files_in_argument(folder, arg);
            // `-m MODULE` runs the file of a Python module.
            let module = match previous_arg {
                "-m" => Some(arg.as_str()),
                _ => arg.strip_prefix("-m").filter(|module| !module.is_empty()),
            };
            if let Some(module) = module {
                let path = module.replace('.', "/");
                self.add_file_at_path(folder, &format!("{path}.py"));
                self.add_file_at_path(folder, &path);
            }
            previous_arg = arg;
        }
    }

    /// Adds the project files that one word of a command names: as written, with the defaults of
    /// its variables, and without its variables. Values of the environment are not used, so that a
    /// trust decision is valid in every shell.
    pub(crate) fn add_files_in_argument(&mut self, folder: &Path, argument: &str) {
        let expanded = expand_variables(argument, &Env::default()).unwrap_or_default();
        for text in [argument, &expanded, &strip_variable_references(argument)] {
            self.add_file_at_path(folder, text);
            for part in text.split(SEPARATORS) {
                self.add_file_at_path(folder, part);
                self.add_file_at_path(folder, part.trim_start_matches('/'));
            }
        }
    }

    /// Adds the file at this path if it is inside the project. If the path is a folder, adds the
    /// files that an interpreter would run in it.
    fn add_file_at_path(&mut self, folder: &Path, path_text: &str) {
        if path_text.is_empty() || path_text.contains('\0') {
            return;
        }
        let Ok(path) = fs::canonicalize(folder.join(path_text)) else {
            return;
        };
        let is_file_in_project = |path: &PathBuf| path.is_file() && path.starts_with(&self.root);
        // The project's own folder is named as a working directory, not to be run.
        let paths: Vec<PathBuf> = match path.is_dir() && path != self.root {
            true => {
                let entries = MODULE_ENTRY_FILES.iter().map(|entry| path.join(entry));
                entries.filter_map(|entry| fs::canonicalize(entry).ok()).collect()
            }
            false => vec![path],
        };
        self.files.extend(paths.into_iter().filter(is_file_in_project));
    }

    /// Returns the paths of the collected files.
    #[cfg(feature = "mcp")]
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Returns the digest of each collected file, by its path in the project. The error names a
    /// file that can't be read.
    pub(crate) fn file_digests(&self) -> Result<BTreeMap<String, Hash>, String> {
        let mut bytes_left = BYTES_MAX;
        let mut digests = BTreeMap::new();
        for file in &self.files {
            let path = file.strip_prefix(&self.root).unwrap_or(file);
            let file_error = |reason: &str| format!("`{}`: {reason}", path.display());
            let name =
                path.to_str().ok_or_else(|| file_error("the name of the file is not UTF-8"))?;
            let content = project_file::read_file_in_project(&self.root, path, bytes_left);
            let content = content.map_err(|error| file_error(&error.to_string()))?;
            bytes_left -= content.len();
            digests.insert(name.to_owned(), Hash::digest(&content));
        }
        Ok(digests)
    }
}

/// Removes every variable `${...}` from a word.
pub(crate) fn strip_variable_references(text: &str) -> String {
    let mut stripped = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        stripped.push_str(before);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    stripped.push_str(rest);
    stripped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_of_texts_have_the_same_digest() {
        let lists: [&[&str]; 6] =
            [&[], &[""], &["Ab"], &["A", "b"], &["A", "bC", "d"], &["Ab", ""]];
        let all = lists.map(|list| digest_texts(list.iter().map(|text| text.as_bytes())));
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }
}

#[cfg(test)]
mod files_tests {
    use super::*;

    fn assert_found_files(args: &[&str], expected: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        for file in ["a.py", "b.sh", "pkg/__main__.py", "pkg/mod.py", "look"] {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut files = CommandFileCollector::new(root.path());
        files.add_command_files(root.path(), &args);
        let found = files.file_digests().unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), expected, "{args:?}");
    }

    #[test]
    fn every_project_file_named_by_a_command_is_found() {
        assert_found_files(&["look"], &[]);
        assert_found_files(&["./look", "--fast"], &["look"]);
        assert_found_files(&["python3", "-u", "a.py", "b.sh"], &["a.py", "b.sh"]);
        assert_found_files(&["node", "--require=./a.py", "look"], &["a.py", "look"]);
        assert_found_files(&["python3", "-m", "a"], &["a.py"]);
        assert_found_files(&["python3", "-ma"], &["a.py"]);
        assert_found_files(&["python3", "-m", "pkg"], &["pkg/__main__.py"]);
        assert_found_files(&["python3", "-m", "pkg.mod"], &["pkg/mod.py"]);
        assert_found_files(&["python3", "pkg"], &["pkg/__main__.py"]);
        assert_found_files(&["sh", "-c", "cd .; python3 a.py&&./b.sh"], &["a.py", "b.sh"]);
        assert_found_files(&["python3", "${PWD}/a.py"], &["a.py"]);
        assert_found_files(&["python3", "${X:-b.sh}"], &["b.sh"]);
        assert_found_files(&["sh", "/etc/passwd", "../a.py", "."], &[]);
        assert_found_files(&["", "\0"], &[]);
        assert_found_files(&[], &[]);
    }

    #[test]
    fn a_file_too_large_to_hash_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let file = fs::File::create(root.path().join("big")).unwrap();
        file.set_len(BYTES_MAX as u64 + 1).unwrap();
        let mut files = CommandFileCollector::new(root.path());
        files.add_files_in_argument(root.path(), "big");
        let error = files.file_digests().unwrap_err();
        assert_eq!(error, "`big`: the file is longer than 67108864 bytes");
    }
}
