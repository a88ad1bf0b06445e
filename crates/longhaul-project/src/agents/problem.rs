//! Problems of agent files, each with its position in the file.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::spanned::escape_to_one_line;

/// A problem that prevents an agent from being used, or its runs from continuing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentFileProblem {
    pub path: PathBuf,
    /// Line of the problem, starting at 1.
    pub line: usize,
    /// Column of the problem, starting at 1.
    pub column: usize,
    /// Description of the problem, with a hint how to fix it.
    pub message: String,
    /// Kind of the problem: invalid, unsupported or missing.
    pub kind: ProblemKind,
}

/// Kinds of problems in agent files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The file is invalid.
    Invalid,
    /// The file is valid, but uses a feature that this build does not support yet.
    Unsupported,
    /// The file is valid, but refers to something that does not exist. The agent can be used; its
    /// runs wait until the thing exists.
    Missing,
}

impl AgentFileProblem {
    /// Creates a problem of the whole file, which makes the file invalid.
    pub(crate) fn of_file(path: &Path, message: String) -> Self {
        Self { path: path.to_owned(), line: 1, column: 1, message, kind: ProblemKind::Invalid }
    }
}

impl fmt::Display for AgentFileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // File names are untrusted text.
        let path = escape_to_one_line(&self.path.display().to_string());
        write!(f, "{path}:{}:{}: {}", self.line, self.column, self.message)
    }
}
