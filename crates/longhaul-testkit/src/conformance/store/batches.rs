//! Constructors for events and batches of the checks.

use longhaul_core::change::{
    GateTransition, GateUpdate, JournalBatch, RowChange, RunSchedulingUpdate, SandboxRow,
    SandboxState, SteerRow, SteerStatus, TimerDueTime, TimerKind, TimerUpdate,
};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{ProgressReported, SandboxEvent, TimerFired};
use longhaul_core::event::gate::{GateAnswer, GateExpired, GateRaised};
use longhaul_core::event::run::{RunCancelled, RunCompleted, RunControlRequest, RunWaiting};
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::id::{GateId, RunId, SandboxId, SteerId, TimerId};
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateSpec, GateTimeoutAction,
};
use longhaul_core::status::{RunOutput, Status};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::wait::WaitReason;

/// Adds changes to a batch in a chain of calls.
pub trait BatchExt {
    /// Adds one change to the batch.
    #[must_use]
    fn with_change(self, change: RowChange) -> Self;
}

impl BatchExt for JournalBatch {
    fn with_change(mut self, change: RowChange) -> Self {
        self.changes.push(change);
        self
    }
}

pub fn events_batch(events: impl IntoIterator<Item = Event>) -> JournalBatch {
    JournalBatch { events: events.into_iter().collect(), changes: Vec::new() }
}

/// Returns a batch of one change and no event.
pub fn change_batch(change: RowChange) -> JournalBatch {
    JournalBatch::default().with_change(change)
}

/// Returns the batch that parks a run for this reason. Its event always waits for a worker,
/// because the store does not read it.
pub fn park_batch(reason: &'static str) -> JournalBatch {
    let waiting = RunWaiting { wait: WaitReason::Worker, timer: None };
    events_batch([Event::RunWaiting(waiting)]).with_change(park_head(reason))
}

/// Returns the head update that parks a run.
pub fn park_head(reason: &'static str) -> RowChange {
    RowChange::UpdateScheduling(RunSchedulingUpdate::Park {
        reason,
        blocked: false,
        release_lane: false,
    })
}

/// Returns the batch that pauses a run.
pub fn pause_batch() -> JournalBatch {
    events_batch([Event::RunPaused(run_request())])
        .with_change(RowChange::UpdateScheduling(RunSchedulingUpdate::Pause))
}

/// Returns the batch with which a driver releases a run.
pub fn release_batch() -> JournalBatch {
    events_batch([progress(2)])
        .with_change(RowChange::UpdateScheduling(RunSchedulingUpdate::Release))
}

/// Returns the batch that completes a run and releases its lane.
pub fn end_batch() -> JournalBatch {
    let completed = RunCompleted { output: RunOutput::default(), closed_by: None };
    let end =
        RunSchedulingUpdate::End { status: Status::Completed, code: None, releases_lane: true };
    events_batch([Event::RunCompleted(Box::new(completed))])
        .with_change(RowChange::UpdateScheduling(end))
}

/// Returns the batch that cancels a run without a driver.
pub fn cancel_batch() -> JournalBatch {
    let cancelled = RunCancelled { reason: "not needed".to_owned(), output: None };
    let end =
        RunSchedulingUpdate::End { status: Status::Cancelled, code: None, releases_lane: true };
    events_batch([Event::RunCancelled(cancelled)]).with_change(RowChange::UpdateScheduling(end))
}

/// Returns an event that only a driver may append.
pub fn progress(percent: u8) -> Event {
    Event::ProgressReported(ProgressReported { percent, message: "on the way".to_owned() })
}

/// Returns the event that resumes a run.
pub fn resumed() -> Event {
    Event::RunResumed(run_request())
}

pub fn cancel_requested() -> Event {
    Event::RunCancelRequested(run_request())
}

/// Returns the data of a request to a run.
pub fn run_request() -> RunControlRequest {
    RunControlRequest::from_principal("cli:anna")
}

/// Returns a gate that needs one approval and has no deadline.
pub fn gate_spec(id: GateId) -> GateSpec {
    GateSpec::new(id, GateKind::Approval, "may I?")
}

/// Returns the batch that raises a gate. The run continues.
pub fn raise_gate_batch(spec: GateSpec) -> JournalBatch {
    let raised = GateRaised { gate: spec.clone() };
    events_batch([Event::GateRaised(Box::new(raised))])
        .with_change(RowChange::RaiseGate(Box::new(spec)))
}

/// Returns the batch that answers and closes a gate.
pub fn answer_batch(gate: GateId, by: &str) -> JournalBatch {
    let answer = approval(by);
    let gate_answer = GateAnswer { gate, answer: answer.clone(), edit: None };
    events_batch([Event::GateAnswered(gate_answer)])
        .with_change(close_gate(gate, GateTransition::Answered(answer)))
}

/// Returns the batch that adds a vote to a gate that needs more.
pub fn vote_batch(gate: GateId, by: &str) -> JournalBatch {
    let answer = approval(by);
    let vote = GateAnswer { gate, answer: answer.clone(), edit: None };
    events_batch([Event::GateVoted(vote)])
        .with_change(close_gate(gate, GateTransition::Voted(answer)))
}

pub fn expire_batch(gate: GateId) -> JournalBatch {
    let expired = GateExpired { gate, on_timeout: GateTimeoutAction::Reject, edited: None };
    events_batch([Event::GateExpired(expired)])
        .with_change(close_gate(gate, GateTransition::Expired))
}

/// Returns the change that closes or updates a gate.
pub fn close_gate(gate: GateId, transition: GateTransition) -> RowChange {
    RowChange::UpdateGate(GateUpdate { gate, seen_answers: None, transition })
}

pub fn approval(by: &str) -> Answer {
    Answer {
        decision: GateDecision::Approve,
        by: by.to_owned(),
        scope: AnswerScope::Once,
        note: None,
        payload: None,
        digest: None,
    }
}

/// Returns the change that arms a timer of a run after a delay.
pub fn arm_timer(timer: TimerId, run: RunId, after: Millis) -> RowChange {
    RowChange::SetTimer(TimerUpdate::Arm {
        timer,
        run,
        due: TimerDueTime::After(after),
        kind: TimerKind::Wake,
    })
}

/// Returns the batch with which a sweep fires a timer.
pub fn fire_timer_batch(timer: TimerId) -> JournalBatch {
    events_batch([Event::TimerFired(TimerFired { timer })]).with_change(spend_timer(timer))
}

/// Returns the change that consumes a timer.
pub fn spend_timer(timer: TimerId) -> RowChange {
    RowChange::SetTimer(TimerUpdate::Consume(timer))
}

/// Returns the batch that sends a message to a run.
pub fn steer_batch(steer: SteerId, text: &str) -> JournalBatch {
    let by = "cli:anna".to_owned();
    let delivery = SteerDelivery::AfterBatch;
    let message =
        SteerMessage { steer, text: text.to_owned(), delivery, by: by.clone(), is_task: false };
    let row = SteerRow { steer, text: text.to_owned(), delivery, by, status: SteerStatus::Queued };
    events_batch([Event::SteerQueued(message)]).with_change(RowChange::QueueSteer(row))
}

/// Returns the row of a sandbox of the provider `local`.
pub fn sandbox_row(sandbox: SandboxId, state: SandboxState, owner: RunId) -> SandboxRow {
    let event = SandboxEvent {
        sandbox,
        provider: "local".to_owned(),
        handle: "box-1".to_owned(),
        ..SandboxEvent::default()
    };
    let since = Timestamp::default();
    SandboxRow { event, state, since, idle_since: None, owner, owner_ended: false }
}
