//! An input becomes facts, and the changes of rows that go with them.
//!
//! Never: acts, and never refuses a result because the run has moved on: a
//! tool's result is taken in any state but the end.

mod model_failed;
mod model_replied;
mod release;
mod tool_results;

use longhaul_core::change::{Batch, Blob, HeadUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::{RunControlRequest, RunPrepared, RunRecovered};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::Message;
use longhaul_core::policy::gate::SUBMIT_AGAIN;

use crate::advance::{advance, gates, settle_crashed_work};
use crate::commands;
use crate::decide::release::{invalid_state, release};
use crate::decision::DecisionBuilder;
use crate::input::{DecideContext, Input, ModelReply};
use crate::rejection::Rejection;
use crate::state::Run;
use crate::state::control::Control;
use crate::state::stage::Stage;

/// A reply with more calls than this is broken, or means harm.
const CALLS_MAX: usize = 1_024;
const TOO_MANY_CALLS: &str = "the reply holds more than 1024 tool calls";

/// Decides what follows from an input. Nothing is written by it; the same run,
/// input and moment give the same batch.
pub fn decide(run: &Run, input: Input, moment: DecideContext) -> Result<Batch, Rejection> {
    // Rows are spent also when the run has ended; the words are judged there.
    if let Input::Command(word) = input {
        return commands::decide_command(&commands::RunSnapshot::from_run(run), word, moment);
    }
    if let Stage::Ended(outcome) = &run.control.stage {
        return Err(Rejection::Ended(outcome.status()));
    }
    let mut draft = DecisionBuilder::new(run, moment);
    match input {
        Input::Advance => advance_driven(&mut draft)?,
        Input::Prepared(seen, blobs) => record_preparation(&mut draft, seen, blobs)?,
        Input::PerceptionRefreshed(looked) => {
            draft.perception_refresh = Some(*looked);
            advance(&mut draft)?;
        }
        Input::Progress(progress) => tool_results::record_progress(&mut draft, progress)?,
        Input::ModelReplied(replied) => record_model_reply(&mut draft, *replied)?,
        Input::ModelFailed { failure, cost, active } => {
            model_failed::model_failed(&mut draft, failure, cost, active)?
        }
        Input::ModelInterrupted(cut) => model_replied::record_interruption(&mut draft, cut)?,
        Input::Compacted(compacted) => compact(&mut draft, *compacted)?,
        Input::ToolsDone(done) => tool_results::record_results(&mut draft, done)?,
        Input::Verified(seen, blobs) => tool_results::record_verification(&mut draft, seen, blobs)?,
        Input::Recover => recover(&mut draft)?,
        Input::CrashLoop => block_on_missing(&mut draft, &crash_loop_message(&run.control), &[])?,
        Input::MissingDependency(sentence) => block_on_missing(&mut draft, &sentence, &[])?,
        Input::Unrunnable(sentence) => block_on_missing(&mut draft, &sentence, &[SUBMIT_AGAIN])?,
        Input::Release => release(&mut draft)?,
        Input::CancelNow { by, reason } => cancel_now(&mut draft, by, reason)?,
        Input::PauseNow { by } => pause_now(&mut draft, by)?,
        Input::Command(_) => {}
    }
    Ok(draft.batch)
}

/// A reply of a size that can be kept, or a failure with what it cost.
fn record_model_reply(
    draft: &mut DecisionBuilder<'_>,
    replied: ModelReply,
) -> Result<(), Rejection> {
    if replied.calls.len() <= CALLS_MAX {
        return model_replied::record_reply(draft, replied);
    }
    let mut failure = Failure::new(FailureClass::InvalidRequest, TOO_MANY_CALLS);
    failure.usage = Some(replied.response.usage);
    model_failed::model_failed(draft, failure, replied.response.cost, replied.active)
}

/// The driver is there: what dead ones left is settled, then whatever is due.
fn advance_driven(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    recover(draft)?;
    let alive = draft.control.epoch;
    settle_crashed_work(draft, Some(alive))?;
    advance(draft)
}

fn recover(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    match draft.control.crashed_epoch {
        Some(from) => draft.record(Event::RunRecovered(RunRecovered { crashed_epoch: from })),
        None => Ok(()),
    }
}

fn record_preparation(
    draft: &mut DecisionBuilder<'_>,
    seen: Box<RunPrepared>,
    blobs: Vec<Blob>,
) -> Result<(), Rejection> {
    recover(draft)?;
    // A run that was cancelled while somebody looked needs no world any more.
    if draft.control.cancel.is_none() {
        draft.record(Event::RunPrepared(seen))?;
        draft.put_blobs(blobs);
    }
    advance(draft)
}

fn compact(draft: &mut DecisionBuilder<'_>, compacted: MemoryCompacted) -> Result<(), Rejection> {
    let paid = model_replied::CallCharge::new(draft, compacted.usage, compacted.cost)?;
    let active = compacted.active;
    if draft.control.cancel.is_some() {
        return model_replied::record_stopped(draft, paid, active);
    }
    // By the name under which its start was written, and not as it calls itself.
    let asked = model_replied::expect_model_call(draft)?.model_or(draft.run.transcript.model());
    let called = compacted.model;
    draft.record(Event::MemoryCompacted(Box::new(MemoryCompacted {
        replaced: round_to_turn(draft.run, compacted.replaced),
        cost: paid.cost,
        model: asked.to_owned(),
        ..compacted
    })))?;
    paid.settle(draft, called, active);
    advance(draft)
}

/// So many messages that no result is left without its call.
fn round_to_turn(run: &Run, replaced: usize) -> usize {
    let messages = run.transcript.messages();
    let wanted = replaced.min(messages.len());
    let splits = messages.get(wanted).is_some_and(|first| matches!(**first, Message::Results(_)));
    wanted - usize::from(splits)
}

fn block_on_missing(
    draft: &mut DecisionBuilder<'_>,
    sentence: &str,
    tags: &[&str],
) -> Result<(), Rejection> {
    if draft.control.is_busy() {
        return Err(invalid_state(draft, "a missing part"));
    }
    // A run that only has to stop needs no part; what a dead driver left is
    // settled all the same.
    let control = &draft.control;
    if control.cancel.is_some() || control.pending_failure.is_some() || control.pause.is_some() {
        return advance_driven(draft);
    }
    // Whoever was asked before is asked no more: this is what is missing now.
    if let Some(gate) = draft.control.blocked_on {
        draft.withdraw(gate, "another worker looked")?;
    }
    gates::raise_blocked_gate(draft, sentence, tags)
}

/// Why a run whose drivers died is not taken up again, and what helps.
fn crash_loop_message(control: &Control) -> String {
    let calls = control.calls().iter();
    let under_way: Vec<&str> = calls
        .filter(|call| call.starts > 0 && !call.is_done())
        .map(|call| call.classification.tool.as_str())
        .collect();
    let place = match &control.stage {
        Stage::New => "before its first turn".to_owned(),
        Stage::ModelRunning(asking) => {
            format!("while the model was asked, in turn {}", asking.turn)
        }
        Stage::ToolsRunning(_) if !under_way.is_empty() => {
            format!("in a call of `{}`", under_way.join("`, `"))
        }
        Stage::ModelPending(_)
        | Stage::ToolsRunning(_)
        | Stage::Concluding(_)
        | Stage::Ended(_) => {
            format!("after turn {}", control.turn)
        }
    };
    format!(
        "the worker process that drove this run died {} times in a row at the same place, {place}, \
         so it is not tried again by itself. See the worker's log; an answer here tries it again, \
         and `longhaul cancel {}` ends it",
        control.crashes, control.id
    )
}

/// Ends a run that nobody drives.
fn cancel_now(
    draft: &mut DecisionBuilder<'_>,
    by: String,
    reason: String,
) -> Result<(), Rejection> {
    draft.record(Event::RunCancelRequested(RunControlRequest { by, reason, raise: None }))?;
    settle_crashed_work(draft, None)?;
    // It may rest, and still be ended.
    draft.control.idle = None;
    advance(draft)
}

/// Stills a run that nobody drives.
fn pause_now(draft: &mut DecisionBuilder<'_>, by: String) -> Result<(), Rejection> {
    if draft.run.status() == longhaul_core::status::Status::Paused {
        return Err(Rejection::AlreadyInState("paused"));
    }
    if draft.control.is_busy() {
        return Err(invalid_state(draft, "a pause of what a dead worker left"));
    }
    let asked = RunControlRequest::by(by);
    draft.record(Event::RunPauseRequested(asked.clone()))?;
    draft.record(Event::RunPaused(asked))?;
    draft.set_head(HeadUpdate::Pause);
    Ok(())
}
