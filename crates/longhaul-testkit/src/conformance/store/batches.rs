//! Short words for facts and batches.
//!
//! Never: acts. A batch is a value until somebody appends it.

use longhaul_core::change::{
    Batch, Change, Due, GateTransition, GateUpdate, HeadUpdate, SteerRow, SteerStatus, TimerKind,
    TimerUpdate,
};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{ProgressReported, TimerFired};
use longhaul_core::event::gate::{GateAnswer, GateExpired, GateRaised};
use longhaul_core::event::run::{RunCancelled, RunCompleted, RunControlRequest, RunWaiting};
use longhaul_core::event::steer::{Delivery, SteerMessage};
use longhaul_core::id::{GateId, RunId, SteerId, TimerId};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateSpec, OnTimeout, Scope};
use longhaul_core::status::{Output, Status, Wait};
use longhaul_core::time::Millis;

/// Adds changes to batches in a row.
pub trait BatchExt {
    /// The batch with one change more.
    #[must_use]
    fn with_change(self, change: Change) -> Self;
}

impl BatchExt for Batch {
    fn with_change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}

/// A batch of facts.
pub fn events_batch(events: impl IntoIterator<Item = Event>) -> Batch {
    Batch { events: events.into_iter().collect(), changes: Vec::new() }
}

/// A batch of one change and no fact.
pub fn change_batch(change: Change) -> Batch {
    Batch::default().with_change(change)
}

/// The batch that parks a run for this reason. Its fact waits for a worker,
/// whatever the reason: the store does not read it.
pub fn park_batch(reason: &'static str) -> Batch {
    let waiting = RunWaiting { wait: Wait::Worker, timer: None };
    events_batch([Event::RunWaiting(waiting)]).with_change(park_head(reason))
}

/// The change of the head that parks.
pub fn park_head(reason: &'static str) -> Change {
    Change::SetHead(HeadUpdate::Park { reason, blocked: false, release_lane: false })
}

/// The batch that pauses a run.
pub fn pause_batch() -> Batch {
    events_batch([Event::RunPaused(run_request())]).with_change(Change::SetHead(HeadUpdate::Pause))
}

/// The batch with which a driver lets go in good order.
pub fn release_batch() -> Batch {
    events_batch([progress(2)]).with_change(Change::SetHead(HeadUpdate::Release))
}

/// The batch that completes a run and frees its lane.
pub fn end_batch() -> Batch {
    let completed = RunCompleted { output: Output::default() };
    let end = HeadUpdate::End { status: Status::Completed, code: None, releases_lane: true };
    events_batch([Event::RunCompleted(Box::new(completed))]).with_change(Change::SetHead(end))
}

/// The batch that cancels a run that nobody drives.
pub fn cancel_batch() -> Batch {
    let cancelled = RunCancelled { reason: "not needed".to_owned() };
    let end = HeadUpdate::End { status: Status::Cancelled, code: None, releases_lane: true };
    events_batch([Event::RunCancelled(cancelled)]).with_change(Change::SetHead(end))
}

/// A fact that only a driver states.
pub fn progress(percent: u8) -> Event {
    Event::ProgressReported(ProgressReported { percent, message: "on the way".to_owned() })
}

/// Somebody wants a run to go on.
pub fn resumed() -> Event {
    Event::RunResumed(run_request())
}

/// Somebody wants a run ended.
pub fn cancel_requested() -> Event {
    Event::RunCancelRequested(run_request())
}

/// What somebody asked.
pub fn run_request() -> RunControlRequest {
    RunControlRequest::by("cli:anna")
}

/// A gate that asks for one yes, for ever.
pub fn gate_spec(id: GateId) -> GateSpec {
    GateSpec::new(id, GateKind::Approval, "may I?")
}

/// The batch that raises a gate. Its driver goes on.
pub fn raise_gate_batch(spec: GateSpec) -> Batch {
    let raised = GateRaised { gate: spec.clone() };
    events_batch([Event::GateRaised(Box::new(raised))])
        .with_change(Change::RaiseGate(Box::new(spec)))
}

/// The batch with which somebody settles a gate.
pub fn answer_batch(gate: GateId, by: &str) -> Batch {
    let answer = approval(by);
    let fact = GateAnswer { gate, answer: answer.clone() };
    events_batch([Event::GateAnswered(fact)])
        .with_change(close_gate(gate, GateTransition::Answered(answer)))
}

/// The batch with which somebody says yes and more are needed.
pub fn vote_batch(gate: GateId, by: &str) -> Batch {
    let answer = approval(by);
    let fact = GateAnswer { gate, answer: answer.clone() };
    events_batch([Event::GateVoted(fact)])
        .with_change(close_gate(gate, GateTransition::Voted(answer)))
}

/// The batch that tells a gate's end by time.
pub fn expire_batch(gate: GateId) -> Batch {
    let fact = GateExpired { gate, on_timeout: OnTimeout::Reject };
    events_batch([Event::GateExpired(fact)]).with_change(close_gate(gate, GateTransition::Expired))
}

/// What becomes of a gate.
pub fn close_gate(gate: GateId, how: GateTransition) -> Change {
    Change::UpdateGate(GateUpdate { gate, transition: how })
}

/// Somebody's yes.
pub fn approval(by: &str) -> Answer {
    Answer {
        decision: Decision::Approve,
        by: by.to_owned(),
        scope: Scope::Once,
        note: None,
        payload: None,
        digest: None,
    }
}

/// A timer for a run that is due after a span.
pub fn arm_timer(timer: TimerId, run: RunId, after: Millis) -> Change {
    Change::SetTimer(TimerUpdate::Arm { timer, run, due: Due::After(after), kind: TimerKind::Wake })
}

/// The batch with which a sweep tells a run of a timer.
pub fn fire_timer_batch(timer: TimerId) -> Batch {
    events_batch([Event::TimerFired(TimerFired { timer })]).with_change(spend_timer(timer))
}

/// A timer has been told.
pub fn spend_timer(timer: TimerId) -> Change {
    Change::SetTimer(TimerUpdate::Consume(timer))
}

/// The batch with which somebody writes to a run.
pub fn steer_batch(steer: SteerId, text: &str) -> Batch {
    let by = "cli:anna".to_owned();
    let delivery = Delivery::AfterBatch;
    let fact = SteerMessage { steer, text: text.to_owned(), delivery, by: by.clone() };
    let row = SteerRow { steer, text: text.to_owned(), delivery, by, status: SteerStatus::Queued };
    events_batch([Event::SteerQueued(fact)]).with_change(Change::QueueSteer(row))
}
