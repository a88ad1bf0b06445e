//! Raises a gate for an event that a program will report. The run continues, but it can't end while
//! the gate is open.

use longhaul_core::change::{JournalBatch, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::gate::GateRaised;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateSpec;

use crate::context::DecisionContext;
use crate::policy::gate_timers::new_gate_timer_rows;

/// Returns the events and row changes that raise a gate from outside the run.
pub(super) fn raise_signal_gate(run: RunId, gate: GateSpec, ctx: &DecisionContext) -> JournalBatch {
    let mut changes = new_gate_timer_rows(run, &gate, ctx.now);
    let raised = GateRaised { gate: gate.clone() };
    changes.push(RowChange::RaiseGate(Box::new(gate)));
    JournalBatch { events: vec![Event::GateRaised(Box::new(raised))], changes }
}
