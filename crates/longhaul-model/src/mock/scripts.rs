//! Source of the scripts (prepared replies) of the mock provider.
//!
//! Invariant: a script name from a request is never used as a path.

use std::fmt;
use std::sync::Arc;

use longhaul_core::time::Timestamp;

use crate::scripted::Script;

/// Maximum length of a script name in bytes.
const NAME_BYTES_MAX: usize = 128;

/// A source that the mock provider loads its scripts (prepared replies) from.
pub trait ScriptSource: Send + Sync + fmt::Debug {
    /// Returns the script with this name. The caller has checked that the name is valid.
    fn find_script(&self, name: &str, now: Timestamp) -> Result<Arc<Script>, ScriptLookupError>;

    /// Returns the names of all scripts, sorted.
    fn script_names(&self) -> Vec<String>;
}

/// Why a script could not be returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptLookupError {
    /// There is no script with this name.
    NotFound,
    /// The script is invalid, for the given reason.
    Invalid(String),
}

/// Whether a name may be the name of a script: ASCII letters, digits, `-`, `_` and `.`, not
/// starting with `.`.
pub fn is_valid_script_name(name: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let length = 1..=NAME_BYTES_MAX;
    length.contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_name_byte)
}
