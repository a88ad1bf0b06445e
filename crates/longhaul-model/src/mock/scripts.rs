//! Where scripts come from.
//!
//! Never: a path in a name. What a stranger asks for is looked up, not opened.

use std::fmt;
use std::sync::Arc;

use longhaul_core::time::Timestamp;

use crate::scripted::Script;

/// The longest name of a script.
const NAME_BYTES_MAX: usize = 128;

/// A shelf of scripts.
pub trait ScriptSource: Send + Sync + fmt::Debug {
    /// The script of this name, which is plain.
    fn find(&self, name: &str, now: Timestamp) -> Result<Arc<Script>, ScriptLookupError>;

    /// The names of all there are, sorted.
    fn names(&self) -> Vec<String>;
}

/// Why there is no script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptLookupError {
    /// There is none of this name.
    NotFound,
    /// There is one, and it can't be played: this is why.
    Invalid(String),
}

/// Whether a name can be that of a script: letters, digits, `-`, `_` and `.`,
/// and no `.` at its start.
pub fn is_valid_name(name: &str) -> bool {
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter);
    let length = 1..=NAME_BYTES_MAX;
    length.contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}
