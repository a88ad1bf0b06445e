//! The state says what must be done. It never does it.
//!
//! Never: a fact. Doing is the engine's, and what comes of it is an input.

use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::turn::Purpose;
use longhaul_core::id::{CallId, ToolName};
use longhaul_core::message::Message;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::Ask;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{Outcome, Wait};
use longhaul_core::time::Timestamp;

use crate::advance::aside::wants_look;
use crate::decide::decide;
use crate::input::{Input, Moment};
use crate::state::Run;
use crate::state::call::{Call, CallState};
use crate::state::stage::{Asking, Stage};

/// What must be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Look at the world and make the prompt.
    Perceive,
    /// Look at the world again, before the next turn.
    Look,
    /// Ask the model. Its start is durable.
    AskModel(Ask),
    /// Make these calls, or look after them. Their starts are durable.
    UseTools(Vec<Todo>),
    /// Sum up the older part of this conversation. Its start is durable.
    Compact(Ask),
    /// Let go, and wait for this: tell it to go on, and it does.
    Park(Wait),
    /// End with this: tell it to go on, and it does.
    Finish(Outcome),
    /// State what is due: tell it to go on.
    GoOn,
    /// Nothing: the run rests or has ended.
    Rest,
}

/// A call to be made or looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Todo {
    /// Which.
    pub call: CallId,
    /// Of which tool.
    pub tool: ToolName,
    /// With which arguments.
    pub input: RawJson,
    /// What it does to the world.
    pub class: EffectClass,
    /// Which start of it this is.
    pub attempt: u32,
    /// What to do.
    pub work: Work,
}

/// What is to be done about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Make it.
    Make,
    /// Find out whether it has happened.
    Verify,
}

/// What must be done now.
pub fn next(run: &Run, now: Timestamp) -> Step {
    let control = &run.control;
    if matches!(control.stage, Stage::Ended(_)) || control.rest.is_some() {
        return Step::Rest;
    }
    match &control.stage {
        Stage::Asking(asking) if asking.epoch == control.epoch => match asking.purpose {
            Purpose::Think => Step::AskModel(ask(run, asking)),
            Purpose::Compact => Step::Compact(ask(run, asking)),
        },
        Stage::Acting(acting) if control.is_busy() => Step::UseTools(todos(run, &acting.calls)),
        Stage::New if control.cancel.is_none() && control.pause.is_none() => {
            match control.missing {
                None => Step::Perceive,
                Some(_) => due(run, now),
            }
        }
        Stage::Acting(acting) => {
            let step = due(run, now);
            // Nothing to state and nothing under way: a tool must look.
            if step == Step::Rest {
                Step::UseTools(todos(run, &acting.calls))
            } else {
                step
            }
        }
        Stage::Thinking(thinking) => {
            let step = due(run, now);
            // Nothing to state: somebody must look before the model is asked.
            if step == Step::Rest && wants_look(control, thinking) {
                Step::Look
            } else {
                step
            }
        }
        Stage::New | Stage::Asking(_) | Stage::Concluding(_) => due(run, now),
        Stage::Ended(_) => Step::Rest,
    }
}

fn ask(run: &Run, asking: &Asking) -> Ask {
    Ask {
        run: run.id,
        turn: asking.turn,
        attempt: asking.attempt,
        model: asking.asks(run.transcript.model()).to_owned(),
        system: run.transcript.system().clone(),
        tools: run.transcript.tools().clone(),
        messages: Arc::clone(run.transcript.messages()),
        max_tokens: asking.max_tokens,
    }
}

fn todos(run: &Run, calls: &[Call]) -> Vec<Todo> {
    let todo = |call: &Call, work| Todo {
        call: call.id,
        tool: call.appraisal.tool.clone(),
        input: call.arguments().clone(),
        class: call.appraisal.class,
        attempt: call.starts,
        work,
    };
    let due = calls.iter().filter_map(|call| {
        let is_verified = matches!(call.state, CallState::Doubtful { look: true, .. });
        let work = match call.runs_under(run.control.epoch) {
            true => Work::Make,
            false if is_verified => Work::Verify,
            false => return None,
        };
        Some(todo(call, work))
    });
    due.collect()
}

/// What the facts that are due amount to.
fn due(run: &Run, now: Timestamp) -> Step {
    let Ok(batch) = decide(run, Input::GoOn, Moment::at(now)) else {
        return Step::Rest;
    };
    let Some(last) = batch.events.last() else {
        return Step::Rest;
    };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only ends and rests have steps of their own"
    )]
    match last {
        Event::RunWaiting(data) => Step::Park(data.wait.clone()),
        Event::RunBlocked(data) => Step::Park(Wait::Blocked(data.gate)),
        Event::RunCompleted(data) => Step::Finish(Outcome::Completed(data.output.clone())),
        Event::RunFailed(data) => Step::Finish(Outcome::Failed(data.fault.clone())),
        Event::RunCancelled(data) => Step::Finish(Outcome::Cancelled(data.reason.clone())),
        _ => Step::GoOn,
    }
}

/// Why a conversation may not be sent to a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message {place}: {why}")]
pub struct BadConversation {
    /// Which message, from 0.
    pub place: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// Checks what every provider demands: it begins with the user, and each call
/// has exactly one result, in order, right after the reply.
pub fn check_conversation(messages: &[Arc<Message>]) -> Result<(), BadConversation> {
    let mut open: Vec<&str> = Vec::new();
    let mut before: Option<&Message> = None;
    for (place, message) in messages.iter().enumerate() {
        let bad = |why| Err(BadConversation { place, why });
        match &**message {
            Message::Results(results) => {
                let ids: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
                let calls: Vec<u16> = results.iter().map(|result| result.call.index).collect();
                if open.is_empty() {
                    return bad("results without calls");
                }
                if ids != open || !calls.iter().copied().eq(1..=calls.len() as u16) {
                    return bad("the results are not those of the calls, in their order");
                }
                open.clear();
            }
            Message::User(_) | Message::Assistant(_) if !open.is_empty() => {
                return bad("a call without its result");
            }
            Message::Assistant(_) if before.is_none() => return bad("the model speaks first"),
            Message::Assistant(reply) => {
                open = reply.calls().map(|call| call.id.as_str()).collect();
            }
            Message::User(parts) if parts.is_empty() => return bad("an empty message"),
            Message::User(_) => {}
        }
        before = Some(message);
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err(BadConversation {
            place: messages.len(),
            why: "a call without its result",
        }),
    }
}
