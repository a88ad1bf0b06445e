//! Trust items: each is an action of a project that a person must approve, with the text shown to
//! that person and the content that the decision covers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use longhaul_core::raw::Hash;

use crate::mcp::server::format_argv;
use crate::trust::files::CommandFileCollector;

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
    pub(crate) fn new(kind: TrustKind, name: &str, title: String, settings: &[&str]) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            title,
            settings_digest: digest_texts(settings.iter().map(|text| text.as_bytes())),
            files: Ok(BTreeMap::new()),
            lines: Vec::new(),
            used_by: Vec::new(),
        }
    }

    /// Creates the trust item for a perception command, which returns data about the outside world.
    /// It is started in the folder `root`.
    pub fn for_perception_command(root: &Path, args: &[String]) -> Self {
        Self::for_command(root, args, |name| format!("the perception command `{name}`"))
    }

    /// Creates the trust item for a command that receives the messages of agents. It is started in
    /// the folder `root`.
    pub fn for_delivery_command(root: &Path, args: &[String]) -> Self {
        Self::for_command(root, args, |name| format!("the command `{name}` that receives messages"))
    }

    /// Creates the trust item for a command. `title` makes the item's title from the formatted
    /// command.
    fn for_command(root: &Path, args: &[String], title: impl Fn(&str) -> String) -> Self {
        let name = format_argv(args);
        let mut files = CommandFileCollector::new(root);
        files.add_command_files(root, args);
        let settings: Vec<&str> = args.iter().map(String::as_str).collect();
        let item = Self::new(TrustKind::Run, &name, title(&name), &settings);
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
    pub(crate) fn with_used_by(self, agents_or_commands: Vec<String>) -> Self {
        Self { used_by: agents_or_commands, ..self }
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
