//! Digests of the content that a gate shows. An answer includes the digest, so that nobody approves
//! other content than they saw.
//!
//! Digests are computed over canonical JSON: sorted keys, no whitespace.

use longhaul_core::policy::gate::GateSpec;
use longhaul_core::raw::{Hash, RawJson, canonical_json};
use serde_json::{Value, json};

use crate::state::Run;

/// Returns the digest of the content that a gate shows and that must not change while it is open,
/// including the agent and the context values of the run's task.
pub(crate) fn gate_content_digest(run: &Run, gate: &GateSpec) -> Hash {
    let context = run.task.context.iter();
    let context: serde_json::Map<_, _> =
        context.map(|(name, value)| (name.clone(), parse_or_wrap_json(value))).collect();
    let mut value = json!({
        "v": 1,
        "gate": gate.id,
        "run": run.id,
        "call": gate.call,
        "tool": gate.tool,
        "input": gate.input.as_ref().map(parse_or_wrap_json),
        "context": context,
        "agent": run.task.definition,
    });
    if !gate.injected_rule_match_texts.is_empty() {
        value["injected_rule_match_texts"] = json!(gate.injected_rule_match_texts);
    }
    if !gate.outputs.is_empty() {
        value["outputs"] = json!(gate.outputs);
    }
    if let Some(facts) = &gate.facts {
        value["facts"] = json!(facts);
    }
    Hash::digest(canonical_json(&value).as_bytes())
}

/// Parses a JSON text. A text that is nested too deeply to parse is returned as a JSON string, so
/// that two different texts of this kind have different digests.
fn parse_or_wrap_json(raw: &RawJson) -> Value {
    let parsed = serde_json::from_str(raw.as_str());
    parsed.unwrap_or_else(|_| Value::String(raw.as_str().to_owned()))
}

/// Returns the digest of a gate's content after a person edited it. It depends on the digest before
/// the edit.
pub(crate) fn edited_content_digest(original: Hash, edited: &RawJson) -> Hash {
    let value = json!({ "v": 1, "original": original, "edited": parse_or_wrap_json(edited) });
    Hash::digest(canonical_json(&value).as_bytes())
}
