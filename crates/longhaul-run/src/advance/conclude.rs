//! The run would end: is anything left to read, to ask, to wait for?
//!
//! Never: ends while a message waits. Closing an empty queue and ending is one
//! append, so no message is acknowledged to a run that has ended.

use std::ops::ControlFlow;

use longhaul_core::change::{Change, ThreadMessages};
use longhaul_core::event::Event;
use longhaul_core::event::run::RunCompleted;
use longhaul_core::message::Message;
use longhaul_core::status::{Output, Status, Wait};

use crate::advance::finish;
use crate::advance::gates::raise_result_gate;
use crate::advance::park::{park, park_until};
use crate::advance::steer::deliver;
use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::state::stage::{Concluding, Stage};

pub(super) fn conclude(draft: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    let Stage::Concluding(concluding) = &draft.control.stage else {
        return Ok(ControlFlow::Continue(()));
    };
    let concluding = concluding.clone();
    if let Some(gate) = concluding.gate {
        if draft.control.has_interrupting_steer() {
            draft.withdraw(gate, "a person wrote")?;
            return Ok(ControlFlow::Continue(()));
        }
        return park(draft, Wait::Approval(vec![gate]));
    }
    if deliver(draft, |_| true)? {
        return Ok(ControlFlow::Continue(()));
    }
    if !concluding.approved
        && let Some(policy) = draft.control.policy.result_gate.clone()
    {
        raise_result_gate(draft, &policy)?;
        return Ok(ControlFlow::Continue(()));
    }
    if let Some(go) = keep_open(draft, &concluding)? {
        return Ok(go);
    }
    complete(draft, concluding.output)
}

/// Stays open for a message as long as the agent's file says.
fn keep_open(
    draft: &mut DecisionBuilder<'_>,
    concluding: &Concluding,
) -> Result<Option<ControlFlow<()>>, Rejection> {
    let Some(span) = draft.control.policy.keep_open.filter(|_| !concluding.by_finish_tool) else {
        return Ok(None);
    };
    let (timer, until) = match concluding.pending_timer {
        Some(sleep) if sleep.fired => return Ok(None),
        Some(sleep) => (sleep.timer, sleep.until),
        None => {
            let until = draft.ctx.now.plus(span);
            (draft.wake_after("message", span), until)
        }
    };
    park_until(draft, Wait::Message(until), timer).map(Some)
}

fn complete(draft: &mut DecisionBuilder<'_>, output: Output) -> Result<ControlFlow<()>, Rejection> {
    if let Some(thread) = draft.run.task.thread.clone() {
        let asked = draft.run.transcript.task_message().cloned();
        let messages =
            asked.into_iter().chain([Message::assistant(output.text.as_str())]).collect();
        draft.change(Change::AppendThread(ThreadMessages { thread, messages }));
    }
    draft.record(Event::RunCompleted(Box::new(RunCompleted { output })))?;
    finish::end(draft, Status::Completed, None);
    Ok(ControlFlow::Break(()))
}
