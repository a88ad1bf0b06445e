//! Whether a run turns in circles: the same calls, the same results, again and again.
//!
//! Never: keeps the calls. A count and a hash cost the same at every length of a run.

use longhaul_core::raw::Hash;
use serde::{Deserialize, Serialize};

use crate::policy::control_tool_names::{ASK_HUMAN, REPORT_BLOCKED, WAIT};
use crate::state::call::{Call, CallState};

/// How often in a row the calls of the newest reply were made with the same results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuard {
    /// So often ends the run; none: nobody counts.
    limit: Option<u32>,
    last_fingerprint: Option<Hash>,
    count: u32,
    /// The model was told.
    warned: bool,
}

impl LoopGuard {
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// After these calls, which all have their results.
    pub(crate) fn record(self, calls: &[Call]) -> Self {
        if self.limit.is_none() {
            return self;
        }
        match calls_fingerprint(calls) {
            Some(print) if self.last_fingerprint == Some(print) => {
                Self { count: self.count.saturating_add(1), ..self }
            }
            print => Self {
                last_fingerprint: print,
                count: u32::from(print.is_some()),
                ..Self::new(self.limit)
            },
        }
    }

    /// Somebody else has spoken: what comes now is something new.
    pub(crate) fn reset(self) -> Self {
        Self::new(self.limit)
    }

    /// The model was told.
    pub(crate) const fn mark_warned(self) -> Self {
        Self { warned: true, ..self }
    }

    /// How often in a row.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether the model should be told.
    pub(crate) fn should_warn(&self) -> bool {
        let half = |limit: u32| limit.div_ceil(2).max(2);
        !self.warned && self.limit.is_some_and(|limit| self.count >= half(limit))
    }

    /// Whether it was told and goes on all the same.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.warned && self.limit.is_some_and(|limit| self.count >= limit.max(2))
    }
}

/// What two replies have in common that made the same calls in the same order and
/// were given the same results; none: one of them waits.
fn calls_fingerprint(calls: &[Call]) -> Option<Hash> {
    let prints: Vec<Hash> = calls.iter().map(call_fingerprint).collect::<Option<_>>()?;
    match prints.as_slice() {
        [] => None,
        [one] => Some(*one),
        many => {
            let prints: String = many.iter().map(Hash::to_string).collect();
            Some(Hash::digest(prints.as_bytes()))
        }
    }
}

/// What two calls have in common that are the same in every way; none: it waits
/// for people or time, and to do that again and again is no circle.
fn call_fingerprint(call: &Call) -> Option<Hash> {
    let tool = call.classification.tool.as_str();
    if [WAIT, ASK_HUMAN, REPORT_BLOCKED].contains(&tool) {
        return None;
    }
    let CallState::Done { output, is_error } = &call.state else {
        return None;
    };
    // What is shown of a long output names the call itself.
    let shown = match &output.full {
        Some(whole) => whole.hash.to_string(),
        None => serde_json::to_string(&output.content).unwrap_or_default(),
    };
    let input = call.arguments().as_str();
    Some(Hash::digest(format!("{tool}\0{input}\0{is_error}\0{shown}").as_bytes()))
}
