//! A timer is due: what it tells its run.
//!
//! Never: told twice. The timer's row is spent in the same transaction, and a
//! timer of a gate that is closed, or of a run that has ended, is only spent.

use longhaul_core::change::{Batch, Change, GateTransition, GateUpdate, TimerKind, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::TimerFired;
use longhaul_core::event::gate::{GateExpired, GateNotice};
use longhaul_core::id::TimerId;
use longhaul_core::port::records::DueTimer;

/// The batch of a due timer.
pub(super) fn timer_batch(due: &DueTimer) -> Batch {
    let spent = consume_timer(due.timer);
    let mut batch = Batch { events: Vec::new(), changes: vec![spent] };
    if due.run_ended {
        return batch;
    }
    match &due.kind {
        TimerKind::Wake | TimerKind::Start | TimerKind::BatchNext(_) => {
            batch.events.push(Event::TimerFired(TimerFired { timer: due.timer }));
        }
        TimerKind::GateDeadline(gate) => {
            if let Some(on_timeout) = due.gate_on_timeout {
                batch.events.push(Event::GateExpired(GateExpired { gate: *gate, on_timeout }));
                let closing = GateUpdate { gate: *gate, transition: GateTransition::Expired };
                batch.changes.push(Change::UpdateGate(closing));
            }
        }
        TimerKind::GateRemind(gate) => {
            if due.gate_on_timeout.is_some() {
                let why = "nobody has answered yet".to_owned();
                batch.events.push(Event::GateReminded(GateNotice { gate: *gate, reason: why }));
            }
        }
        // What ends a run is told as a cancel.
        TimerKind::BatchStopped(_) | TimerKind::ParentCancelled(_) => {}
        // The news needs the child's outcome; whoever sweeps brings it as a word of its own.
        TimerKind::ChildEnded(_) => {}
    }
    batch
}

/// The row of a timer that has been told.
pub(super) const fn consume_timer(timer: TimerId) -> Change {
    Change::SetTimer(TimerUpdate::Consume(timer))
}

/// Why this timer ends its run, if it does.
pub(super) fn cancel_reason(due: &DueTimer) -> Option<String> {
    match &due.kind {
        _ if due.run_ended => None,
        TimerKind::BatchStopped(batch) => Some(format!("{batch} was stopped by a failure")),
        TimerKind::ParentCancelled(parent) => {
            Some(format!("{parent}, which asked for it, was cancelled"))
        }
        TimerKind::Wake
        | TimerKind::Start
        | TimerKind::BatchNext(_)
        | TimerKind::GateDeadline(_)
        | TimerKind::GateRemind(_)
        | TimerKind::ChildEnded(_) => None,
    }
}

/// The same batch, with the timer spent.
pub(super) fn with_timer_consumed(due: &DueTimer, mut batch: Batch) -> Batch {
    batch.changes.push(consume_timer(due.timer));
    batch
}
