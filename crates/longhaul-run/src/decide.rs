//! Turns an input of a run, such as a result or a command, into events and the row changes that
//! belong to them.
//!
//! Invariant: the result of a tool is accepted in every state of a run that has not ended, even if
//! the run has changed since the call started.

mod model_failed;
mod model_replied;
mod tool_results;

use longhaul_core::change::{Blob, JournalBatch, RowChange, RunSchedulingUpdate, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{BudgetReached, MemoryCompacted};
use longhaul_core::event::run::{
    RunControlRequest, RunOverdue, RunPrepared, RunRecovered, RunTimedOut,
};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::Message;
use longhaul_core::policy::budget::BudgetCap;
use longhaul_core::policy::gate::SUBMIT_AGAIN;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;

use crate::advance::call_events::add_active_time;
use crate::advance::{
    advance_run, children, conclude, gates, record_dead_drivers_work, release_run, sandbox,
    suspension,
};
use crate::commands;
use crate::decision::{Decision, DecisionContext, RecordResult};
use crate::input::{ModelReply, RunInput};
use crate::rejection::Rejection;
use crate::state::Run;
use crate::state::control::ControlState;
use crate::state::driver::Activity;
use crate::state::stage::RunStage;

/// Maximum number of tool calls per reply. A reply with more calls is broken or malicious.
const CALLS_MAX: usize = 1_024;
const TOO_MANY_CALLS: &str = "the reply has more than 1024 tool calls";

/// Returns the events and row changes that follow from an input, such as a result or a command.
/// Writes nothing; the same run, input and context give the same batch.
pub fn decide(run: &Run, input: RunInput, ctx: DecisionContext) -> Result<JournalBatch, Rejection> {
    // Commands are decided even after the end, because their timers must still be consumed.
    if let RunInput::Command(command) = input {
        return commands::decide_command(run.id, run.status(), command, ctx);
    }
    if let Some(outcome) = run.outcome() {
        return Err(Rejection::Ended(outcome.status()));
    }
    let mut decision = Decision::new(run, ctx);
    let d = &mut decision;
    match input {
        RunInput::Advance => recover_and_advance(d)?,
        RunInput::Prepared(preparation, blobs) => record_preparation(d, preparation, blobs)?,
        RunInput::PerceptionRefreshed(refresh) => {
            d.perception_refresh = Some(*refresh);
            advance_run(d)?;
        }
        RunInput::TimeoutPassed { elapsed } => record_passed_timeout(d, elapsed)?,
        RunInput::Progress(progress) => tool_results::record_progress(d, progress)?,
        RunInput::ModelReplied(model_reply) => record_model_reply(d, *model_reply)?,
        RunInput::ModelFailed { failure, cost, active } => {
            model_failed::handle_model_failure(d, failure, cost, active)?
        }
        RunInput::ModelInterrupted(interrupted) => {
            model_replied::record_interrupted_reply(d, interrupted)?
        }
        RunInput::Compacted(compacted) => record_compaction(d, *compacted)?,
        RunInput::ToolsDone(results) => tool_results::record_tool_results(d, results)?,
        RunInput::Verified(preparation, blobs) => {
            tool_results::record_tool_verification(d, preparation, blobs)?
        }
        RunInput::ChildrenPrepared(prepared) => {
            children::record_prepared_children(d, prepared)?;
            advance_run(d)?;
        }
        RunInput::GradingPrepared(prepared) => {
            conclude::record_prepared_grading(d, prepared)?;
            advance_run(d)?;
        }
        RunInput::OpenSandbox(plan) => match sandbox::must_open_sandbox(&d.control) {
            true => sandbox::open_sandbox(d, *plan)?,
            // The run may have been cancelled since the engine was told to open the sandbox.
            false => advance_run(d)?,
        },
        RunInput::SandboxChanged(change) => {
            sandbox::record_sandbox_change(d, change)?;
            advance_run(d)?;
        }
        RunInput::WorkspaceSaved(files, blobs) => {
            sandbox::record_saved_workspace(d, files, blobs)?;
            advance_run(d)?;
        }
        RunInput::Recover => record_recovery(d)?,
        RunInput::CrashLoop => block_stuck_run(d, &crash_loop_message(&run.control), &[])?,
        RunInput::MissingDependency(message) => postpone_or_block(d, &message)?,
        RunInput::Unrunnable(message) => block_stuck_run(d, &message, &[SUBMIT_AGAIN])?,
        RunInput::Release => release_run(d)?,
        RunInput::CancelNow(request) => cancel_without_driver(d, request)?,
        RunInput::PauseNow { by } => pause_without_driver(d, by)?,
        RunInput::CloseNow { by } => conclude::close_open_run(d, by)?,
        RunInput::Command(_) => {}
    }
    sandbox::mark_idle_sandbox(d);
    Ok(decision.batch)
}

/// Records a model reply. A reply with too many tool calls is recorded as a failed model call with
/// its cost.
fn record_model_reply(decision: &mut Decision<'_>, model_reply: ModelReply) -> RecordResult {
    if model_reply.calls.len() <= CALLS_MAX {
        return model_replied::record_reply(decision, model_reply);
    }
    let ModelReply { response, active, .. } = model_reply;
    let mut failure = Failure::new(FailureClass::InvalidRequest, TOO_MANY_CALLS);
    failure.usage = Some(response.usage);
    model_failed::handle_model_failure(decision, failure, response.cost, active)
}

/// Records the outcome of calls that dead drivers (async tasks that executed the run) left
/// unfinished, then records all events that are due.
fn recover_and_advance(decision: &mut Decision<'_>) -> RecordResult {
    record_recovery(decision)?;
    let epoch = decision.control.driver.epoch;
    record_dead_drivers_work(decision, Some(epoch))?;
    advance_run(decision)
}

fn record_recovery(decision: &mut Decision<'_>) -> RecordResult {
    let Some(crashed_epoch) = decision.control.driver.crashed_epoch else { return Ok(()) };
    decision.record_event(Event::RunRecovered(RunRecovered { crashed_epoch }))
}

fn record_preparation(
    decision: &mut Decision<'_>,
    mut preparation: Box<RunPrepared>,
    blobs: Vec<Blob>,
) -> RecordResult {
    record_recovery(decision)?;
    // A run that was cancelled in the meantime needs no preparation.
    if decision.control.stop.cancel.is_none() {
        // A run with a fallback model calls its provider to learn whether it must switch.
        if !preparation.fallbacks.is_empty() {
            decision.ctx.provider_blocked_until = None;
        }
        // A fork that is prepared again has its conversation already.
        if !decision.run.transcript.messages().is_empty() {
            preparation.initial_messages.clear();
        }
        let active = preparation.perception_active;
        decision.record_event(Event::RunPrepared(preparation))?;
        decision.add_blob_changes(blobs);
        add_active_time(decision, active);
    }
    advance_run(decision)
}

fn record_compaction(decision: &mut Decision<'_>, compacted: MemoryCompacted) -> RecordResult {
    let charge = model_replied::ModelCallCharge::new(decision, compacted.usage, compacted.cost)?;
    let active = compacted.active;
    if decision.control.stop.cancel.is_some() {
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
    charge.settle(decision, response_model, active);
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
fn postpone_or_block(decision: &mut Decision<'_>, message: &str) -> RecordResult {
    let control = &decision.control;
    if !control.stop.stops_run() && suspension::postpone_polls(decision, message)? {
        return Ok(());
    }
    block_stuck_run(decision, message, &[])
}

fn block_stuck_run(decision: &mut Decision<'_>, message: &str, tags: &[&str]) -> RecordResult {
    if decision.control.has_running_call() {
        return Err(decision.invalid_state("a missing dependency"));
    }
    // A run that is about to stop needs no dependencies, but the work of a dead driver must still
    // be settled.
    let control = &decision.control;
    if control.stop.stops_run() {
        return recover_and_advance(decision);
    }
    // The new gate replaces an earlier one, which may be about another missing dependency.
    if let Some(blocked) = decision.control.stop.blocked {
        decision.withdraw_gate(blocked.gate, "checked again by another worker")?;
    }
    gates::raise_dependency_gate(decision, message, tags)
}

/// Returns the message that explains why a run is not retried after repeated crashes, and what a
/// person can do.
fn crash_loop_message(control: &ControlState) -> String {
    let running = control.calls().iter().filter(|call| call.starts > 0 && !call.is_done());
    let running_tools: Vec<_> = running.map(|call| call.classification.tool.as_str()).collect();
    let position = match &control.stage {
        RunStage::New { .. } => "before its first turn".to_owned(),
        RunStage::ModelRunning(running) => {
            format!("during the model call of turn {}", running.number)
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
        control.driver.crashes,
        id = control.id
    )
}

/// Cancels a run that is not claimed by a worker now.
fn cancel_without_driver(decision: &mut Decision<'_>, request: RunControlRequest) -> RecordResult {
    // A driver is needed to tell the tool of a suspended call.
    if decision.control.has_call_to_cancel() {
        return Err(decision.invalid_state("a cancel without a driver"));
    }
    decision.record_event(Event::RunCancelRequested(request))?;
    record_dead_drivers_work(decision, None)?;
    // A parked or paused run is cancelled too.
    decision.control.driver.activity = Activity::Ready;
    advance_run(decision)
}

/// Pauses a run that is not claimed by a worker now.
fn pause_without_driver(decision: &mut Decision<'_>, by: String) -> RecordResult {
    if decision.run.status() == Status::Paused {
        return Err(Rejection::AlreadyInState("paused"));
    }
    if decision.control.has_running_call() {
        return Err(decision.invalid_state("a pause of a run whose worker died"));
    }
    let request = RunControlRequest::from_principal(by);
    decision.record_event(Event::RunPauseRequested(request.clone()))?;
    decision.record_event(Event::RunPaused(request))?;
    let stop = TimerUpdate::StopAutoApproval(decision.run.id);
    decision.add_row_change(RowChange::SetTimer(stop));
    decision.add_scheduling_update(RunSchedulingUpdate::Pause);
    Ok(())
}

/// Records that a timeout of the attempt has passed, or else that the active time of the run is used
/// up. The worker then aborts its calls, and the attempt ends or the run parks when their results are
/// recorded. `elapsed` is the duration of the work in progress.
fn record_passed_timeout(decision: &mut Decision<'_>, elapsed: Millis) -> RecordResult {
    let active = decision.control.attempt_active().plus(elapsed);
    if decision.control.next_timeout().is_none_or(|next| active < next) {
        let is_used_up =
            decision.control.remaining_active_time().is_some_and(|remaining| elapsed >= remaining);
        return match is_used_up {
            true => decision
                .record_event(Event::BudgetReached(BudgetReached::of_run(BudgetCap::ActiveTime))),
            false => Ok(()),
        };
    }
    let retry = decision.control.policy.retry;
    if let Some(hard_timeout) = retry.hard_timeout.filter(|timeout| active >= *timeout) {
        let timed_out = RunTimedOut { active, hard_timeout };
        return decision.record_event(Event::RunTimedOut(timed_out));
    }
    let soft_timeout = retry.soft_timeout.unwrap_or_default();
    decision.record_event(Event::RunOverdue(RunOverdue { active, soft_timeout }))
}
