//! Helpers for the vault tools: the texts that approval rules match, and error messages.

use serde_json::Value;

use crate::safe_dir::FsError;
use crate::vault::name::normalize_nfc;

/// Returns `folder/title`, the text that approval rules match.
pub(crate) fn note_rule_match_text(folder: &str, title: &str) -> String {
    if folder.is_empty() { title.into() } else { format!("{folder}/{title}") }
}

/// Returns the text that approval rules match: `folder/title` if the input names a note, or else
/// the whole input.
pub(crate) fn note_input_rule_match_texts(input: &Value) -> Vec<String> {
    match (input["folder"].as_str(), input["title"].as_str()) {
        (Some(folder), Some(title)) => vec![normalize_nfc(&note_rule_match_text(folder, title))],
        (_, _) => vec![longhaul_core::raw::canonical_json(input)],
    }
}

/// Removes `.md` from the file name in an error about its upper and lower case, so that the error
/// shows the title of the note.
pub(crate) fn strip_md_suffix_in_wrong_case_error(error: FsError) -> FsError {
    let FsError::WrongCase(file) = error else {
        return error;
    };
    FsError::WrongCase(file.strip_suffix(".md").unwrap_or(&file).into())
}
