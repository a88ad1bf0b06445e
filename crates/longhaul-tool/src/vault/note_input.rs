//! What the three tools of the vault share: how they name a folder and a note,
//! and what they say of trouble with one.
//!
//! Never: touches the disk itself.

use serde_json::Value;

use crate::safe_dir::FsError;
use crate::vault::name::nfc;

/// `folder/title`, by which rules know a note.
pub(crate) fn subject(folder: &str, title: &str) -> String {
    if folder.is_empty() { title.into() } else { format!("{folder}/{title}") }
}

/// The subject of an input that names a note; of any other the whole input.
pub(crate) fn note_subjects(input: &Value) -> Vec<String> {
    match (input["folder"].as_str(), input["title"].as_str()) {
        (Some(folder), Some(title)) => vec![nfc(&subject(folder, title))],
        (_, _) => vec![longhaul_core::raw::canonical_json(input)],
    }
}

/// The trouble with a note, which goes by its title and not by its file.
pub(crate) fn with_title(trouble: FsError) -> FsError {
    let FsError::WrongSpelling(file) = trouble else {
        return trouble;
    };
    FsError::WrongSpelling(file.strip_suffix(".md").unwrap_or(&file).into())
}
