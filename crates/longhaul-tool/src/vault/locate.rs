//! Under which names a note and its folders stand on the disk. Some systems write
//! `é` as one letter and some as two: what looks the same is the same note.
//!
//! Never: takes a name for one that looks different. What differs in case is
//! trouble, as it is in every directory.

use crate::filename_fold::fold_case;
use crate::safe_dir::{DirHandle, FsError, SafeDir};
use crate::vault::name::nfc;

/// The folders of these parts as they are spelled there; what is missing keeps the
/// name that was asked for.
pub(crate) fn existing_parts(place: &SafeDir, wanted: &[String]) -> Result<Vec<String>, FsError> {
    let mut found = Vec::new();
    let mut folder = match place.open_root() {
        Ok(folder) => folder,
        Err(FsError::NotFound) => return Ok(wanted.to_vec()),
        Err(trouble) => return Err(trouble),
    };
    for part in wanted {
        let name = existing_name(&folder, part)?;
        folder = match folder.enter_known(&name) {
            Ok(below) => below,
            Err(FsError::NotFound) => {
                found.extend(wanted.iter().skip(found.len()).cloned());
                return Ok(found);
            }
            Err(trouble) => return Err(trouble),
        };
        found.push(name);
    }
    Ok(found)
}

/// The same for one name in a folder.
pub(crate) fn existing_name(folder: &DirHandle, wanted: &str) -> Result<String, FsError> {
    let names = folder.all_names()?;
    if names.iter().any(|found| found == wanted) {
        return Ok(wanted.to_owned());
    }
    if let Some(found) = names.iter().find(|found| nfc(found) == wanted) {
        return Ok(found.clone());
    }
    let folded = fold_case(wanted);
    let mut like = names.iter().map(|found| nfc(found));
    match like.find(|found| fold_case(found) == folded) {
        Some(found) => Err(FsError::WrongSpelling(found)),
        None => Ok(wanted.to_owned()),
    }
}
