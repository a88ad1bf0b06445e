//! The digest of what a person is shown: an answer names it, so that nobody
//! approves another thing than they saw.
//!
//! Never: over pretty-printed text. Keys are sorted and nothing is spaced.

use longhaul_core::id::{CallId, GateId};
use longhaul_core::raw::{Hash, RawJson, canonical_json};
use serde_json::{Value, json};

use crate::state::Run;

/// What is frozen at a gate.
pub(crate) struct FrozenContent<'a> {
    pub(crate) gate: GateId,
    pub(crate) call: Option<CallId>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) input: &'a RawJson,
    pub(crate) injected_subjects: &'a [String],
}

/// The digest of a frozen call or result, with everything that bears on it.
pub(crate) fn digest(run: &Run, frozen: &FrozenContent<'_>) -> Hash {
    let context: serde_json::Map<_, _> =
        run.task.context.iter().map(|(name, value)| (name.clone(), exact_value(value))).collect();
    let mut value = json!({
        "v": 1,
        "gate": frozen.gate,
        "run": run.id,
        "call": frozen.call,
        "tool": frozen.tool,
        "input": exact_value(frozen.input),
        "context": context,
        "agent": run.task.definition,
    });
    if !frozen.injected_subjects.is_empty() {
        value["injected_subjects"] = json!(frozen.injected_subjects);
    }
    Hash::digest(canonical_json(&value).as_bytes())
}

/// The value of a text. One that is too deep to be read stands for itself, so
/// that no two of them have the same digest.
fn exact_value(raw: &RawJson) -> Value {
    let read = serde_json::from_str(raw.as_str());
    read.unwrap_or_else(|_| Value::String(raw.as_str().to_owned()))
}

/// The digest after a person changed what was frozen.
pub(crate) fn edited_digest(original: Hash, edited: &RawJson) -> Hash {
    let value = json!({ "v": 1, "original": original, "edited": exact_value(edited) });
    Hash::digest(canonical_json(&value).as_bytes())
}
