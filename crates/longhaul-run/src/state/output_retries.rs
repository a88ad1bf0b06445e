//! Final answers that do not fit the schema of the run's result.
//!
//! Never: counts anew. A model that looks something up between two of them, or takes
//! turns between words and `finish`, would never be done.

use std::sync::Arc;

use longhaul_core::event::turn::{OutputCheck, TurnCompleted};
use longhaul_core::message::StopReason;
use serde::{Deserialize, Serialize};

use crate::policy::control_tool_names::FINISH;

/// So often a model is told that its final answer does not fit.
const CORRECTIONS_MAX: u32 = 3;

/// How many there were, and why the last one did not fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRetries {
    count: u32,
    last: Option<Arc<str>>,
    /// The model knows about the last one.
    reported: bool,
}

impl OutputRetries {
    /// Takes a reply in. What is wrong with a call the model reads in its result.
    pub(crate) fn record_reply(&mut self, done: &TurnCompleted) {
        let (why, told) = match (&done.output_check, finish_problem(done)) {
            (Some(OutputCheck::Invalid(why)), _) => (why.as_str(), !done.calls.is_empty()),
            (Some(OutputCheck::Valid(_)) | None, Some(why)) => (why, true),
            (Some(OutputCheck::Valid(_)) | None, None) => return,
        };
        *self =
            Self { count: self.count.saturating_add(1), last: Some(why.into()), reported: told };
    }

    /// Why the last answer did not fit, as long as the model was not told.
    pub(crate) fn unreported(&self) -> Option<&Arc<str>> {
        self.last.as_ref().filter(|_| !self.reported)
    }

    /// The model was told.
    pub(crate) const fn mark_reported(&mut self) {
        self.reported = true;
    }

    /// How many there were and why the last one did not fit, if that is enough.
    pub(crate) fn exceeded(&self) -> Option<(u32, &str)> {
        let last = self.last.as_deref()?;
        (self.count > CORRECTIONS_MAX).then_some((self.count, last))
    }
}

/// Why a reply that would end the run can't. Half a call is not judged.
fn finish_problem(done: &TurnCompleted) -> Option<&str> {
    if done.stop == StopReason::MaxTokens {
        return None;
    }
    let mut ends = done.calls.iter().filter(|call| call.tool.as_str() == FINISH);
    ends.find_map(|call| call.problem.as_deref())
}
