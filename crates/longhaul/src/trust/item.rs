//! One thing that a project would do: what is shown of it, and what a decision about it covers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use longhaul_core::raw::Hash;

use crate::mcp::server::format_argv;
use crate::trust::files::ProjectFiles;

/// Maximum number of characters of one line that is shown.
const LINE_CHARS_MAX: usize = 2_000;

/// What happens once it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustKind {
    /// A program is started.
    Run,
    /// An agent runs commands of its choice.
    Shell,
    /// An address gets conversations, keys or messages.
    Send,
    /// Somebody may reach, or be reached, who else may not.
    Open,
}

impl TrustKind {
    /// Its name, which is also the verb for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Shell => "shell",
            Self::Send => "send",
            Self::Open => "open",
        }
    }

    /// What does not happen without trust.
    pub const fn refusal(self) -> &'static str {
        match self {
            Self::Run => "nothing of it is run",
            Self::Shell => "no command is run",
            Self::Send => "nothing is sent to it",
            Self::Open => "nothing of it is opened",
        }
    }

    /// Where the settings of such an item are written.
    pub(crate) const fn settings_source(self) -> &'static str {
        match self {
            Self::Run => ".mcp.json or .env",
            Self::Shell => "the agent's file",
            Self::Send | Self::Open => "longhaul.toml or .env",
        }
    }
}

/// Something that a project would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustItem {
    /// What happens once it is trusted.
    pub kind: TrustKind,
    /// What it is called in a list: a file, a command, an address or a setting.
    pub name: String,
    /// The name with what it is, to stand in a sentence. Decisions know an item by it.
    pub title: String,
    /// Digest of the settings that say what would be done.
    pub settings: Hash,
    /// Digests of the project's files that it runs, by their names. The error says which of them
    /// can't be read.
    pub files: Result<BTreeMap<String, Hash>, String>,
    /// Exactly what would be done, line by line.
    pub lines: Vec<String>,
    /// The agents that would have it done.
    pub used_by: Vec<String>,
}

impl fmt::Display for TrustItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)
    }
}

impl TrustItem {
    /// An item that runs no file of the project. Its title says what the name in it is.
    pub(crate) fn new(kind: TrustKind, name: &str, title: String, settings: &[&str]) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            title,
            settings: digest(settings.iter().map(|text| text.as_bytes())),
            files: Ok(BTreeMap::new()),
            lines: Vec::new(),
            used_by: Vec::new(),
        }
    }

    /// A program that looks at the world, started in this folder.
    pub fn perception(root: &Path, words: &[String]) -> Self {
        Self::command(root, words, |name| format!("the perception command `{name}`"))
    }

    /// A program that messages are handed to, started in this folder.
    pub fn delivery(root: &Path, words: &[String]) -> Self {
        Self::command(root, words, |name| format!("the command `{name}` that messages go to"))
    }

    fn command(root: &Path, words: &[String], title: impl Fn(&str) -> String) -> Self {
        let name = format_argv(words);
        let mut files = ProjectFiles::new(root);
        files.add_command(root, words);
        let settings: Vec<&str> = words.iter().map(String::as_str).collect();
        let item = Self::new(TrustKind::Run, &name, title(&name), &settings);
        Self { files: files.digests(), ..item.with_lines([name]) }
    }

    /// The same item, with these lines shown.
    #[must_use]
    pub(crate) fn with_lines(self, lines: impl IntoIterator<Item = String>) -> Self {
        let shown = lines.into_iter().map(|line| truncate_line(&line)).collect();
        Self { lines: shown, ..self }
    }

    /// The same item, wanted by these agents.
    #[must_use]
    pub(crate) fn with_users(self, used_by: Vec<String>) -> Self {
        Self { used_by, ..self }
    }

    /// Names of the project's files that it runs; `None` means that there are none.
    pub fn file_names(&self) -> Option<String> {
        let files = self.files.as_ref().ok().filter(|files| !files.is_empty())?;
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        Some(truncate_line(&names.join(", ")))
    }
}

/// One digest of several texts, each behind its length so that no two lists read alike.
pub(crate) fn digest<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text);
    }
    Hash::digest(&bytes)
}

pub(crate) fn truncate_line(line: &str) -> String {
    let count = line.chars().count();
    if count <= LINE_CHARS_MAX {
        return line.to_owned();
    }
    let kept: String = line.chars().take(LINE_CHARS_MAX).collect();
    format!("{kept} ... and {} letters more", count - LINE_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_of_texts_have_the_same_digest() {
        let lists: [&[&str]; 6] =
            [&[], &[""], &["Ab"], &["A", "b"], &["A", "bC", "d"], &["Ab", ""]];
        let all = lists.map(|list| digest(list.iter().map(|text| text.as_bytes())));
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }
}
