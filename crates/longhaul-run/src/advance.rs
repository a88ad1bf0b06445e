//! What follows from where a run stands, as long as nobody outside is needed.
//!
//! Never: states a start that could not be made now. Everything due is written
//! in one batch, so a turn costs two commits: reply with the starts of its
//! calls, results with the start of the next turn.

pub(crate) mod call_events;
mod call_order;
mod conclude;
mod finish;
pub(crate) mod gates;
mod model_call;
mod park;
pub(crate) mod runtime_message;
mod steer;
mod tool_calls;
mod turn_start;

pub(crate) use finish::{fail, settle_crashed_work};
pub(crate) use park::park_until;

use std::ops::ControlFlow;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::state::stage::Stage;

/// No decision takes more rounds than this; one that did would be a mistake of
/// ours, and is refused instead of spinning.
const ROUNDS_MAX: usize = 1_000;

/// States everything that is due.
pub(crate) fn advance(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    for _ in 0..ROUNDS_MAX {
        if advance_once(draft)? == ControlFlow::Break(()) {
            return Ok(());
        }
    }
    Err(Rejection::InvalidState {
        what: "an endless decision",
        stage: draft.control.stage.description(),
    })
}

fn advance_once(draft: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    let control = &draft.control;
    if matches!(control.stage, Stage::Ended(_)) || control.idle.is_some() {
        return Ok(ControlFlow::Break(()));
    }
    let busy = control.is_busy();
    if control.cancel.is_some() {
        return if busy { Ok(ControlFlow::Break(())) } else { finish::cancel(draft) };
    }
    if let Some(fault) = control.pending_failure.clone() {
        return if busy { Ok(ControlFlow::Break(())) } else { fail(draft, fault) };
    }
    if control.pause.is_some() {
        return if busy { Ok(ControlFlow::Break(())) } else { park::pause(draft) };
    }
    if control.blocked_on.is_some() {
        return park::park_on_missing(draft);
    }
    match &draft.control.stage {
        Stage::New | Stage::ModelRunning(_) | Stage::Ended(_) => Ok(ControlFlow::Break(())),
        Stage::ModelPending(_) => model_call::advance_model(draft),
        Stage::ToolsRunning(_) => tool_calls::advance_tools(draft),
        Stage::Concluding(_) => conclude::conclude(draft),
    }
}
