//! Checks whether a program that an agent file names can be executed, without running it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::agents::diagnostics::Diagnostics;
use crate::spanned::Position;

/// Checks that a program exists and can be executed. If not, a program whose path is relative to
/// the project is reported as missing. Any other program is only mentioned in a note, since it may
/// exist on the machine that runs the agent.
pub(crate) fn check_program_executable(
    diagnostics: &mut Diagnostics<'_>,
    position: Position,
    program: &str,
) {
    let program_path = Path::new(program);
    if !program.contains('/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !is_program_in_path(&path, program_path) {
            diagnostics.add_note(format!(
                "at {position}: `{program}` was not found in PATH on this machine; \
                 write a program of the project with its path, such as `./{program}`"
            ));
        }
        return;
    }
    let Some(problem) = not_executable_reason(&diagnostics.ctx.root.join(program_path)) else {
        return;
    };
    match program_path.is_absolute() {
        true => {
            diagnostics.add_note(format!("at {position}: `{program}` {problem} on this machine"))
        }
        false => diagnostics.report_missing_reference(
            position,
            format!("`{program}` {problem}, relative to the project root"),
        ),
    }
}

/// Returns why the file at `path` can't be executed, as the rest of a sentence that starts with the
/// file, such as "does not exist". `None` means that it can be executed.
fn not_executable_reason(path: &Path) -> Option<&'static str> {
    match fs::metadata(path) {
        Err(_) => Some("does not exist"),
        Ok(metadata) if !metadata.is_file() => Some("is not a regular file"),
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            Some("is not executable (run chmod +x)")
        }
        Ok(_) => None,
    }
}

fn is_program_in_path(path_var: &OsString, program: &Path) -> bool {
    std::env::split_paths(path_var)
        .any(|folder| not_executable_reason(&folder.join(program)).is_none())
}
