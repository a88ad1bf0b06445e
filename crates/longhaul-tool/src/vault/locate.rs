//! Finds the names of notes and folders on disk. Some systems store `é` as one code point and some
//! as two; names that look the same are the same note.
//!
//! Invariant: a name never matches one that looks different. A name that differs only in case is an
//! error.

use crate::filename_fold::fold_file_name_case;
use crate::safe_dir::{DirHandle, FsError, SafeDir};
use crate::vault::name::normalize_nfc;

/// Returns these path components as they are spelled on disk. Components that don't exist stay as
/// given.
pub(crate) fn path_parts_as_stored_on_disk(
    dir: &SafeDir,
    parts: &[String],
) -> Result<Vec<String>, FsError> {
    let mut stored_parts = Vec::new();
    let mut folder = match dir.open_root() {
        Ok(folder) => folder,
        Err(FsError::NotFound) => return Ok(parts.to_vec()),
        Err(error) => return Err(error),
    };
    for part in parts {
        let name = entry_name_as_stored_on_disk(&folder, part)?;
        folder = match folder.open_child_folder_without_name_check(&name) {
            Ok(child) => child,
            Err(FsError::NotFound) => {
                stored_parts.extend(parts.iter().skip(stored_parts.len()).cloned());
                return Ok(stored_parts);
            }
            Err(error) => return Err(error),
        };
        stored_parts.push(name);
    }
    Ok(stored_parts)
}

/// Returns a name as it is spelled on disk in this folder. A name that doesn't exist stays as
/// given.
pub(crate) fn entry_name_as_stored_on_disk(
    folder: &DirHandle,
    name: &str,
) -> Result<String, FsError> {
    let names = folder.all_entry_names()?;
    if names.iter().any(|found| found == name) {
        return Ok(name.to_owned());
    }
    if let Some(found) = names.iter().find(|found| normalize_nfc(found) == name) {
        return Ok(found.clone());
    }
    let folded = fold_file_name_case(name);
    let mut normalized = names.iter().map(|found| normalize_nfc(found));
    match normalized.find(|found| fold_file_name_case(found) == folded) {
        Some(found) => Err(FsError::WrongCase(found)),
        None => Ok(name.to_owned()),
    }
}
