//! Timers of a gate: its deadline, its reminders, the steps of its escalation and its approval
//! without a person.

use longhaul_core::change::{RowChange, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::id::{RunId, TimerId};
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::time::{Millis, Timestamp};

/// Returns the row changes that set the timers of a new gate.
pub(crate) fn new_gate_timer_rows(run: RunId, gate: &GateSpec, now: Timestamp) -> Vec<RowChange> {
    let deadline = gate.timeout.map(|after| (after, TimerKind::GateDeadline(gate.id), "deadline"));
    let remind = gate.remind.map(|after| (after, TimerKind::GateRemind(gate.id), "remind"));
    let auto = gate.auto_approve.as_ref();
    let auto = auto.map(|auto| (auto.after, TimerKind::GateAutoApprove(gate.id), "auto_approve"));
    let new_timer = |(after, kind, name): (Millis, TimerKind, &str)| {
        set_gate_timer(run, TimerId::derive(gate.id.bits(), name, now), (after, kind))
    };
    let steps = gate.escalation.iter().enumerate().map(|(step, escalation)| {
        let timer = TimerId::derive(gate.id.bits(), &format!("escalation:{step}"), now);
        set_gate_timer(
            run,
            timer,
            (escalation.after, TimerKind::GateEscalate { gate: gate.id, step }),
        )
    });
    [deadline, remind, auto].into_iter().flatten().map(new_timer).chain(steps).collect()
}

/// Returns the row change that sets the next reminder of a gate. `None` means that the gate has no
/// reminders or expires before the next one.
pub(crate) fn next_gate_reminder(
    run: RunId,
    gate: &GateSpec,
    (deadline, now): (Option<Timestamp>, Timestamp),
) -> Option<RowChange> {
    let after = gate.remind?;
    if deadline.is_some_and(|deadline| now.plus(after) >= deadline) {
        return None;
    }
    let timer = TimerId::derive(gate.id.bits(), "remind", now);
    Some(set_gate_timer(run, timer, (after, TimerKind::GateRemind(gate.id))))
}

const fn set_gate_timer(
    run: RunId,
    timer: TimerId,
    (after, kind): (Millis, TimerKind),
) -> RowChange {
    let due = TimerDueTime::After(after);
    RowChange::SetTimer(TimerUpdate::Arm { timer, run, due, kind })
}
