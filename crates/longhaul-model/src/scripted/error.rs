//! Errors in the scripts of scripted models, reported to the authors of the scripts.

use std::fmt;

/// Error in a script: its origin, its position and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}{position}: {message}", position = ScriptPositionSuffix(*.position))]
pub struct ScriptError {
    /// File name or other origin of the script.
    pub origin: String,
    /// Position of the error in the script. `None` means that the error is about the whole script.
    pub position: Option<ScriptPosition>,
    /// Description of what is wrong with the script and how to fix it.
    pub message: String,
}

/// A position in the text of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptPosition {
    /// Line number, from 1.
    pub line: u64,
    /// Column number in characters, from 1.
    pub column: u64,
}

struct ScriptPositionSuffix(Option<ScriptPosition>);

impl fmt::Display for ScriptPositionSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(position) => write!(f, ":{}:{}", position.line, position.column),
        }
    }
}
