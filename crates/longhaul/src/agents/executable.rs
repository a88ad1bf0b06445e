//! Looks whether a program that an agent's file names can be run.
//!
//! Never: runs it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::agents::diagnostics::Diagnostics;
use crate::spanned::Position;

/// Notes what is wrong with a program: one of the project is missing, another may
/// be there on the machine that needs it.
pub(crate) fn check(sheet: &mut Diagnostics, place: Position, program: &str, root: &Path) {
    let at = Path::new(program);
    if !program.contains('/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !is_in_path(&path, at) {
            sheet.note(format!(
                "at {place}: there is no program `{program}` where PATH leads on this machine; \
                 one of the project is named by its path, such as `./{program}`"
            ));
        }
        return;
    }
    let Some(wrong) = unusable_reason(&root.join(at)) else {
        return;
    };
    match at.is_absolute() {
        true => sheet.note(format!("at {place}: `{program}` {wrong} on this machine")),
        false => sheet.missing(place, format!("`{program}` {wrong}, seen from the project's top")),
    }
}

/// Why this can't be run.
fn unusable_reason(at: &Path) -> Option<&'static str> {
    match fs::metadata(at) {
        Err(_) => Some("is not there"),
        Ok(found) if !found.is_file() => Some("is no file"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Some("may not be run (chmod +x makes it so)")
        }
        Ok(_) => None,
    }
}

fn is_in_path(path: &OsString, program: &Path) -> bool {
    std::env::split_paths(path).any(|folder| unusable_reason(&folder.join(program)).is_none())
}
