//! Position of a problem in a text that a person wrote.

use std::fmt;

/// A position in a text. Line and column start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line number, starting at 1.
    pub line: usize,
    /// Column in characters, starting at 1.
    pub column: usize,
}

impl Position {
    /// Position of the start of a text.
    pub const START: Self = Self { line: 1, column: 1 };

    /// Returns the line and column of the byte at this offset.
    pub fn from_offset(text: &str, byte_offset: usize) -> Self {
        let before = text.get(..byte_offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Self { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
