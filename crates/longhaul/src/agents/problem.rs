//! What is wrong with an agent's file, and where.
//!
//! Never: a problem without a place.

use std::fmt;
use std::path::PathBuf;

use crate::spanned::escape_line;

/// One thing that keeps an agent from being used, or its runs from going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What, why, and what would be right.
    pub message: String,
    /// Whose fault it is.
    pub kind: ProblemKind,
}

/// Whose fault a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file's.
    Invalid,
    /// Ours: the file is right, and this build can't do it yet.
    Unsupported,
    /// The project's: the file is right, and what it names is not there. The agent
    /// can be used; its runs wait until it is.
    Missing,
}

impl ProblemKind {
    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Missing => "missing",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A file's name is a stranger's too.
        let path = escape_line(&self.path.display().to_string());
        write!(f, "{path}:{}:{}: {}", self.line, self.column, self.message)
    }
}
