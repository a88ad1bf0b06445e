//! The run would end: is anything left to read, to ask, to wait for?
//!
//! Never: ends while a message waits. Closing an empty queue and ending is one
//! append, so no message is acknowledged to a run that has ended.

use longhaul_core::change::{Change, ThreadRow};
use longhaul_core::event::Event;
use longhaul_core::event::run::RunCompleted;
use longhaul_core::message::Message;
use longhaul_core::status::{Output, Status, Wait};

use crate::advance::close;
use crate::advance::gates::result_gate;
use crate::advance::go::Go;
use crate::advance::park::{park, park_until};
use crate::advance::steer::deliver;
use crate::draft::Draft;
use crate::refusal::Refusal;
use crate::state::stage::{Concluding, Stage};

pub(super) fn conclude(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    let Stage::Concluding(concluding) = &draft.control.stage else {
        return Ok(Go::On);
    };
    let concluding = concluding.clone();
    if let Some(gate) = concluding.gate {
        if draft.control.interrupts() {
            draft.withdraw(gate, "a person wrote")?;
            return Ok(Go::On);
        }
        return park(draft, Wait::Approval(vec![gate]));
    }
    if deliver(draft, |_| true)? {
        return Ok(Go::On);
    }
    if !concluding.agreed
        && let Some(policy) = draft.control.policy.result_gate.clone()
    {
        result_gate(draft, &policy)?;
        return Ok(Go::On);
    }
    if let Some(go) = keep_open(draft, &concluding)? {
        return Ok(go);
    }
    complete(draft, concluding.output)
}

/// Stays open for a message as long as the agent's file says.
fn keep_open(draft: &mut Draft<'_>, concluding: &Concluding) -> Result<Option<Go>, Refusal> {
    let Some(span) = draft
        .control
        .policy
        .keep_open
        .filter(|_| !concluding.finished)
    else {
        return Ok(None);
    };
    let (timer, until) = match concluding.sleep {
        Some(sleep) if sleep.fired => return Ok(None),
        Some(sleep) => (sleep.timer, sleep.until),
        None => {
            let until = draft.moment.now.plus(span);
            (draft.wake_after("message", span), until)
        }
    };
    park_until(draft, Wait::Message(until), timer).map(Some)
}

fn complete(draft: &mut Draft<'_>, output: Output) -> Result<Go, Refusal> {
    if let Some(thread) = draft.run.task.thread.clone() {
        let asked = draft.run.transcript.asked().cloned();
        let messages = asked
            .into_iter()
            .chain([Message::assistant(output.text.as_str())])
            .collect();
        draft.change(Change::AppendThread(ThreadRow { thread, messages }));
    }
    draft.record(Event::RunCompleted(Box::new(RunCompleted { output })))?;
    close::end(draft, Status::Completed, None);
    Ok(Go::Stop)
}
