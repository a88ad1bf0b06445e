//! Detects a run without progress: calls that only repeat recent calls with the same results,
//! replies with the same text, and compactions in quick succession. Only counts and hashes are
//! stored, so the cost does not grow with the run.

use std::collections::VecDeque;

use longhaul_core::event::run::RunPrepared;
use longhaul_core::raw::Hash;
use serde::{Deserialize, Serialize};

use crate::state::call::TrackedToolCall;
use crate::state::loop_guard::call_fingerprint;

/// Number of recent calls with which a call and its result are compared.
const RECENT_CALLS_MAX: usize = 32;

/// Minimum length of a repeated text in bytes. Agents repeat short texts, such as "Next file.",
/// while they make progress.
const REPEATED_TEXT_BYTES_MIN: usize = 100;

/// Detects a run that makes no progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoProgressGuard {
    /// Number of turns in a row that only repeated recent calls with the same results.
    pub(crate) known_calls: RepetitionCount,
    /// Number of replies in a row with the same text as the reply before.
    pub(crate) same_text: RepetitionCount,
    /// Number of compactions in a row that each followed soon after the one before.
    #[serde(default)]
    pub(crate) compactions: RepetitionCount,
    /// Fingerprints of the recent calls with their results.
    recent_calls: VecDeque<Hash>,
    last_text: Option<Hash>,
}

/// Number of repetitions in a row. The model is warned at half of the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepetitionCount {
    /// Number of repetitions at which the run fails. `None` means that repetitions are not detected.
    limit: Option<u32>,
    count: u32,
    /// Whether the model was warned about the current repetitions.
    warned: bool,
}

impl RepetitionCount {
    const fn new(limit: Option<u32>) -> Self {
        Self { limit, count: 0, warned: false }
    }

    const fn reset(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Counts a repetition, or resets the count if `is_repetition` is false.
    pub(crate) const fn record(&mut self, is_repetition: bool) {
        if is_repetition {
            self.count = self.count.saturating_add(1);
        } else {
            self.reset();
        }
    }

    /// Returns the number of repetitions in a row.
    pub(crate) const fn count(self) -> u32 {
        self.count
    }

    pub(crate) const fn mark_warned(&mut self) {
        self.warned = true;
    }

    /// Returns whether the model should be warned about the repetitions.
    pub(crate) fn should_warn_model(self) -> bool {
        let half = |limit: u32| limit.div_ceil(2);
        !self.warned && self.limit.is_some_and(|limit| self.count >= half(limit))
    }

    /// Returns whether the repetitions continued after the warning and have reached the limit.
    pub(crate) fn is_repetition_limit_reached(self) -> bool {
        self.warned && self.limit.is_some_and(|limit| self.count >= limit)
    }
}

impl NoProgressGuard {
    pub(crate) fn new(prepared: &RunPrepared) -> Self {
        Self {
            known_calls: RepetitionCount::new(prepared.no_progress),
            same_text: RepetitionCount::new(prepared.repeated_text),
            compactions: RepetitionCount::new(prepared.compactions),
            ..Self::default()
        }
    }

    /// Counts a turn if all calls of its reply repeat recent calls with the same results. All calls
    /// must be done. A call that waits for people or time resets the count.
    pub(crate) fn record_finished_calls(&mut self, calls: &[TrackedToolCall]) {
        if self.known_calls.limit.is_none() {
            return;
        }
        let fingerprints: Option<Vec<Hash>> = calls.iter().map(call_fingerprint).collect();
        let Some(fingerprints) = fingerprints else {
            return self.known_calls.reset();
        };
        self.known_calls
            .record(fingerprints.iter().all(|fingerprint| self.recent_calls.contains(fingerprint)));
        for fingerprint in fingerprints {
            if !self.recent_calls.contains(&fingerprint) {
                self.recent_calls.push_back(fingerprint);
            }
        }
        let excess = self.recent_calls.len().saturating_sub(RECENT_CALLS_MAX);
        self.recent_calls.drain(..excess);
    }

    /// Counts a reply if its text is that of the previous reply. White space does not matter.
    pub(crate) fn record_reply_text(&mut self, text: &str) {
        if self.same_text.limit.is_none() {
            return;
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        let text = parts.join(" ");
        let fingerprint =
            (text.len() >= REPEATED_TEXT_BYTES_MIN).then(|| Hash::digest(text.as_bytes()));
        if fingerprint.is_none() || fingerprint != self.last_text {
            self.same_text.reset();
        }
        self.last_text = fingerprint;
        let increment = u32::from(fingerprint.is_some());
        self.same_text.count = self.same_text.count.saturating_add(increment);
    }

    /// Forgets all repetitions, because a person sent a message or the run is retried.
    pub(crate) fn forget_repetitions(&mut self) {
        self.known_calls.reset();
        self.same_text.reset();
        self.compactions.reset();
        self.recent_calls.clear();
        self.last_text = None;
    }
}
