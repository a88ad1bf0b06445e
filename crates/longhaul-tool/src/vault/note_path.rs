//! The path of a note: as a call names it, and as it is spelled on disk. Some systems store `é` as
//! one code point and some as two; names that look the same are the same note.
//!
//! Invariant: a name never matches one that looks different. A name that differs only in case is an
//! error.

use serde_json::Value;

use crate::filename_fold::fold_case;
use crate::files::path::NameError;
use crate::safe_dir::{DirHandle, FsError, OpenFile, SafeDir};
use crate::vault::name::{normalize_nfc, note_file_name, parse_note_folder};

/// The path of a note in normal form.
#[derive(Debug)]
pub(crate) struct NotePath {
    pub(crate) folder: Vec<String>,
    pub(crate) file: String,
    /// The path as `folder/title`, for messages.
    pub(crate) display: String,
}

impl NotePath {
    pub(crate) fn parse(folder: &str, title: &str) -> Result<Self, NameError> {
        Ok(Self {
            folder: parse_note_folder(folder)?,
            file: note_file_name(title)?,
            display: joined(folder, title),
        })
    }

    /// Opens the note.
    pub(crate) fn open(&self, dir: &SafeDir) -> Result<OpenFile, FsError> {
        let folder = dir.open_dir(&folder_as_stored(dir, &self.folder)?)?;
        folder.open_file(&name_as_stored(&folder, &self.file)?)
    }

    /// Returns the message for a note that can't be accessed. It shows titles instead of file
    /// names.
    pub(crate) fn fs_error(&self, error: FsError) -> String {
        let error = if let FsError::WrongCase(file) = error {
            FsError::WrongCase(file.strip_suffix(".md").unwrap_or(&file).into())
        } else {
            error
        };
        format!("`{}`: {error}", self.display)
    }
}

/// Returns `folder/title` in normal form.
pub(crate) fn joined(folder: &str, title: &str) -> String {
    let separator = if folder.is_empty() { "" } else { "/" };
    normalize_nfc(&format!("{folder}{separator}{title}"))
}

/// Returns the text that approval rules match: `folder/title` if the input names a note, or else
/// the whole input.
pub(crate) fn rule_match_texts(input: &Value) -> Vec<String> {
    vec![match (input["folder"].as_str(), input["title"].as_str()) {
        (Some(folder), Some(title)) => joined(folder, title),
        (_, _) => longhaul_core::raw::canonical_json(input),
    }]
}

/// Returns the components of a folder's path as they are spelled on disk. Components that don't
/// exist stay as given.
pub(crate) fn folder_as_stored(dir: &SafeDir, parts: &[String]) -> Result<Vec<String>, FsError> {
    let mut stored_parts = parts.to_vec();
    let mut folder = dir.open_root();
    for part in &mut stored_parts {
        let parent = match folder {
            Err(FsError::NotFound) => break,
            opened => opened?,
        };
        *part = name_as_stored(&parent, part)?;
        folder = parent.open_listed_folder(part);
    }
    match folder {
        Ok(_) | Err(FsError::NotFound) => Ok(stored_parts),
        Err(error) => Err(error),
    }
}

/// Returns a name as it is spelled on disk in this folder. A name that doesn't exist stays as
/// given.
pub(crate) fn name_as_stored(folder: &DirHandle, name: &str) -> Result<String, FsError> {
    let names = folder.entry_names()?;
    if names.iter().any(|found| found == name) {
        return Ok(name.to_owned());
    }
    if let Some(found) = names.iter().find(|found| normalize_nfc(found) == name) {
        return Ok(found.clone());
    }
    let folded = fold_case(name);
    let mut normalized = names.iter().map(|found| normalize_nfc(found));
    match normalized.find(|found| fold_case(found) == folded) {
        Some(found) => Err(FsError::WrongCase(found)),
        None => Ok(name.to_owned()),
    }
}
