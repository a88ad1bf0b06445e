//! References to recorded outputs in the input of a tool call, such as
//! `{"$output": "t3.1", "path": "/body"}`.
//!
//! A reference stands for a value that the model does not repeat. The journal stores the reference
//! and the hash of the value, not a second copy of the value.

use serde::{Deserialize, Serialize};

use crate::id::CallId;
use crate::raw::Hash;

/// Member of a JSON object that makes the object a reference.
pub const OUTPUT_MEMBER: &str = "$output";

/// Maximum length in bytes of the beginning of the value that is shown to people.
pub const PREVIEW_BYTES_MAX: usize = 400;

/// A reference in the input of a tool call to the output of an earlier call, with the value that it
/// stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputReference {
    /// JSON pointer to the reference within the input.
    pub at: String,
    /// Call whose output is passed on.
    pub call: CallId,
    /// JSON pointer to the value within the output. `None` means the whole text of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Length of the value in bytes.
    pub bytes: u64,
    /// Hash of the value: of the text, or of the JSON of any other value.
    pub hash: Hash,
    /// Beginning of the value.
    pub preview: String,
}

impl OutputReference {
    /// Describes the reference for people: what is passed on, its length, and how it begins.
    pub fn description(&self) -> String {
        let Self { at, call, path, bytes, preview, .. } = self;
        let path = path.as_ref().map_or_else(String::new, |path| format!(" at {path}"));
        let cut = if (preview.len() as u64) < *bytes { "…" } else { "" };
        format!("{at} is the output of {call}{path}, {bytes} bytes: {preview}{cut}")
    }
}
