//! What is wrong with a script and where, in words for its author.
//!
//! Never: prints. Whoever read the script decides who hears of it.

use std::fmt;

/// A script that can't be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}{position}: {message}", position = PositionSuffix(*.position))]
pub struct ScriptError {
    /// The file, or whatever else the text came from.
    pub origin: String,
    /// Where in the text; none when it is about the whole.
    pub position: Option<Position>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// The column in characters, from 1.
    pub column: u64,
}

struct PositionSuffix(Option<Position>);

impl fmt::Display for PositionSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(position) => write!(f, ":{}:{}", position.line, position.column),
        }
    }
}
