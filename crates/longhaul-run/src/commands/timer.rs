//! Decides what happens when a timer is due.
//!
//! Invariant: a timer fires once, because its row is consumed in the same transaction. A timer of a
//! closed gate or of an ended run is consumed without further effect.

use longhaul_core::access::SYSTEM_PRINCIPAL;
use longhaul_core::change::{
    GateTransition, GateUpdate, JournalBatch, RowChange, RunSchedulingUpdate, TimerKind,
    TimerUpdate,
};
use longhaul_core::event::Event;
use longhaul_core::event::environment::TimerFired;
use longhaul_core::event::gate::{GateExpired, GateNotice};
use longhaul_core::event::run::{CancelCause, RunControlRequest};
use longhaul_core::id::{GateId, TimerId};
use longhaul_core::policy::gate::{Answer, GateDecision, GateRow, GateTimeoutAction};
use longhaul_core::port::records::DueTimer;

use crate::commands::answer::{current_gate_digest, decide_gate_answer, newest_edited_input};
use crate::context::DecisionContext;
use crate::policy::gate_timers::next_gate_reminder;

/// Returns the events and row changes for a timer that is due.
pub(super) fn decide_due_timer_effect(due_timer: &DueTimer, ctx: DecisionContext) -> JournalBatch {
    let spent = consume(due_timer.timer);
    let mut batch = JournalBatch { events: Vec::new(), changes: vec![spent] };
    if due_timer.run_ended {
        return batch;
    }
    batch.events.extend(cancel_request_of_timer(due_timer).map(Event::RunCancelRequested));
    match &due_timer.kind {
        TimerKind::Wake | TimerKind::Delay(_) | TimerKind::Start | TimerKind::BatchNext(_) => {
            batch.events.push(Event::TimerFired(TimerFired { timer: due_timer.timer }));
        }
        TimerKind::GateDeadline(gate) => {
            if let Some(row) = &due_timer.open_gate {
                let on_timeout = row.spec.on_timeout;
                let edited = newest_edited_input(row).cloned();
                let edited = edited.filter(|_| on_timeout == GateTimeoutAction::Approve);
                let expired = GateExpired { gate: *gate, on_timeout, edited };
                batch.events.push(Event::GateExpired(expired));
                let (seen_answers, transition) = (None, GateTransition::Expired);
                let update = GateUpdate { gate: *gate, seen_answers, transition };
                batch.changes.push(RowChange::UpdateGate(update));
            }
        }
        TimerKind::GateRemind(gate) => {
            if let Some(row) = &due_timer.open_gate {
                batch.events.push(gate_reminded_event(*gate, None));
                let times = (row.deadline, ctx.now);
                batch.changes.extend(next_gate_reminder(due_timer.run, &row.spec, times));
            }
        }
        TimerKind::GateAutoApprove(_) => {
            let approved = due_timer.open_gate.as_ref().and_then(|row| auto_approve_gate(row, ctx));
            let JournalBatch { events, changes } = approved.unwrap_or_default();
            batch.events.extend(events);
            batch.changes.extend(changes);
        }
        TimerKind::GateEscalate { gate, step } => {
            let step = due_timer.open_gate.as_ref().and_then(|row| row.spec.escalation.get(*step));
            batch.events.extend(step.map(|step| gate_reminded_event(*gate, Some(step.to.clone()))));
        }
        // The first four cancel the run. The report of a child's end needs its outcome; the sweeper
        // sends it as a command of its own.
        TimerKind::BatchStopped(_)
        | TimerKind::ParentEnded(_)
        | TimerKind::VerdictUnneeded(_)
        | TimerKind::LaneInterrupted(_)
        | TimerKind::ChildEnded(_) => {}
    }
    batch
}

/// Approves a gate without a person, and makes its parked run ready. `None` means that a person has
/// voted.
fn auto_approve_gate(row: &GateRow, ctx: DecisionContext) -> Option<JournalBatch> {
    let auto = row.spec.auto_approve.as_ref().filter(|_| row.answers.is_empty())?;
    let approval = Answer::new(GateDecision::Approve, auto.by.clone());
    let answer = Answer { digest: current_gate_digest(row), ..approval };
    let mut batch = decide_gate_answer(row, answer, None, ctx).ok()?;
    batch.changes.push(RowChange::UpdateScheduling(RunSchedulingUpdate::Release));
    Some(batch)
}

fn gate_reminded_event(gate: GateId, to: Option<String>) -> Event {
    Event::GateReminded(GateNotice { gate, reason: "no answer yet".to_owned(), to })
}

pub(super) const fn consume(timer: TimerId) -> RowChange {
    RowChange::SetTimer(TimerUpdate::Consume(timer))
}

/// Returns the request with which this due timer cancels its run. `None` means that the timer does
/// not cancel the run.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other timer cancels a run")]
pub fn cancel_request_of_timer(due_timer: &DueTimer) -> Option<RunControlRequest> {
    let (cause, reason) = match &due_timer.kind {
        _ if due_timer.run_ended => return None,
        TimerKind::BatchStopped(batch) => {
            (CancelCause::BatchStopped, format!("the run before it in {batch} did not complete"))
        }
        TimerKind::ParentEnded(parent) => {
            (CancelCause::ParentEnded, format!("its parent run {parent} has ended"))
        }
        TimerKind::VerdictUnneeded(parent) => {
            (CancelCause::ParentEnded, format!("its parent run {parent} does not need its verdict"))
        }
        TimerKind::LaneInterrupted(newer_run) => {
            (CancelCause::LaneInterrupted, format!("the newer run {newer_run} interrupted it"))
        }
        _ => return None,
    };
    Some(
        RunControlRequest { cause, ..RunControlRequest::from_principal(SYSTEM_PRINCIPAL) }
            .with_reason(reason),
    )
}
