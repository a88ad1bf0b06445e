//! The tool `edit_file`, which replaces exact text in a file.
//!
//! Invariant: an ambiguous edit is rejected, and the line endings of the file are kept.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::tool::ToolContext;

use crate::disk_tool::{DiskTool, Reason};
use crate::files::protected::PathAccess;
use crate::files::text::{FILE_BYTES_MAX, check_file_size, decode_utf8, read_text};
use crate::files::workspace::Workspace;
use crate::safe_dir::FsError;

/// Maximum number of matches that are checked to find out whether an interrupted call has made its
/// edit.
const MATCHES_MAX: usize = 1_000;

#[derive(Debug)]
pub(crate) struct EditFileTool(pub(crate) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFileInput {
    /// The file, relative to the top of the workspace, such as `src/main.rs`
    path: String,
    /// The text to replace, exactly as in the file with its spaces and line breaks, without the
    /// line numbers of read_file
    old: String,
    /// The replacement text; empty to remove the old text
    new: String,
    /// Replace every occurrence of `old`; otherwise it must occur only once
    all: Option<bool>,
}

impl DiskTool for EditFileTool {
    type Input = EditFileInput;
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Replaces exact text in a file of the workspace. Read the \
        file first, and include enough surrounding lines in `old` so that it occurs only once.";
    const CLASS: EffectClass = EffectClass::Once;
    const VERIFIES: bool = true;
    const FAILURE: &'static str = "Nothing was edited";

    fn in_sandbox(&self, work_folder: PathBuf) -> Option<Self> {
        Some(Self(self.0.in_sandbox(work_folder)))
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        self.0.rule_match_texts(input)
    }

    fn predict_effects(&self, input: EditFileInput, _ctx: &ToolContext) -> PredictedEffects {
        self.0.predict_write(&input.path, |before| predict_edited_content(before, &input))
    }

    fn call(&self, input: EditFileInput, _ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let target = self.0.checked_file_path(&input.path, PathAccess::Write)?;
        if input.old.is_empty() {
            return Err("`old` is empty; give the text to replace".into());
        }
        if input.old == input.new {
            return Err("`old` and `new` are the same text".into());
        }
        let fs_error = |error| target.fs_error(error);
        // Checked before the writer is opened, because that would create missing folders.
        let file = self.0.open_file(&target).map_err(fs_error)?;
        check_file_size(&file).map_err(|reason| target.error(reason))?;
        let writer = self.0.open_writer(&target).map_err(fs_error)?;
        let before = writer.read_current_file(&target.file, FILE_BYTES_MAX).map_err(fs_error)?;
        let mut before = before.ok_or_else(|| fs_error(FsError::NotFound))?;
        let display_path = &target.display;
        if before.is_truncated {
            let reason = "another program has made the file too large to edit";
            return Err(target.error(reason).into());
        }
        if before.is_read_only() {
            return Err(format!("`{display_path}` is read-only").into());
        }
        let content = decode_utf8(std::mem::take(&mut before.bytes));
        let content = content.map_err(|reason| target.error(reason))?;
        let edited = edit_text(&content, &input, display_path)?;
        writer
            .check_file_unchanged(&target.file, &before)
            .and_then(|()| {
                writer.replace_file(&target.file, edited.content.as_bytes(), Some(&before))
            })
            .map_err(fs_error)?;
        let line = edited.first_line;
        let message = match edited.count {
            1 => format!("Edited `{display_path}` at line {line}."),
            count => format!("Edited `{display_path}` {count} times, first at line {line}."),
        };
        Ok(ToolOutput::text(message))
    }

    /// Checks whether an interrupted call has replaced `old` by `new` in the file.
    fn verify(&self, input: EditFileInput) -> VerifyOutcome {
        // A call with an invalid path, or without a text to replace, changes nothing.
        let Ok(target) = self.0.checked_file_path(&input.path, PathAccess::Write) else {
            return VerifyOutcome::NotHappened;
        };
        if input.old.is_empty() || input.old == input.new {
            return VerifyOutcome::NotHappened;
        }
        let file = self.0.open_file(&target).ok();
        let Some(content) = file.and_then(|file| read_text(file).ok()) else {
            return VerifyOutcome::Unknown;
        };
        let (old, new) = with_file_line_endings(&content, &input);
        match is_edit_applied(&content, &old, &new) {
            Some(true) => {
                let message =
                    format!("Edited `{}`: the file contains the new text.", target.display);
                VerifyOutcome::Happened(ToolOutput::text(message))
            }
            Some(false) => VerifyOutcome::NotHappened,
            None => VerifyOutcome::Unknown,
        }
    }
}

/// Text of a file after an edit.
struct EditedText {
    content: String,
    /// How often the old text was replaced.
    count: usize,
    /// Number of the line with the first replacement, from 1.
    first_line: usize,
}

/// Replaces the old text in the content of a file. The error says why that is not possible.
fn edit_text(
    content: &str,
    input: &EditFileInput,
    display_path: &str,
) -> Result<EditedText, String> {
    let (old, new) = with_file_line_endings(content, input);
    let count = content.matches(&old).count();
    if count == 0 || count > 1 && input.all != Some(true) {
        return Err(mismatch_message(content, input, (display_path, count)));
    }
    // Computed before the replacement: a short `old` and a long `new` can multiply the size.
    let kept_len = content.len() - count * old.len();
    if count.saturating_mul(new.len()).saturating_add(kept_len) > FILE_BYTES_MAX {
        return Err(format!("`{display_path}` would be longer than {FILE_BYTES_MAX} bytes"));
    }
    let first_line = content[..content.find(&old).unwrap_or_default()].matches('\n').count() + 1;
    Ok(EditedText { content: content.replace(&old, &new), count, first_line })
}

/// Returns the content of a file after an edit. `None` if the edit would fail.
fn predict_edited_content(before: &FileContent, input: &EditFileInput) -> Option<FileContent> {
    match before {
        FileContent::Text(_) if input.old.is_empty() => None,
        FileContent::Text(content) => {
            let edited = edit_text(content, input, &input.path).ok()?;
            Some(FileContent::Text(edited.content))
        }
        FileContent::Unknown => Some(FileContent::Unknown),
        FileContent::Absent => None,
    }
}

/// Returns `old` and `new` with the line endings of the file, if the file's line endings are
/// consistent. Models write LF whatever they have read.
fn with_file_line_endings(content: &str, input: &EditFileInput) -> (String, String) {
    let pairs = content.matches("\r\n").count();
    if pairs == 0 || pairs < content.matches('\n').count() {
        return (input.old.clone(), input.new.clone());
    }
    let to_crlf = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
    (to_crlf(&input.old), to_crlf(&input.new))
}

/// Returns the message for an `old` text that does not occur in the file, or occurs too often.
fn mismatch_message(
    content: &str,
    input: &EditFileInput,
    (display_path, count): (&str, usize),
) -> String {
    if count > 1 {
        return format!(
            "`old` occurs {count} times in `{display_path}`; include more of the \
             surrounding lines, or set `all` to replace every one"
        );
    }
    let is_numbered = |line: &str| {
        let number = line.split_once('\t').map(|(number, _)| number);
        number.is_some_and(|number| number.trim().parse::<usize>().is_ok())
    };
    let normalize_spaces = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let normalized_old = normalize_spaces(&input.old);
    let hint = if input.old.lines().all(is_numbered) {
        "leave out the line numbers of read_file and the tabs after them"
    } else if !input.new.is_empty() && content.contains(&input.new) {
        "the file already contains `new`"
    } else if !normalized_old.is_empty() && normalize_spaces(content).contains(&normalized_old) {
        "`old` occurs with other whitespace or line breaks: read the file and copy them exactly"
    } else {
        "read the file and copy the text exactly"
    };
    format!("`old` was not found in `{display_path}`; {hint}")
}

/// Returns whether the content shows that `new` replaced `old`. `None` means that it is unclear.
/// After an edit, every `old` left in the file overlaps a `new`, for example when three of four
/// blank lines were replaced by two. An `old` that overlaps no `new` proves that the edit was not
/// made.
fn is_edit_applied(content: &str, old: &str, new: &str) -> Option<bool> {
    if !content.contains(old) {
        // If both texts are missing, somebody else removed them.
        return content.contains(new).then_some(true);
    }
    if new.contains(old) && !content.split(new).any(|between| between.contains(old)) {
        return Some(true);
    }
    let overlaps_new = |at: usize| {
        let margin = new.len().saturating_sub(1);
        let start = content.ceil_char_boundary(at.saturating_sub(margin));
        let end = content.floor_char_boundary(at + old.len() + margin);
        content.get(start..end).is_some_and(|nearby| nearby.contains(new))
    };
    let mut matches = content.match_indices(old).take(MATCHES_MAX);
    (new.is_empty() || matches.any(|(at, _)| !overlaps_new(at))).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::is_edit_applied;

    #[test]
    fn applied_edits_are_recognized() {
        let check = |content: &str, (old, new): (&str, &str), expected: Option<bool>| {
            assert_eq!(is_edit_applied(content, old, new), expected, "{content:?} {old:?} {new:?}");
        };
        check("a cat", ("cat", "dog"), Some(false));
        check("a dog", ("cat", "dog"), Some(true));
        check("a cow", ("cat", "dog"), None);
        check("cat and dog", ("cat", "dog"), Some(false));
        // Removed, or not.
        check("a ", ("cat", ""), Some(true));
        check("a cat", ("cat", ""), Some(false));
        // The old text is a part of the new one.
        check("fn a", ("fn a", "/// A\nfn a"), Some(false));
        check("/// A\nfn a", ("fn a", "/// A\nfn a"), Some(true));
        check("/// A\nfn a fn a", ("fn a", "/// A\nfn a"), Some(false));
        // Shortened: the remaining text may have been longer before.
        check("a\n\n\nb", ("\n\n\n", "\n\n"), None);
        check("a\n\nb", ("\n\n\n", "\n\n"), Some(true));
        check("aa", ("aa", "a"), None);
        // At the edges of characters of several bytes.
        check("üüü cat üüü", ("cat", "ü"), Some(false));
        check("ücatü", ("cat", "üü"), Some(false));
    }
}
