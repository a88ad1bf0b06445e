//! The state says what must be done. It never does it.
//!
//! Never: a fact. Doing is the engine's, and what comes of it is an input.

use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::id::{CallId, ToolName};
use longhaul_core::message::Message;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{Outcome, Wait};
use longhaul_core::time::Timestamp;

use crate::advance::runtime_message::needs_perception_refresh;
use crate::decide::decide;
use crate::input::{DecideContext, Input};
use crate::state::Run;
use crate::state::call::{Call, CallState};
use crate::state::stage::{ModelRunning, Stage};

/// What must be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Look at the world and make the prompt.
    Prepare,
    /// Look at the world again, before the next turn.
    RefreshPerception,
    /// Ask the model. Its start is durable.
    AskModel(ModelRequest),
    /// Make these calls, or look after them. Their starts are durable.
    UseTools(Vec<CallTask>),
    /// Sum up the older part of this conversation. Its start is durable.
    Compact(ModelRequest),
    /// Let go, and wait for this: tell it to go on, and it does.
    Park(Wait),
    /// End with this: tell it to go on, and it does.
    Finish(Outcome),
    /// State what is due: tell it to go on.
    Advance,
    /// Nothing: the run rests or has ended.
    Idle,
}

/// A call to be made or looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTask {
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
    pub action: CallAction,
}

/// What is to be done about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAction {
    /// Make it.
    Run,
    /// Find out whether it has happened.
    Verify,
}

/// What must be done now.
pub fn next(run: &Run, now: Timestamp) -> Step {
    let control = &run.control;
    if matches!(control.stage, Stage::Ended(_)) || control.idle.is_some() {
        return Step::Idle;
    }
    match &control.stage {
        Stage::ModelRunning(asking) if asking.epoch == control.epoch => match asking.purpose {
            ModelCallPurpose::Turn => Step::AskModel(model_request(run, asking)),
            ModelCallPurpose::Compact => Step::Compact(model_request(run, asking)),
        },
        Stage::ToolsRunning(acting) if control.is_busy() => {
            Step::UseTools(call_tasks(run, &acting.calls))
        }
        Stage::New if control.cancel.is_none() && control.pause.is_none() => {
            match control.blocked_on {
                None => Step::Prepare,
                Some(_) => due_step(run, now),
            }
        }
        Stage::ToolsRunning(acting) => {
            let step = due_step(run, now);
            // Nothing to state and nothing under way: a tool must look.
            if step == Step::Idle { Step::UseTools(call_tasks(run, &acting.calls)) } else { step }
        }
        Stage::ModelPending(thinking) => {
            let step = due_step(run, now);
            // Nothing to state: somebody must look before the model is asked.
            if step == Step::Idle && needs_perception_refresh(control, thinking) {
                Step::RefreshPerception
            } else {
                step
            }
        }
        Stage::New | Stage::ModelRunning(_) | Stage::Concluding(_) => due_step(run, now),
        Stage::Ended(_) => Step::Idle,
    }
}

fn model_request(run: &Run, asking: &ModelRunning) -> ModelRequest {
    ModelRequest {
        run: run.id,
        turn: asking.turn,
        attempt: asking.attempt,
        model: asking.model_or(run.transcript.model()).to_owned(),
        system: run.transcript.system().clone(),
        tools: run.transcript.tools().clone(),
        messages: Arc::clone(run.transcript.messages()),
        max_tokens: asking.max_tokens,
    }
}

fn call_tasks(run: &Run, calls: &[Call]) -> Vec<CallTask> {
    let todo = |call: &Call, work| CallTask {
        call: call.id,
        tool: call.classification.tool.clone(),
        input: call.arguments().clone(),
        class: call.classification.class,
        attempt: call.starts,
        action: work,
    };
    let due = calls.iter().filter_map(|call| {
        let is_verified = matches!(call.state, CallState::InDoubt { can_verify: true, .. });
        let work = match call.is_running_in(run.control.epoch) {
            true => CallAction::Run,
            false if is_verified => CallAction::Verify,
            false => return None,
        };
        Some(todo(call, work))
    });
    due.collect()
}

/// What the facts that are due amount to.
fn due_step(run: &Run, now: Timestamp) -> Step {
    let Ok(batch) = decide(run, Input::Advance, DecideContext::new(now)) else {
        return Step::Idle;
    };
    let Some(last) = batch.events.last() else {
        return Step::Idle;
    };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only ends and rests have steps of their own"
    )]
    match last {
        Event::RunWaiting(data) => Step::Park(data.wait.clone()),
        Event::RunBlocked(data) => Step::Park(Wait::Blocked(data.gate)),
        Event::RunCompleted(data) => Step::Finish(Outcome::Completed(data.output.clone())),
        Event::RunFailed(data) => Step::Finish(Outcome::Failed(data.error.clone())),
        Event::RunCancelled(data) => Step::Finish(Outcome::Cancelled(data.reason.clone())),
        _ => Step::Advance,
    }
}

/// Why a conversation may not be sent to a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message {index}: {why}")]
pub struct ConversationError {
    /// Which message, from 0.
    pub index: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// Checks what every provider demands: it begins with the user, and each call
/// has exactly one result, in order, right after the reply.
pub fn check_conversation(messages: &[Arc<Message>]) -> Result<(), ConversationError> {
    let mut open: Vec<&str> = Vec::new();
    let mut before: Option<&Message> = None;
    for (place, message) in messages.iter().enumerate() {
        let bad = |why| Err(ConversationError { index: place, why });
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
        false => Err(ConversationError { index: messages.len(), why: "a call without its result" }),
    }
}
