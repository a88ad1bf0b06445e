//! Records all events of a run that are due without an external result.
//!
//! All due events go into one batch, so a turn costs two commits: the reply with the starts of its
//! calls, and the results with the start of the next turn.

mod attempt_end;
pub(crate) mod call_events;
pub(crate) mod children;
pub(crate) mod conclude;
mod effect_keys;
mod finish;
pub(crate) mod gates;
mod model_call;
mod park;
pub(crate) mod runtime_message;
pub(crate) mod sandbox;
mod spend_caps;
mod steer;
pub(crate) mod suspension;
mod tool_calls;
mod turn_start;

pub(crate) use attempt_end::{
    block_on_refused_access, outage_retry_hint, park_until_retry, retry_or_fail_run,
    wait_for_provider,
};
pub use effect_keys::original_result;
pub(crate) use finish::{fail_run, record_dead_drivers_work};
pub(crate) use park::{release_run, start_wait};

use std::ops::ControlFlow;

use crate::decision::{AdvanceResult, BREAK, Decision, RecordResult};
use crate::state::stage::RunStage;

/// Maximum number of rounds in which one decision records events. Exceeding it indicates a bug, so
/// the decision is rejected instead of looping forever.
const ROUNDS_MAX: usize = 1_000;

/// Records all events that are due without an external result, until the run must wait for one.
pub(crate) fn advance_run(decision: &mut Decision<'_>) -> RecordResult {
    for _ in 0..ROUNDS_MAX {
        if advance_run_one_step(decision)? == ControlFlow::Break(()) {
            return Ok(());
        }
    }
    Err(decision.invalid_state("a decision that does not end"))
}

fn advance_run_one_step(decision: &mut Decision<'_>) -> AdvanceResult {
    let control = &decision.control;
    if matches!(control.stage, RunStage::Ended(_)) || control.driver.is_idle() {
        return BREAK;
    }
    let is_busy = control.has_running_call() || control.calls_to_give_up().next().is_some();
    if control.stop.cancel.is_some() {
        return if is_busy { BREAK } else { finish::cancel_run(decision) };
    }
    if let Some(error) = control.stop.failure.clone() {
        if is_busy {
            return BREAK;
        }
        let error = runtime_message::with_truncation_hint(decision, error);
        return fail_run(decision, error);
    }
    if control.stop.pause.is_some() {
        return if is_busy { BREAK } else { park::pause_run(decision) };
    }
    if control.stop.blocked.is_some() {
        return park::keep_run_blocked(decision);
    }
    if control.attempt.timed_out
        && !is_busy
        && let Some(flow) = attempt_end::end_timed_out_attempt(decision)?
    {
        return Ok(flow);
    }
    match &decision.control.stage {
        RunStage::New { .. } => park::park_again_until_start(decision),
        RunStage::ModelRunning(_) | RunStage::Ended(_) => BREAK,
        RunStage::ModelPending(_) | RunStage::Concluding(_)
            if sandbox::must_save_workspace(&decision.control) =>
        {
            BREAK
        }
        RunStage::ModelPending(_) => model_call::advance_model_call(decision),
        RunStage::ToolsRunning(_) => tool_calls::advance_tool_calls(decision),
        RunStage::Concluding(_) => conclude::advance_concluding_run(decision),
    }
}
