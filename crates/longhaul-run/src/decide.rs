//! Turns an input of a run, such as a result or a command, into events and the row changes that
//! belong to them.
//!
//! Invariant: the result of a tool is accepted in every state of a run that has not ended, even if
//! the run has changed since the call started.

mod model_failed;
mod model_replied;
mod release;
mod timeouts;
mod tool_results;

use longhaul_core::change::{Blob, JournalBatch, RowChange, RunSchedulingUpdate, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::{RunControlRequest, RunPrepared, RunRecovered};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::Message;
use longhaul_core::policy::gate::SUBMIT_AGAIN;

use crate::advance::call_events::add_active_time_to_usage;
use crate::advance::{
    advance_run, children, conclude, gates, outcome, record_unfinished_work_of_dead_drivers,
    suspension,
};
use crate::commands;
use crate::decide::release::{invalid_state_rejection, release_run_to_other_workers};
use crate::decision::DecisionBuilder;
use crate::input::{DecisionContext, ModelReply, RunInput};
use crate::rejection::Rejection;
use crate::state::Run;
use crate::state::control::ControlState;
use crate::state::stage::RunStage;

/// Maximum number of tool calls per reply. A reply with more calls is broken or malicious.
const CALLS_MAX: usize = 1_024;
const TOO_MANY_CALLS: &str = "the reply has more than 1024 tool calls";

/// Returns the events and row changes that follow from an input, such as a result or a command.
/// Writes nothing; the same run, input and context give the same batch.
pub fn decide(run: &Run, input: RunInput, ctx: DecisionContext) -> Result<JournalBatch, Rejection> {
    // Commands are decided even after the end, because their timers must still be consumed.
    if let RunInput::Command(command) = input {
        return commands::decide_command(&commands::RunIdAndStatus::from_run(run), command, ctx);
    }
    if let RunStage::Ended(outcome) = &run.control.stage {
        return Err(Rejection::Ended(outcome.status()));
    }
    let mut decision = DecisionBuilder::new(run, ctx);
    match input {
        RunInput::Advance => recover_and_advance_run(&mut decision)?,
        RunInput::Prepared(preparation, blobs) => {
            record_run_preparation(&mut decision, preparation, blobs)?
        }
        RunInput::PerceptionRefreshed(refresh) => {
            decision.perception_refresh = Some(*refresh);
            advance_run(&mut decision)?;
        }
        RunInput::TimeoutPassed { elapsed } => {
            timeouts::record_passed_timeout(&mut decision, elapsed)?
        }
        RunInput::Progress(progress) => {
            tool_results::record_tool_progress(&mut decision, progress)?
        }
        RunInput::ModelReplied(model_reply) => record_model_reply(&mut decision, *model_reply)?,
        RunInput::ModelFailed { failure, cost, active } => {
            model_failed::handle_model_failure(&mut decision, failure, cost, active)?
        }
        RunInput::ModelInterrupted(interrupted) => {
            model_replied::record_interrupted_reply(&mut decision, interrupted)?
        }
        RunInput::Compacted(compacted) => record_compaction(&mut decision, *compacted)?,
        RunInput::ToolsDone(results) => tool_results::record_tool_results(&mut decision, results)?,
        RunInput::Verified(preparation, blobs) => {
            tool_results::record_tool_verification(&mut decision, preparation, blobs)?
        }
        RunInput::ChildrenPrepared(prepared) => {
            children::record_starts_of_prepared_children(&mut decision, prepared)?;
            advance_run(&mut decision)?;
        }
        RunInput::GradingPrepared(prepared) => {
            outcome::record_start_of_grading_run(&mut decision, prepared)?;
            advance_run(&mut decision)?;
        }
        RunInput::Recover => record_recovery_after_crash(&mut decision)?,
        RunInput::CrashLoop => {
            block_run_that_cannot_continue(&mut decision, &crash_loop_message(&run.control), &[])?
        }
        RunInput::MissingDependency(message) => handle_missing_dependency(&mut decision, &message)?,
        RunInput::Unrunnable(message) => {
            block_run_that_cannot_continue(&mut decision, &message, &[SUBMIT_AGAIN])?
        }
        RunInput::Release => release_run_to_other_workers(&mut decision)?,
        RunInput::CancelNow(request) => cancel_run_without_driver(&mut decision, request)?,
        RunInput::PauseNow { by } => pause_run_without_driver(&mut decision, by)?,
        RunInput::CloseNow { by } => conclude::close_open_run(&mut decision, by)?,
        RunInput::Command(_) => {}
    }
    Ok(decision.batch)
}

/// Records a model reply. A reply with too many tool calls is recorded as a failed model call with
/// its cost.
fn record_model_reply(
    decision: &mut DecisionBuilder<'_>,
    model_reply: ModelReply,
) -> Result<(), Rejection> {
    if model_reply.calls.len() <= CALLS_MAX {
        return model_replied::record_reply(decision, model_reply);
    }
    let mut failure = Failure::new(FailureClass::InvalidRequest, TOO_MANY_CALLS);
    failure.usage = Some(model_reply.response.usage);
    model_failed::handle_model_failure(
        decision,
        failure,
        model_reply.response.cost,
        model_reply.active,
    )
}

/// Records the outcome of calls that dead drivers (async tasks that executed the run) left
/// unfinished, then records all events that are due.
fn recover_and_advance_run(decision: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    record_recovery_after_crash(decision)?;
    let epoch = decision.control.epoch;
    record_unfinished_work_of_dead_drivers(decision, Some(epoch))?;
    advance_run(decision)
}

fn record_recovery_after_crash(decision: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    match decision.control.crashed_epoch {
        Some(from) => {
            decision.record_event(Event::RunRecovered(RunRecovered { crashed_epoch: from }))
        }
        None => Ok(()),
    }
}

fn record_run_preparation(
    decision: &mut DecisionBuilder<'_>,
    preparation: Box<RunPrepared>,
    blobs: Vec<Blob>,
) -> Result<(), Rejection> {
    record_recovery_after_crash(decision)?;
    // A run that was cancelled in the meantime needs no preparation.
    if decision.control.cancel.is_none() {
        // A run with a fallback model calls its provider to learn whether it must switch.
        if !preparation.fallbacks.is_empty() {
            decision.ctx.provider_blocked_until = None;
        }
        let active = preparation.perception_active;
        decision.record_event(Event::RunPrepared(preparation))?;
        decision.add_blob_changes(blobs);
        add_active_time_to_usage(decision, active);
    }
    advance_run(decision)
}

fn record_compaction(
    decision: &mut DecisionBuilder<'_>,
    compacted: MemoryCompacted,
) -> Result<(), Rejection> {
    let charge = model_replied::ModelCallCharge::for_running_call(
        decision,
        compacted.usage,
        compacted.cost,
    )?;
    let active = compacted.active;
    if decision.control.cancel.is_some() {
        return model_replied::record_discarded_reply(decision, charge, active);
    }
    // The model name recorded at the start of the call, not the name in the model's response.
    let model = model_replied::running_model_call(decision)?
        .called_model(decision.run.transcript.current_model());
    let response_model = compacted.model;
    decision.record_event(Event::MemoryCompacted(Box::new(MemoryCompacted {
        replaced: round_down_to_turn_start(decision.run, compacted.replaced),
        cost: charge.cost,
        model: model.to_owned(),
        ..compacted
    })))?;
    charge.settle_held_budget(decision, response_model, active);
    advance_run(decision)
}

/// Returns the number of messages that a compaction may replace: at most `replaced_messages`, and
/// one less if a tool result would be separated from its call.
fn round_down_to_turn_start(run: &Run, replaced_messages: usize) -> usize {
    let messages = run.transcript.messages();
    let end = replaced_messages.min(messages.len());
    let splits_call_and_result =
        messages.get(end).is_some_and(|first| matches!(**first, Message::Results(_)));
    end - usize::from(splits_call_and_result)
}

/// Blocks a run whose dependency is missing. If the run only has to poll suspended calls, the polls
/// are postponed instead, because a server may be down for a while.
fn handle_missing_dependency(
    decision: &mut DecisionBuilder<'_>,
    message: &str,
) -> Result<(), Rejection> {
    let control = &decision.control;
    let is_stopping =
        control.cancel.is_some() || control.pending_failure.is_some() || control.pause.is_some();
    if !is_stopping && suspension::postpone_tool_polls(decision, message)? {
        return Ok(());
    }
    block_run_that_cannot_continue(decision, message, &[])
}

fn block_run_that_cannot_continue(
    decision: &mut DecisionBuilder<'_>,
    message: &str,
    tags: &[&str],
) -> Result<(), Rejection> {
    if decision.control.has_running_call() {
        return Err(invalid_state_rejection(decision, "a missing dependency"));
    }
    // A run that is about to stop needs no dependencies, but the work of a dead driver must still
    // be settled.
    let control = &decision.control;
    if control.cancel.is_some() || control.pending_failure.is_some() || control.pause.is_some() {
        return recover_and_advance_run(decision);
    }
    // The new gate replaces an earlier one, which may be about another missing dependency.
    if let Some(gate) = decision.control.blocked_on {
        decision.withdraw_gate(gate, "checked again by another worker")?;
    }
    gates::raise_gate_for_missing_dependency(decision, message, tags)
}

/// Returns the message that explains why a run is not retried after repeated crashes, and what a
/// person can do.
fn crash_loop_message(control: &ControlState) -> String {
    let calls = control.calls().iter();
    let running_tools: Vec<&str> = calls
        .filter(|call| call.starts > 0 && !call.is_done())
        .map(|call| call.classification.tool.as_str())
        .collect();
    let position = match &control.stage {
        RunStage::New => "before its first turn".to_owned(),
        RunStage::ModelRunning(running) => {
            format!("during the model call of turn {}", running.turn)
        }
        RunStage::ToolsRunning(_) if !running_tools.is_empty() => {
            format!("during a call of `{}`", running_tools.join("`, `"))
        }
        RunStage::ModelPending(_)
        | RunStage::ToolsRunning(_)
        | RunStage::Concluding(_)
        | RunStage::Ended(_) => {
            format!("after turn {}", control.turn)
        }
    };
    format!(
        "the worker process that drove this run died {} times in a row at the same point, {position}, \
         so it is not retried automatically. See the worker's log. `longhaul resume {id}` tries \
         again; `longhaul cancel {id}` ends it",
        control.crashes,
        id = control.id
    )
}

/// Cancels a run that is not claimed by a worker now.
fn cancel_run_without_driver(
    decision: &mut DecisionBuilder<'_>,
    request: RunControlRequest,
) -> Result<(), Rejection> {
    // A driver is needed to tell the tool of a suspended call.
    if decision.control.has_call_to_cancel() {
        return Err(invalid_state_rejection(decision, "a cancel without a driver"));
    }
    decision.record_event(Event::RunCancelRequested(request))?;
    record_unfinished_work_of_dead_drivers(decision, None)?;
    // A parked or paused run is cancelled too.
    decision.control.idle = None;
    advance_run(decision)
}

/// Pauses a run that is not claimed by a worker now.
fn pause_run_without_driver(
    decision: &mut DecisionBuilder<'_>,
    by: String,
) -> Result<(), Rejection> {
    if decision.run.status() == longhaul_core::status::Status::Paused {
        return Err(Rejection::AlreadyInState("paused"));
    }
    if decision.control.has_running_call() {
        return Err(invalid_state_rejection(decision, "a pause of a run whose worker died"));
    }
    let request = RunControlRequest::from_principal(by);
    decision.record_event(Event::RunPauseRequested(request.clone()))?;
    decision.record_event(Event::RunPaused(request))?;
    let stop = TimerUpdate::StopAutoApproval(decision.run.id);
    decision.add_row_change(RowChange::SetTimer(stop));
    decision.add_scheduling_update(RunSchedulingUpdate::Pause);
    Ok(())
}
