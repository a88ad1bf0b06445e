//! Gates that a program raises and completes. The run goes on, but it can't end while such a gate is
//! open. The answer reaches the model as a message.

use longhaul_core::change::{Batch, Change};
use longhaul_core::event::Event;
use longhaul_core::event::gate::GateRaised;
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::policy::gate::{Answer, GateDecision, GateSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;

use crate::commands::steer;
use crate::context::DecideContext;
use crate::policy::gate_timers::gate_timers;
use crate::rejection::Rejection;

/// Returns the events and row changes that raise a gate from outside the run.
pub(super) fn raise_signal_gate(run: RunId, gate: GateSpec, ctx: DecideContext) -> Batch {
    let mut changes = gate_timers(run, &gate, ctx.now);
    let raised = GateRaised { gate: gate.clone() };
    changes.push(Change::RaiseGate(Box::new(gate)));
    Batch { events: vec![Event::GateRaised(Box::new(raised))], changes }
}

/// Adds the message that tells the model how a gate of a program was answered.
pub(super) fn add_answer_message(
    gate: &GateSpec,
    answer: &Answer,
    batch: &mut Batch,
) -> Result<(), Rejection> {
    let ask = &gate.ask;
    let result = match &answer.decision {
        GateDecision::Answer(text) => format!("{ask}: {text}"),
        GateDecision::Reject => format!("This will not happen: {ask}"),
        GateDecision::Approve | GateDecision::Edit(_) | GateDecision::Complete => {
            format!("This has happened: {ask}")
        }
    };
    let payload = answer.payload.as_ref().map(RawJson::as_str);
    let texts = [Some(result.as_str()), answer.note.as_deref(), payload];
    let text = texts.into_iter().flatten().collect::<Vec<_>>().join("\n\n");
    add_message(gate, (text, answer.by.clone()), batch)
}

/// Adds the message that tells the model that nobody answered a gate of a program in time.
pub(super) fn add_expiry_message(gate: &GateSpec, batch: &mut Batch) {
    let text = format!("This has not happened before the deadline: {}", gate.ask);
    // The text of a gate is shorter than the longest message, so it is never rejected.
    _ = add_message(gate, (text, "longhaul".to_owned()), batch);
}

/// Adds a message that is delivered when the run would end. It never answers a question.
fn add_message(
    gate: &GateSpec,
    (text, by): (String, String),
    batch: &mut Batch,
) -> Result<(), Rejection> {
    let steer = SteerId::derive(gate.id.bits(), "signal", Timestamp::default());
    let delivery = SteerDelivery::FollowUp;
    let message = SteerMessage { steer, text, delivery, by, is_task: false };
    let queued = steer::queue_steer(message)?;
    batch.events.extend(queued.events);
    batch.changes.extend(queued.changes);
    Ok(())
}
