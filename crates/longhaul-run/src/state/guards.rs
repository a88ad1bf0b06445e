//! Guards against runs that make no progress: repeated calls, texts and compactions, empty replies
//! and invalid final answers. Only counts and hashes are stored, so the cost does not grow with the
//! run.

use std::collections::VecDeque;
use std::sync::Arc;

use longhaul_core::event::run::RunPrepared;
use longhaul_core::event::turn::{OutputCheckResult, TurnCompleted};
use longhaul_core::message::{HANDLER_API, StopReason};
use longhaul_core::raw::Hash;
use serde::{Deserialize, Serialize};

use crate::policy::{ASK_HUMAN, FINISH, REPORT_BLOCKED, WAIT};
use crate::state::call::{ToolCallState, TrackedCall};

/// Number of recent calls with which a call and its result are compared.
const RECENT_CALLS_MAX: usize = 32;

/// Minimum length of a repeated text in bytes. Agents repeat short texts, such as "Next file.",
/// while they make progress.
const REPEATED_TEXT_BYTES_MIN: usize = 100;

/// Number of empty replies in a row at which the run fails.
const EMPTY_REPLIES_MAX: u32 = 2;

/// Maximum number of corrections sent to the model per run, each after an invalid final answer.
const CORRECTIONS_MAX: u32 = 3;

/// Counts of what a run repeats without making progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Guards {
    /// Number of replies in a row with the same calls and the same results, including the first.
    pub(crate) same_calls: RepetitionCount,
    /// Number of turns in a row that only repeated recent calls with the same results.
    pub(crate) known_calls: RepetitionCount,
    /// Number of replies in a row with the same text as the reply before.
    pub(crate) same_text: RepetitionCount,
    /// Number of compactions in a row that each followed soon after the one before.
    pub(crate) compactions: RepetitionCount,
    /// Number of empty replies in a row.
    pub(crate) empty_replies: RepetitionCount,
    pub(crate) invalid_answers: InvalidAnswers,
    /// Fingerprint of the calls of the last reply with their results.
    last_calls: Option<Hash>,
    /// Fingerprints of the recent calls with their results.
    recent_calls: VecDeque<Hash>,
    last_text: Option<Hash>,
}

/// Number of repetitions in a row. The model is warned at half of the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RepetitionCount {
    /// Number of repetitions at which the run fails. `None` means that repetitions are not detected.
    limit: Option<u32>,
    pub(crate) count: u32,
    /// Whether the model was warned since the repetitions began.
    pub(crate) warned: bool,
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

    /// Returns whether the model should be warned about the repetitions.
    pub(crate) fn should_warn(self) -> bool {
        let half = |limit: u32| limit.div_ceil(2);
        !self.warned && self.limit.is_some_and(|limit| self.count >= half(limit))
    }

    /// Returns whether the repetitions continued after the warning and have reached the limit.
    pub(crate) fn is_limit_reached(self) -> bool {
        self.warned && self.limit.is_some_and(|limit| self.count >= limit)
    }
}

impl Guards {
    pub(crate) fn new(prepared: &RunPrepared) -> Self {
        // A call that is made once is no repetition.
        let same_calls = prepared.identical_calls.map(|limit| limit.max(2));
        Self {
            same_calls: RepetitionCount::new(same_calls),
            known_calls: RepetitionCount::new(prepared.no_progress),
            same_text: RepetitionCount::new(prepared.repeated_text),
            compactions: RepetitionCount::new(prepared.compactions),
            empty_replies: RepetitionCount::new(Some(EMPTY_REPLIES_MAX)),
            ..Self::default()
        }
    }

    /// Counts the calls of a reply with their results. All calls must be done. A call that waits for
    /// people or time resets the counts.
    pub(crate) fn record_calls(&mut self, calls: &[TrackedCall]) {
        if self.same_calls.limit.is_none() && self.known_calls.limit.is_none() {
            return;
        }
        let fingerprints: Option<Vec<Hash>> = calls.iter().map(fingerprint).collect();
        let reply = fingerprints.as_deref().and_then(joint_fingerprint);
        if reply.is_none() || reply != self.last_calls {
            self.same_calls.reset();
        }
        self.same_calls.record(reply.is_some());
        self.last_calls = reply;
        let Some(fingerprints) = fingerprints else { return self.known_calls.reset() };
        let is_known = |fingerprint| self.recent_calls.contains(fingerprint);
        self.known_calls.record(fingerprints.iter().all(is_known));
        for fingerprint in fingerprints {
            if !self.recent_calls.contains(&fingerprint) {
                self.recent_calls.push_back(fingerprint);
            }
        }
        let excess = self.recent_calls.len().saturating_sub(RECENT_CALLS_MAX);
        self.recent_calls.drain(..excess);
    }

    /// Counts a reply that is empty, that repeats the text of the previous reply, or that has an
    /// invalid final answer.
    pub(crate) fn record_reply(&mut self, turn: &TurnCompleted) {
        self.empty_replies.record(is_empty_reply(turn));
        self.invalid_answers.record_reply(turn);
        self.record_text(&turn.reply.text());
    }

    /// Counts a reply if its text is that of the previous reply. White space does not matter.
    fn record_text(&mut self, text: &str) {
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
        self.same_text.record(fingerprint.is_some());
        self.last_text = fingerprint;
    }

    /// Forgets all repetitions, because a person sent a message or the run is retried.
    pub(crate) fn forget_repetitions(&mut self) {
        let counts = [&mut self.same_calls, &mut self.known_calls, &mut self.same_text];
        counts.into_iter().chain([&mut self.compactions]).for_each(RepetitionCount::reset);
        self.last_calls = None;
        self.recent_calls.clear();
        self.last_text = None;
    }

    /// Resets all counts for a retry of the failed run. The model still learns about its last
    /// invalid answer.
    pub(crate) fn reset_for_retry(&mut self) {
        self.forget_repetitions();
        self.empty_replies.reset();
        self.invalid_answers.count = 0;
    }
}

/// Returns the fingerprint of a call with its result. `None` means that the call waits for people
/// or time, which is not a loop however often it is repeated.
fn fingerprint(call: &TrackedCall) -> Option<Hash> {
    let tool = call.classification.tool.as_str();
    if [WAIT, ASK_HUMAN, REPORT_BLOCKED].contains(&tool) {
        return None;
    }
    let ToolCallState::Done { output, is_error } = &call.state else { return None };
    // The visible part of a truncated output contains the call id, so the full output is hashed.
    let content = match &output.full {
        Some(full_output) => full_output.hash.to_string(),
        None => serde_json::to_string(&output.content).unwrap_or_default(),
    };
    let input = call.arguments().as_str();
    Some(Hash::digest(format!("{tool}\0{input}\0{is_error}\0{content}").as_bytes()))
}

/// Returns the fingerprint of all calls of a reply. `None` for a reply without calls.
fn joint_fingerprint(calls: &[Hash]) -> Option<Hash> {
    let joined: String = calls.iter().map(Hash::to_string).collect();
    (!calls.is_empty()).then(|| Hash::digest(joined.as_bytes()))
}

/// Returns whether a reply has neither text nor calls although the model ended it by itself. Always
/// false for an answer that was checked against an output schema, and for the result of a handler
/// (a function that replaces the model).
pub(crate) fn is_empty_reply(turn: &TurnCompleted) -> bool {
    let is_ended = match turn.stop {
        StopReason::EndTurn | StopReason::ToolUse | StopReason::Other(_) => true,
        StopReason::MaxTokens | StopReason::Refusal | StopReason::PauseTurn => false,
    };
    is_ended
        && turn.calls.is_empty()
        && turn.output_check.is_none()
        && turn.reply.api != HANDLER_API
        && turn.reply.text().trim().is_empty()
}

/// Number of final answers that don't match the output schema of the run, and the problem of the
/// last one.
///
/// The count is never reset within a run. Otherwise a model that calls a tool between two answers,
/// or alternates between text and `finish`, could continue forever.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InvalidAnswers {
    count: u32,
    last: Option<Arc<str>>,
    /// Whether the model was informed about the last invalid answer.
    pub(crate) reported: bool,
}

impl InvalidAnswers {
    /// Counts a reply if its final answer is invalid. The problem of an invalid `finish` call
    /// counts as reported, because the model sees it in the call's result.
    fn record_reply(&mut self, turn: &TurnCompleted) {
        let (problem, reported) = match (&turn.output_check, finish_call_problem(turn)) {
            (Some(OutputCheckResult::Invalid(problem)), _) => {
                (problem.as_str(), !turn.calls.is_empty())
            }
            (Some(OutputCheckResult::Valid(_)) | None, Some(problem)) => (problem, true),
            (Some(OutputCheckResult::Valid(_)) | None, None) => return,
        };
        *self = Self { count: self.count.saturating_add(1), last: Some(problem.into()), reported };
    }

    /// Returns what is wrong with the last invalid final answer. `None` means that the model was
    /// already informed, or that there was no invalid answer.
    pub(crate) fn unreported_problem(&self) -> Option<&Arc<str>> {
        self.last.as_ref().filter(|_| !self.reported)
    }

    /// Returns the number of invalid answers and the problem of the last one. `None` means that
    /// there were at most `CORRECTIONS_MAX` invalid answers.
    pub(crate) fn over_limit(&self) -> Option<(u32, &str)> {
        let last = self.last.as_deref()?;
        (self.count > CORRECTIONS_MAX).then_some((self.count, last))
    }
}

/// Returns what is wrong with the reply's `finish` call. `None` means that the call is valid or
/// missing, or that the reply is truncated and so not checked.
fn finish_call_problem(turn: &TurnCompleted) -> Option<&str> {
    if turn.stop == StopReason::MaxTokens {
        return None;
    }
    let mut finish_calls = turn.calls.iter().filter(|call| call.tool.as_str() == FINISH);
    finish_calls.find_map(|call| call.problem.as_deref())
}
