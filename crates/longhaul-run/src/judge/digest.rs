//! The digest of what a person is shown: an answer names it, so that nobody
//! approves another thing than they saw.
//!
//! Never: over pretty-printed text. Keys are sorted and nothing is spaced.

use longhaul_core::id::{CallId, GateId};
use longhaul_core::raw::{Hash, RawJson, canonical};
use serde_json::json;

use crate::state::Run;

/// What is frozen at a gate.
pub(crate) struct Frozen<'a> {
    pub(crate) gate: GateId,
    pub(crate) call: Option<CallId>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) input: &'a RawJson,
}

/// The digest of a frozen call or result, with everything that bears on it.
pub(crate) fn digest(run: &Run, frozen: &Frozen<'_>) -> Hash {
    let context: serde_json::Map<_, _> = run
        .task
        .context
        .iter()
        .map(|(name, value)| (name.clone(), value.value()))
        .collect();
    let value = json!({
        "v": 1,
        "gate": frozen.gate,
        "run": run.id,
        "call": frozen.call,
        "tool": frozen.tool,
        "input": frozen.input.value(),
        "context": context,
        "agent": run.task.definition,
    });
    Hash::of(canonical(&value).as_bytes())
}

/// The digest after a person changed what was frozen.
pub(crate) fn edited_digest(original: Hash, edited: &RawJson) -> Hash {
    let value = json!({ "v": 1, "original": original, "edited": edited.value() });
    Hash::of(canonical(&value).as_bytes())
}
