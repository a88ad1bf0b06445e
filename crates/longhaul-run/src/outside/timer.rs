//! A timer is due: what it tells its run.
//!
//! Never: told twice. The timer's row is spent in the same transaction, and a
//! timer of a gate that is closed, or of a run that has ended, is only spent.

use longhaul_core::change::{Batch, Change, GateClosing, GateEnd, TimerKind, TimerMove};
use longhaul_core::event::Event;
use longhaul_core::event::gate::{GateClosed, GateExpired};
use longhaul_core::event::world::TimerFired;
use longhaul_core::id::TimerId;
use longhaul_core::port::shelves::DueTimer;

/// The batch of a due timer.
pub(super) fn due(due: &DueTimer) -> Batch {
    let spent = spend(due.timer);
    let mut batch = Batch {
        events: Vec::new(),
        changes: vec![spent],
    };
    if due.ended {
        return batch;
    }
    match &due.what {
        TimerKind::Wake | TimerKind::Start | TimerKind::BatchTurn(_) => {
            batch
                .events
                .push(Event::TimerFired(TimerFired { timer: due.timer }));
        }
        TimerKind::GateDeadline(gate) => {
            if let Some(on_timeout) = due.gate {
                batch.events.push(Event::GateExpired(GateExpired {
                    gate: *gate,
                    on_timeout,
                }));
                let closing = GateClosing {
                    gate: *gate,
                    how: GateEnd::Expired,
                };
                batch.changes.push(Change::CloseGate(closing));
            }
        }
        TimerKind::GateRemind(gate) => {
            if due.gate.is_some() {
                let why = "nobody has answered yet".to_owned();
                batch
                    .events
                    .push(Event::GateReminded(GateClosed { gate: *gate, why }));
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
pub(super) const fn spend(timer: TimerId) -> Change {
    Change::SetTimer(TimerMove::Spend(timer))
}

/// Why this timer ends its run, if it does.
pub(super) fn ends(due: &DueTimer) -> Option<String> {
    match &due.what {
        _ if due.ended => None,
        TimerKind::BatchStopped(batch) => Some(format!("{batch} was stopped by a failure")),
        TimerKind::ParentCancelled(parent) => {
            Some(format!("{parent}, which asked for it, was cancelled"))
        }
        TimerKind::Wake
        | TimerKind::Start
        | TimerKind::BatchTurn(_)
        | TimerKind::GateDeadline(_)
        | TimerKind::GateRemind(_)
        | TimerKind::ChildEnded(_) => None,
    }
}

/// The same batch, with the timer spent.
pub(super) fn spent_with(due: &DueTimer, mut batch: Batch) -> Batch {
    batch.changes.push(spend(due.timer));
    batch
}
