//! Under which names a note and its folders stand on the disk. Some systems write
//! `é` as one letter and some as two: what looks the same is the same note.
//!
//! Never: takes a name for one that looks different. What differs in case is
//! trouble, as it is in every directory.

use crate::place::{Folder, Place, Trouble};
use crate::spelling::fold;
use crate::vault::name::composed;

/// The folders of these parts as they are spelled there; what is missing keeps the
/// name that was asked for.
pub(crate) fn parts(place: &Place, wanted: &[String]) -> Result<Vec<String>, Trouble> {
    let mut found = Vec::new();
    let mut folder = match place.open() {
        Ok(folder) => folder,
        Err(Trouble::Missing) => return Ok(wanted.to_vec()),
        Err(trouble) => return Err(trouble),
    };
    for part in wanted {
        let name = name(&folder, part)?;
        folder = match folder.enter(&name) {
            Ok(below) => below,
            Err(Trouble::Missing) => {
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
pub(crate) fn name(folder: &Folder, wanted: &str) -> Result<String, Trouble> {
    let names = folder.all_names()?;
    if names.iter().any(|found| found == wanted) {
        return Ok(wanted.to_owned());
    }
    if let Some(found) = names.iter().find(|found| composed(found) == wanted) {
        return Ok(found.clone());
    }
    let folded = fold(wanted);
    let mut like = names.iter().map(|found| composed(found));
    match like.find(|found| fold(found) == folded) {
        Some(found) => Err(Trouble::Spelled(found)),
        None => Ok(wanted.to_owned()),
    }
}
