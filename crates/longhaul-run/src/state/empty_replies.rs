//! Counts replies of the model that are empty: they have neither text nor calls.
//!
//! The model is asked once more. If that reply is empty too, the run fails.

use longhaul_core::event::turn::TurnCompleted;
use longhaul_core::message::{HANDLER_API, StopReason};
use serde::{Deserialize, Serialize};

/// Number of empty replies in a row at which the run fails.
const EMPTY_REPLIES_MAX: u32 = 2;

/// Number of empty replies in a row, and whether the model was asked again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EmptyReplyCounter {
    count: u32,
    reported: bool,
}

impl EmptyReplyCounter {
    /// Counts a reply if it is empty. Any other reply resets the count.
    pub(crate) fn count_or_reset_empty_replies(self, turn: &TurnCompleted) -> Self {
        match is_empty_reply(turn) {
            true => Self { count: self.count.saturating_add(1), reported: false },
            false => Self::default(),
        }
    }

    /// Returns whether the model must be asked again, because its last reply was empty.
    pub(crate) const fn should_ask_again(self) -> bool {
        self.count > 0 && !self.reported
    }

    /// Records that the model was asked again.
    pub(crate) const fn mark_reported(self) -> Self {
        Self { reported: true, ..self }
    }

    /// Returns whether the model was asked again and its reply was empty too.
    pub(crate) const fn is_limit_reached(self) -> bool {
        self.count >= EMPTY_REPLIES_MAX
    }
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
