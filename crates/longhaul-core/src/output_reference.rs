//! References to recorded outputs in the input of a tool call, such as
//! `{"$output": "t3.1", "path": "/body"}`.
//!
//! The runtime replaces a reference by the value, so that the model does not have to repeat it. The
//! journal stores the reference and the hash of the value, not a second copy of the value.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::id::{CallId, RunId};
use crate::raw::Hash;

/// Name of the JSON member that makes an object a reference to an output.
pub const OUTPUT_MEMBER: &str = "$output";

/// Maximum length in bytes of a reference's preview: the beginning of the referenced value, which
/// people see. Approval rules match at most this part of the value.
pub const PREVIEW_BYTES_MAX: usize = 4 * 1024;

/// A reference in the input of a tool call to the output of an earlier call, with a description of
/// the referenced value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputReference {
    /// JSON pointer to the reference within the input.
    pub at: String,
    /// Earlier tool call whose output the reference passes on.
    pub call: CallId,
    /// JSON pointer to the value within the output. `None` means the whole text of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Length of the referenced value in bytes.
    pub bytes: u64,
    /// Hash of the referenced value: of its text, or of its JSON if it is not a text.
    pub hash: Hash,
    /// Beginning of the referenced value, at most `PREVIEW_BYTES_MAX` bytes.
    pub preview: String,
}

impl OutputReference {
    /// Describes the reference in the input of a call of `run` for people: what is passed on, its
    /// length, and how much of it `preview` contains.
    pub fn description(&self, run: RunId) -> String {
        let Self { at: input_path, call, path: output_path, bytes, preview, .. } = self;
        let output_path =
            output_path.as_ref().map_or_else(String::new, |path| format!(" at {path}"));
        let preview_bytes = preview.len();
        let truncation_note = match (preview_bytes as u64) < *bytes {
            true => format!(
                "; only its first {preview_bytes} bytes are shown, and `longhaul show {run} \
                 --transcript` prints what the model has read of the output"
            ),
            false => String::new(),
        };
        format!(
            "the input at {input_path} is the output of the call {call}{output_path}, {bytes} bytes{truncation_note}"
        )
    }

    /// Returns whether the input still contains the reference, after a person has changed the input.
    pub fn is_still_in_input(&self, input: &Value) -> bool {
        input.pointer(&self.at).is_some_and(|value| value.get(OUTPUT_MEMBER).is_some())
    }

    /// Returns whether both references are at the same place of an input and refer to the same
    /// value.
    pub fn has_same_place_and_value(&self, other: &Self) -> bool {
        self.at == other.at
            && self.call == other.call
            && self.path == other.path
            && self.hash == other.hash
    }
}
