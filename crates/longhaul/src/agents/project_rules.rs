//! `AGENTS.md` at the top of a project: rules for every agent that works there.
//!
//! Never: an agent. And never cut short: rules of which half is missing are others.

use std::path::Path;

use crate::agents::load_context::LoadContext;
use crate::agents::problem::{Problem, ProblemKind};
use crate::project_file::{self, ProjectFileError};

/// The file's name.
pub(crate) const RULES_FILE: &str = "AGENTS.md";

/// The longest rules, in bytes.
const BYTES_MAX: usize = 256 << 10;

/// The rules of this project; none is an empty text.
pub(crate) fn load(shelf: &LoadContext<'_>) -> Result<String, Problem> {
    let problem = |message: String| Problem {
        path: shelf.display_root.join(RULES_FILE),
        line: 1,
        column: 1,
        message: format!("{message}; it holds the rules of every agent here, so none is used"),
        kind: ProblemKind::Invalid,
    };
    let bytes = match project_file::read(shelf.root, Path::new(RULES_FILE), BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(ProjectFileError::Missing) => return Ok(String::new()),
        Err(unread) => return Err(problem(unread.to_string())),
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| problem("is not UTF-8: save the file as UTF-8".to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(text.replace("\r\n", "\n").trim().to_owned())
}
