//! Detects loops: a run that makes the same calls with the same results again and again. Only a
//! count and a hash are stored, so the cost does not grow with the run.

use longhaul_core::raw::Hash;
use serde::{Deserialize, Serialize};

use crate::policy::control_tool_names::{ASK_HUMAN, REPORT_BLOCKED, WAIT};
use crate::state::call::{ToolCallState, TrackedToolCall};

/// Detects a run that repeats its calls: counts how often in a row the latest calls were made with
/// the same results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuard {
    /// Number of identical repetitions at which the run fails. `None` means that loops are not
    /// detected.
    limit: Option<u32>,
    last_fingerprint: Option<Hash>,
    count: u32,
    /// Whether the model was warned about the current loop.
    warned: bool,
}

impl LoopGuard {
    pub(crate) fn new(repetition_limit: Option<u32>) -> Self {
        Self { limit: repetition_limit, ..Self::default() }
    }

    /// Counts the calls of a reply, which must all be done, and compares them with the previous
    /// calls.
    pub(crate) fn record_finished_calls(self, calls: &[TrackedToolCall]) -> Self {
        if self.limit.is_none() {
            return self;
        }
        match calls_fingerprint(calls) {
            Some(fingerprint) if self.last_fingerprint == Some(fingerprint) => {
                Self { count: self.count.saturating_add(1), ..self }
            }
            fingerprint => Self {
                last_fingerprint: fingerprint,
                count: u32::from(fingerprint.is_some()),
                ..Self::new(self.limit)
            },
        }
    }

    /// Resets the count of repetitions, because a person sent a message.
    pub(crate) fn reset_count(self) -> Self {
        Self::new(self.limit)
    }

    /// Records that the model was warned about the loop.
    pub(crate) const fn mark_warned(self) -> Self {
        Self { warned: true, ..self }
    }

    /// Returns how often in a row the same calls were made with the same results.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether the model should be warned that it repeats the same calls.
    pub(crate) fn should_warn(&self) -> bool {
        let half = |limit: u32| limit.div_ceil(2).max(2);
        !self.warned && self.limit.is_some_and(|limit| self.count >= half(limit))
    }

    /// Returns whether the loop continued after the warning and has reached the limit.
    pub(crate) fn is_limit_reached(&self) -> bool {
        self.warned && self.limit.is_some_and(|limit| self.count >= limit.max(2))
    }
}

/// Returns the fingerprint of a reply's calls and their results, in order. `None` means that one of
/// the calls has no fingerprint.
fn calls_fingerprint(calls: &[TrackedToolCall]) -> Option<Hash> {
    let fingerprints: Vec<Hash> = calls.iter().map(call_fingerprint).collect::<Option<_>>()?;
    match fingerprints.as_slice() {
        [] => None,
        [fingerprint] => Some(*fingerprint),
        several => {
            let fingerprints: String = several.iter().map(Hash::to_string).collect();
            Some(Hash::digest(fingerprints.as_bytes()))
        }
    }
}

/// Returns the fingerprint of a call with its result. `None` means that the call waits for people
/// or time, which is not a loop however often it is repeated.
pub(crate) fn call_fingerprint(call: &TrackedToolCall) -> Option<Hash> {
    let tool = call.classification.tool.as_str();
    if [WAIT, ASK_HUMAN, REPORT_BLOCKED].contains(&tool) {
        return None;
    }
    let ToolCallState::Done { output, is_error } = &call.state else {
        return None;
    };
    // The visible part of a truncated output contains the call id, so the full output is hashed.
    let content = match &output.full {
        Some(full_output) => full_output.hash.to_string(),
        None => serde_json::to_string(&output.content).unwrap_or_default(),
    };
    let input = call.arguments().as_str();
    Some(Hash::digest(format!("{tool}\0{input}\0{is_error}\0{content}").as_bytes()))
}
