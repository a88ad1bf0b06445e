//! Counts final answers that don't match the output schema of the run.
//!
//! The count is never reset within a run. Otherwise a model that calls a tool between two answers, or alternates
//! between text and `finish`, could continue forever.

use std::sync::Arc;

use longhaul_core::event::turn::{OutputCheckResult, TurnCompleted};
use longhaul_core::message::StopReason;
use serde::{Deserialize, Serialize};

use crate::policy::control_tool_names::FINISH;

/// Maximum number of corrections sent to the model per run, each after an invalid final answer.
const CORRECTIONS_MAX: u32 = 3;

/// Number of invalid final answers of the run, and the problem of the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidFinalAnswerCounter {
    count: u32,
    last: Option<Arc<str>>,
    /// Whether the model was informed about the last invalid answer.
    reported: bool,
}

impl InvalidFinalAnswerCounter {
    /// Counts a reply if its final answer is invalid. The problem of an invalid `finish` call
    /// counts as reported, because the model sees it in the call's result.
    pub(crate) fn count_invalid_answer(&mut self, turn: &TurnCompleted) {
        let (problem, reported) = match (&turn.output_check, finish_call_problem(turn)) {
            (Some(OutputCheckResult::Invalid(problem)), _) => {
                (problem.as_str(), !turn.calls.is_empty())
            }
            (Some(OutputCheckResult::Valid(_)) | None, Some(problem)) => (problem, true),
            (Some(OutputCheckResult::Valid(_)) | None, None) => return,
        };
        *self = Self { count: self.count.saturating_add(1), last: Some(problem.into()), reported };
    }

    /// Resets the count for a retry of the failed run. The model still learns about the last invalid
    /// answer.
    pub(crate) const fn reset_count(&mut self) {
        self.count = 0;
    }

    /// Returns what is wrong with the last invalid final answer. `None` means that the model was
    /// already informed, or that there was no invalid answer.
    pub(crate) fn unreported_answer_problem(&self) -> Option<&Arc<str>> {
        self.last.as_ref().filter(|_| !self.reported)
    }

    /// Records that the model was informed about the last invalid answer.
    pub(crate) const fn mark_reported(&mut self) {
        self.reported = true;
    }

    /// Returns the number of invalid answers and the problem of the last one. `None` means that
    /// there were at most `CORRECTIONS_MAX` invalid answers.
    pub(crate) fn invalid_answer_count_and_problem_over_limit(&self) -> Option<(u32, &str)> {
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
