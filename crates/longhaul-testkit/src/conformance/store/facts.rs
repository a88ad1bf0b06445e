//! Short words for facts and batches.
//!
//! Never: acts. A batch is a value until somebody appends it.

use longhaul_core::change::{
    Batch, Change, Due, GateClosing, GateEnd, HeadMove, SteerRow, SteerStatus, TimerKind, TimerMove,
};
use longhaul_core::event::Event;
use longhaul_core::event::gate::{GateAnswer, GateExpired, GateRaised};
use longhaul_core::event::run::{RunAsked, RunCancelled, RunCompleted, RunWaiting};
use longhaul_core::event::steer::{Delivery, SteerMessage};
use longhaul_core::event::world::{ProgressReported, TimerFired};
use longhaul_core::id::{GateId, RunId, SteerId, TimerId};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateSpec, OnTimeout, Scope};
use longhaul_core::status::{Output, Status, Wait};
use longhaul_core::time::Millis;

/// Adds changes to batches in a row.
pub trait And {
    /// The batch with one change more.
    #[must_use]
    fn and(self, change: Change) -> Self;
}

impl And for Batch {
    fn and(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}

/// A batch of facts.
pub fn says(events: impl IntoIterator<Item = Event>) -> Batch {
    Batch {
        events: events.into_iter().collect(),
        changes: Vec::new(),
    }
}

/// A batch of one change and no fact.
pub fn only(change: Change) -> Batch {
    Batch::default().and(change)
}

/// The batch that parks a run for this reason. Its fact waits for a worker,
/// whatever the reason: the store does not read it.
pub fn parks(reason: &'static str) -> Batch {
    let waiting = RunWaiting {
        wait: Wait::Worker,
        timer: None,
    };
    says([Event::RunWaiting(waiting)]).and(park_head(reason))
}

/// The change of the head that parks.
pub fn park_head(reason: &'static str) -> Change {
    Change::SetHead(HeadMove::Park {
        reason,
        blocked: false,
        release_lane: false,
    })
}

/// The batch that pauses a run.
pub fn pauses() -> Batch {
    says([Event::RunPaused(asked())]).and(Change::SetHead(HeadMove::Pause))
}

/// The batch with which a driver lets go in good order.
pub fn releases() -> Batch {
    says([progress(2)]).and(Change::SetHead(HeadMove::Release))
}

/// The batch that completes a run and frees its lane.
pub fn ends() -> Batch {
    let completed = RunCompleted {
        output: Output::default(),
    };
    let end = HeadMove::End {
        status: Status::Completed,
        code: None,
        frees_lane: true,
    };
    says([Event::RunCompleted(Box::new(completed))]).and(Change::SetHead(end))
}

/// The batch that cancels a run that nobody drives.
pub fn cancels() -> Batch {
    let cancelled = RunCancelled {
        reason: "not needed".to_owned(),
    };
    let end = HeadMove::End {
        status: Status::Cancelled,
        code: None,
        frees_lane: true,
    };
    says([Event::RunCancelled(cancelled)]).and(Change::SetHead(end))
}

/// A fact that only a driver states.
pub fn progress(percent: u8) -> Event {
    Event::ProgressReported(ProgressReported {
        percent,
        message: "on the way".to_owned(),
    })
}

/// Somebody wants a run to go on.
pub fn resumed() -> Event {
    Event::RunResumed(asked())
}

/// Somebody wants a run ended.
pub fn cancel_requested() -> Event {
    Event::RunCancelRequested(asked())
}

/// What somebody asked.
pub fn asked() -> RunAsked {
    RunAsked::by("cli:anna")
}

/// A gate that asks for one yes, for ever.
pub fn gate_spec(id: GateId) -> GateSpec {
    GateSpec::new(id, GateKind::Approval, "may I?")
}

/// The batch that raises a gate. Its driver goes on.
pub fn raises(spec: GateSpec) -> Batch {
    let raised = GateRaised { gate: spec.clone() };
    says([Event::GateRaised(Box::new(raised))]).and(Change::RaiseGate(Box::new(spec)))
}

/// The batch with which somebody settles a gate.
pub fn answers(gate: GateId, by: &str) -> Batch {
    let answer = yes(by);
    let fact = GateAnswer {
        gate,
        answer: answer.clone(),
    };
    says([Event::GateAnswered(fact)]).and(close_gate(gate, GateEnd::Answered(answer)))
}

/// The batch with which somebody says yes and more are needed.
pub fn votes(gate: GateId, by: &str) -> Batch {
    let answer = yes(by);
    let fact = GateAnswer {
        gate,
        answer: answer.clone(),
    };
    says([Event::GateVoted(fact)]).and(close_gate(gate, GateEnd::Voted(answer)))
}

/// The batch that tells a gate's end by time.
pub fn expires(gate: GateId) -> Batch {
    let fact = GateExpired {
        gate,
        on_timeout: OnTimeout::Reject,
    };
    says([Event::GateExpired(fact)]).and(close_gate(gate, GateEnd::Expired))
}

/// What becomes of a gate.
pub fn close_gate(gate: GateId, how: GateEnd) -> Change {
    Change::CloseGate(GateClosing { gate, how })
}

/// Somebody's yes.
pub fn yes(by: &str) -> Answer {
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
pub fn arms(timer: TimerId, run: RunId, after: Millis) -> Change {
    Change::SetTimer(TimerMove::Arm {
        timer,
        run,
        due: Due::After(after),
        what: TimerKind::Wake,
    })
}

/// The batch with which a sweep tells a run of a timer.
pub fn fires(timer: TimerId) -> Batch {
    says([Event::TimerFired(TimerFired { timer })]).and(spends(timer))
}

/// A timer has been told.
pub fn spends(timer: TimerId) -> Change {
    Change::SetTimer(TimerMove::Spend(timer))
}

/// The batch with which somebody writes to a run.
pub fn steers(steer: SteerId, text: &str) -> Batch {
    let by = "cli:anna".to_owned();
    let delivery = Delivery::AfterBatch;
    let fact = SteerMessage {
        steer,
        text: text.to_owned(),
        delivery,
        by: by.clone(),
    };
    let row = SteerRow {
        steer,
        text: text.to_owned(),
        delivery,
        by,
        status: SteerStatus::Queued,
    };
    says([Event::SteerQueued(fact)]).and(Change::QueueSteer(row))
}
