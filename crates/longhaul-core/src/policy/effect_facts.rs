//! What a tool call would change: files, network, protected paths, and how to undo it. A gate shows
//! it to the person who approves the call.
//!
//! Invariant: all of it comes from the runtime and its tools, and nothing from the words of a model.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::raw::is_default;

/// Maximum length of a file whose text is compared with its text after a call, in bytes.
pub const COMPARED_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of files that a gate shows, and also of hosts and of protected paths.
const ENTRIES_MAX: usize = 20;
/// Maximum length of a path, a host or the text about undoing a call, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;
/// Maximum length of a diff, in bytes.
const DIFF_BYTES_MAX: usize = 16 * 1024;

/// Entry in the list of hosts of a call that may contact any host.
pub const ANY_HOST: &str = "*";

/// Text that is shown in place of an effect that can't be known before the tool call.
pub const NOT_KNOWN: &str = "not known before the call";

/// What a call would change, as far as its tool knows before the call. The default means that
/// nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PredictedEffects {
    /// Files that the call would create, change or delete. `None` means not known.
    pub files: Option<Vec<PredictedFileChange>>,
    /// Hosts that the call would contact, such as `https://example.com`, or [`ANY_HOST`]. `None`
    /// means not known.
    pub network: Option<Vec<String>>,
    /// Protected paths that the call names, such as `.git/config`.
    pub protected_paths: Vec<String>,
    /// How a person can undo the call, or why that is impossible. `None` means not known. For files
    /// whose text is known before and after the call, the runtime offers to reverse the diff.
    pub undo: Option<String>,
}

/// A file before and after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictedFileChange {
    /// Path of the file, as shown to people.
    pub path: String,
    /// Content of the file now.
    pub before: FileContent,
    /// Content of the file after the call.
    pub after: FileContent,
}

/// Content of a file before or after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// The file does not exist.
    Absent,
    Text(String),
    /// The file exists, but its content is binary, too long, or not known.
    Unknown,
}

/// What a call would change, as a gate shows it to a person. The runtime computes it when the model
/// makes the call. All texts are limited in length, and secrets in them are redacted.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EffectFacts {
    /// Files that the call would create, change or delete. `None` means not known, an empty list
    /// that there are none.
    pub files: Option<Vec<FileEffect>>,
    /// Number of further files, which are not listed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more_files: usize,
    /// Hosts that the call would contact, such as `https://example.com`, or [`ANY_HOST`]. `None`
    /// means not known, an empty list that there are none.
    pub network: Option<Vec<String>>,
    /// Protected paths that the call names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_paths: Vec<String>,
    /// How to undo the call, or why that is impossible. `None` means not known.
    pub undo: Option<String>,
    /// Changes of the files as a unified diff. `None` if there is no diff.
    #[schema(ignore)]
    pub diff: Option<String>,
}

/// A file that a call would create, change or delete.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEffect {
    pub path: String,
    /// What the call would do with the file.
    pub change: FileChangeKind,
    /// Number of lines that the call would add. `None` means not known.
    pub lines_added: Option<usize>,
    /// Number of lines that the call would remove. `None` means not known.
    pub lines_removed: Option<usize>,
}

/// What a call would do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    Create,
    /// Change the content of the file.
    Change,
    Delete,
}

impl EffectFacts {
    /// Returns these effects shortened to what a gate shows: a few entries of each kind, short
    /// texts, and the start of a long diff. The last line of a shortened diff says what is left
    /// out.
    #[must_use]
    pub fn truncated_for_gate(mut self) -> Self {
        if let Some(files) = &mut self.files {
            self.more_files += files.len().saturating_sub(ENTRIES_MAX);
            files.truncate(ENTRIES_MAX);
            files.iter_mut().for_each(|file| truncate_text(&mut file.path));
        }
        truncate_list(&mut self.protected_paths);
        self.network.iter_mut().for_each(truncate_list);
        self.undo.iter_mut().for_each(truncate_text);
        self.diff.iter_mut().for_each(truncate_diff);
        self
    }

    /// Returns whether the diff is so short that [`Self::truncated_for_gate`] keeps all of it.
    pub fn is_diff_within_limit(&self) -> bool {
        self.diff.as_ref().is_some_and(|diff| diff.len() <= DIFF_BYTES_MAX)
    }

    /// Returns the effects as rows for people, each with a label and a text. The texts are not
    /// sanitized: they may contain any character.
    pub fn label_and_text_rows(&self) -> Vec<(&'static str, String)> {
        let hosts = |hosts: &[String]| match hosts {
            [] => "none".to_owned(),
            [any] if any == ANY_HOST => "any host".to_owned(),
            hosts => hosts.join(", "),
        };
        let not_known = || NOT_KNOWN.to_owned();
        let mut rows = vec![
            ("Files", self.files.as_deref().map_or_else(not_known, |files| self.files_text(files))),
            ("Network", self.network.as_deref().map_or_else(not_known, hosts)),
        ];
        if !self.protected_paths.is_empty() {
            rows.push(("Protected", self.protected_paths.join(", ")));
        }
        rows.push(("Undo", self.undo.clone().unwrap_or_else(not_known)));
        rows
    }

    fn files_text(&self, files: &[FileEffect]) -> String {
        let mut texts: Vec<String> = files.iter().map(FileEffect::change_text).collect();
        if self.more_files > 0 {
            texts.push(format!("and {} more", self.more_files));
        }
        match texts.is_empty() {
            true => "none".to_owned(),
            false => texts.join(", "),
        }
    }
}

impl FileEffect {
    /// Returns a text for the file change, such as `change notes.md (+3 -1 lines)`.
    pub fn change_text(&self) -> String {
        let verb = match self.change {
            FileChangeKind::Create => "create",
            FileChangeKind::Change => "change",
            FileChangeKind::Delete => "delete",
        };
        let line_counts = match (self.lines_added, self.lines_removed) {
            (Some(added), Some(removed)) => format!("+{added} -{removed} lines"),
            (Some(added), None) => format!("+{added} lines, removed lines not known"),
            (None, _) => "lines not known".to_owned(),
        };
        format!("{verb} {} ({line_counts})", self.path)
    }
}

fn truncate_list(list: &mut Vec<String>) {
    list.iter_mut().for_each(truncate_text);
    if list.len() > ENTRIES_MAX {
        let omitted = list.len() - ENTRIES_MAX;
        list.truncate(ENTRIES_MAX);
        list.push(format!("and {omitted} more"));
    }
}

fn truncate_text(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
}

fn truncate_diff(diff: &mut String) {
    if diff.len() <= DIFF_BYTES_MAX {
        return;
    }
    let whole_lines = diff.lines().count();
    diff.truncate(diff.floor_char_boundary(DIFF_BYTES_MAX));
    diff.truncate(diff.rfind('\n').map_or(0, |end| end + 1));
    let omitted_lines = whole_lines - diff.lines().count();
    diff.push_str(&format!("… and {omitted_lines} more lines\n"));
}

#[cfg(test)]
mod tests {
    use super::{DIFF_BYTES_MAX, EffectFacts, FileChangeKind, FileEffect, PredictedEffects};

    fn file_effect(path: &str, added: Option<usize>, removed: Option<usize>) -> FileEffect {
        FileEffect {
            path: path.to_owned(),
            change: FileChangeKind::Change,
            lines_added: added,
            lines_removed: removed,
        }
    }

    #[test]
    fn effect_rows_distinguish_none_from_not_known() {
        let check = |facts: EffectFacts, expected: &str| {
            let rows: Vec<String> = facts
                .label_and_text_rows()
                .iter()
                .map(|(label, text)| format!("{label}: {text}"))
                .collect();
            assert_eq!(rows.join("\n"), expected);
        };
        check(
            EffectFacts::default(),
            "Files: not known before the call\nNetwork: not known before the call\n\
             Undo: not known before the call",
        );
        check(
            EffectFacts {
                files: Some(vec![
                    file_effect("a.md", Some(3), Some(1)),
                    file_effect("b", Some(2), None),
                ]),
                more_files: 7,
                network: Some(Vec::new()),
                protected_paths: vec![".git/config".to_owned()],
                undo: Some("reverse it".to_owned()),
                diff: None,
            },
            "Files: change a.md (+3 -1 lines), change b (+2 lines, removed lines not known), and \
             7 more\nNetwork: none\nProtected: .git/config\nUndo: reverse it",
        );
    }

    #[test]
    fn truncated_effect_facts_say_what_is_left_out() {
        let example_names =
            |count: usize| (0..count).map(|index| format!("{index}.example")).collect();
        let diff: String = (0..4_000).map(|index| format!("+ü line {index}\n")).collect();
        let facts = EffectFacts {
            files: Some(vec![file_effect(&"ü".repeat(4_000), None, None); 25]),
            network: Some(example_names(21)),
            protected_paths: example_names(100),
            undo: Some("x".repeat(5_000)),
            diff: Some(diff),
            ..EffectFacts::default()
        };
        assert!(!facts.is_diff_within_limit());
        let truncated = facts.truncated_for_gate();
        let files = truncated.files.clone().unwrap();
        assert_eq!((files.len(), truncated.more_files), (20, 5));
        assert!(files[0].path.len() <= 1_030 && files[0].path.ends_with('…'));
        assert_eq!(truncated.network.clone().unwrap().last().unwrap(), "and 1 more");
        assert_eq!(truncated.protected_paths.last().unwrap(), "and 80 more");
        let diff = truncated.diff.unwrap();
        assert!(diff.len() < DIFF_BYTES_MAX + 50, "{}", diff.len());
        let omitted_lines: usize =
            diff.lines().last().unwrap().split(' ').nth(2).unwrap().parse().unwrap();
        assert_eq!(diff.lines().count() - 1 + omitted_lines, 4_000);
        let one_line = EffectFacts { diff: Some("x".repeat(40_000)), ..EffectFacts::default() };
        assert_eq!(one_line.truncated_for_gate().diff.unwrap(), "… and 1 more lines\n");
    }

    #[test]
    fn unknown_effect_facts_are_not_serialized() {
        assert_eq!(serde_json::to_string(&EffectFacts::default()).unwrap(), "{}");
        assert_eq!(PredictedEffects::default().files, None);
    }
}
