//! An input becomes facts, and the changes of rows that go with them.
//!
//! Never: acts, and never refuses a result because the run has moved on: a
//! tool's result is taken in any state but the end.

mod failed;
mod place;
mod replied;
mod tools;

use longhaul_core::change::{Batch, Blob, HeadMove};
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunAsked, RunPerceived, RunRecovered};
use longhaul_core::event::world::MemoryCompacted;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::Message;
use longhaul_core::policy::gate::SUBMIT_AGAIN;

use crate::advance::{advance, gates, orphans};
use crate::decide::place::{out_of_place, release};
use crate::draft::Draft;
use crate::input::{Input, Moment, Replied};
use crate::outside;
use crate::refusal::Refusal;
use crate::state::Run;
use crate::state::control::Control;
use crate::state::stage::Stage;

/// A reply with more calls than this is broken, or means harm.
const CALLS_MAX: usize = 1_024;
const TOO_MANY_CALLS: &str = "the reply holds more than 1024 tool calls";

/// Decides what follows from an input. Nothing is written by it; the same run,
/// input and moment give the same batch.
pub fn decide(run: &Run, input: Input, moment: Moment) -> Result<Batch, Refusal> {
    // Rows are spent also when the run has ended; the words are judged there.
    if let Input::Outside(word) = input {
        return outside::tell(&outside::View::of(run), word, moment);
    }
    if let Stage::Ended(outcome) = &run.control.stage {
        return Err(Refusal::Ended(outcome.status()));
    }
    let mut draft = Draft::new(run, moment);
    match input {
        Input::GoOn => go_on(&mut draft)?,
        Input::Perceived(seen, blobs) => perceived(&mut draft, seen, blobs)?,
        Input::Looked(looked) => {
            draft.look = Some(*looked);
            advance(&mut draft)?;
        }
        Input::Progress(progress) => tools::progress(&mut draft, progress)?,
        Input::Replied(replied) => heard(&mut draft, *replied)?,
        Input::ModelFailed {
            failure,
            cost,
            active,
        } => failed::failed(&mut draft, failure, cost, active)?,
        Input::Interrupted(cut) => replied::interrupted(&mut draft, cut)?,
        Input::Compacted(compacted) => compact(&mut draft, *compacted)?,
        Input::ToolsDone(done) => tools::done(&mut draft, done)?,
        Input::Verified(seen, blobs) => tools::verified(&mut draft, seen, blobs)?,
        Input::Recover => recover(&mut draft)?,
        Input::CrashLoop => missing(&mut draft, &crash_loop(&run.control), &[])?,
        Input::Missing(sentence) => missing(&mut draft, &sentence, &[])?,
        Input::Unfit(sentence) => missing(&mut draft, &sentence, &[SUBMIT_AGAIN])?,
        Input::Release => release(&mut draft)?,
        Input::Close { by, reason } => close(&mut draft, by, reason)?,
        Input::Still { by } => still(&mut draft, by)?,
        Input::Outside(_) => {}
    }
    Ok(draft.batch)
}

/// A reply of a size that can be kept, or a failure with what it cost.
fn heard(draft: &mut Draft<'_>, replied: Replied) -> Result<(), Refusal> {
    if replied.calls.len() <= CALLS_MAX {
        return replied::replied(draft, replied);
    }
    let mut failure = Failure::new(FailureClass::InvalidRequest, TOO_MANY_CALLS);
    failure.usage = Some(replied.answered.usage);
    failed::failed(draft, failure, replied.answered.cost, replied.active)
}

/// The driver is there: what dead ones left is settled, then whatever is due.
fn go_on(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    recover(draft)?;
    let alive = draft.control.epoch;
    orphans(draft, Some(alive))?;
    advance(draft)
}

fn recover(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    match draft.control.orphaned {
        Some(from) => draft.record(Event::RunRecovered(RunRecovered { from })),
        None => Ok(()),
    }
}

fn perceived(
    draft: &mut Draft<'_>,
    seen: Box<RunPerceived>,
    blobs: Vec<Blob>,
) -> Result<(), Refusal> {
    recover(draft)?;
    // A run that was cancelled while somebody looked needs no world any more.
    if draft.control.cancel.is_none() {
        draft.record(Event::RunPerceived(seen))?;
        draft.keep(blobs);
    }
    advance(draft)
}

fn compact(draft: &mut Draft<'_>, compacted: MemoryCompacted) -> Result<(), Refusal> {
    let paid = replied::Paid::of(draft, compacted.usage, compacted.cost)?;
    let active = compacted.active;
    if draft.control.cancel.is_some() {
        return replied::stopped(draft, paid, active);
    }
    // By the name under which its start was written, and not as it calls itself.
    let asked = replied::asking(draft)?.asks(draft.run.transcript.model());
    let called = compacted.model;
    draft.record(Event::MemoryCompacted(Box::new(MemoryCompacted {
        replaced: whole_turns(draft.run, compacted.replaced),
        cost: paid.cost,
        model: asked.to_owned(),
        ..compacted
    })))?;
    paid.settle(draft, called, active);
    advance(draft)
}

/// So many messages that no result is left without its call.
fn whole_turns(run: &Run, replaced: usize) -> usize {
    let messages = run.transcript.messages();
    let wanted = replaced.min(messages.len());
    let splits = messages
        .get(wanted)
        .is_some_and(|first| matches!(**first, Message::Results(_)));
    wanted - usize::from(splits)
}

fn missing(draft: &mut Draft<'_>, sentence: &str, tags: &[&str]) -> Result<(), Refusal> {
    if draft.control.is_busy() {
        return Err(out_of_place(draft, "a missing part"));
    }
    // A run that only has to stop needs no part; what a dead driver left is
    // settled all the same.
    let control = &draft.control;
    if control.cancel.is_some() || control.doom.is_some() || control.pause.is_some() {
        return go_on(draft);
    }
    // Whoever was asked before is asked no more: this is what is missing now.
    if let Some(gate) = draft.control.missing {
        draft.withdraw(gate, "another worker looked")?;
    }
    gates::missing_gate(draft, sentence, tags)
}

/// Why a run whose drivers died is not taken up again, and what helps.
fn crash_loop(control: &Control) -> String {
    let calls = control.calls().iter();
    let under_way: Vec<&str> = calls
        .filter(|call| call.starts > 0 && !call.is_done())
        .map(|call| call.appraisal.tool.as_str())
        .collect();
    let place = match &control.stage {
        Stage::New => "before its first turn".to_owned(),
        Stage::Asking(asking) => format!("while the model was asked, in turn {}", asking.turn),
        Stage::Acting(_) if !under_way.is_empty() => {
            format!("in a call of `{}`", under_way.join("`, `"))
        }
        Stage::Thinking(_) | Stage::Acting(_) | Stage::Concluding(_) | Stage::Ended(_) => {
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
fn close(draft: &mut Draft<'_>, by: String, reason: String) -> Result<(), Refusal> {
    draft.record(Event::RunCancelRequested(RunAsked {
        by,
        reason,
        raise: None,
    }))?;
    orphans(draft, None)?;
    // It may rest, and still be ended.
    draft.control.rest = None;
    advance(draft)
}

/// Stills a run that nobody drives.
fn still(draft: &mut Draft<'_>, by: String) -> Result<(), Refusal> {
    if draft.run.status() == longhaul_core::status::Status::Paused {
        return Err(Refusal::Already("paused"));
    }
    if draft.control.is_busy() {
        return Err(out_of_place(draft, "a pause of what a dead worker left"));
    }
    let asked = RunAsked::by(by);
    draft.record(Event::RunPauseRequested(asked.clone()))?;
    draft.record(Event::RunPaused(asked))?;
    draft.head(HeadMove::Pause);
    Ok(())
}
