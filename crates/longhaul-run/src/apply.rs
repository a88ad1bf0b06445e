//! A fact becomes state.
//!
//! Never: decides, and never skips. A fact that does not fit is an error, because
//! nothing that we write is like that; facts from outside fit in every open state.

mod environment;
mod gate;
mod run;
mod steer;
mod tool;
mod turn;

use longhaul_core::event::{Event, WakeTarget};
use longhaul_core::failure::FailureClass;
use longhaul_core::message::Message;
use longhaul_core::status::Wait;

use crate::state::call::{Call, CallState};
use crate::state::control::{Control, Idle};
use crate::state::stage::{Concluding, ModelPending, Stage};

/// What a fact adds to the conversation, or why it does not fit.
pub(crate) type ApplyResult = Result<Vec<Message>, &'static str>;

/// Nothing is said.
const NO_MESSAGES: ApplyResult = Ok(Vec::new());

/// Whether a driver that dies after this fact died at another place than one before it:
/// a turn or a call has ended, or the run rests.
fn is_progress(event: &Event) -> bool {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every fact that is not named leaves the run at its place"
    )]
    match event {
        Event::RunPrepared(_)
        | Event::TurnCompleted(_)
        | Event::TurnInterrupted(_)
        | Event::MemoryCompacted(_)
        | Event::ToolCompleted(_)
        | Event::ToolFailed(_)
        | Event::ToolInterrupted(_)
        | Event::ToolVerified(_)
        | Event::ToolSurfaced(_) => true,
        Event::TurnFailed(data) => data.failure.class != FailureClass::Lost,
        Event::RunWaiting(data) => data.wait != Wait::Worker,
        _ => false,
    }
}

impl Control {
    /// Takes one fact in, and gives what it adds to the conversation.
    pub(crate) fn apply(&mut self, event: &Event) -> ApplyResult {
        if matches!(self.stage, Stage::Ended(_)) {
            return Err("nothing follows the end");
        }
        match (event.from_outside(), &self.idle) {
            (Some(WakeTarget::Parked | WakeTarget::ParkedOrPaused), Some(Idle::Parked { .. }))
            | (Some(WakeTarget::ParkedOrPaused), Some(Idle::Paused)) => self.idle = None,
            _ => {}
        }
        let mut said = self.dispatch(event)?;
        if is_progress(event) {
            self.crashes = 0;
        }
        said.extend(self.results());
        self.transcript_bytes += said.iter().map(Message::estimated_bytes).sum::<u64>();
        Ok(said)
    }

    fn dispatch(&mut self, event: &Event) -> ApplyResult {
        match event {
            Event::RunCreated(_) => Err("a run is created once"),
            Event::RunClaimed(data) => self.claimed(data),
            Event::RunPrepared(data) => self.perceived(data),
            Event::RunWaiting(data) => self.waiting(data),
            Event::RunRecovered(_) => self.recovered(),
            Event::RunPauseRequested(data) => self.pause_requested(data),
            Event::RunPaused(_) => self.paused(),
            Event::RunResumed(data) => self.resumed(data),
            Event::RunBlocked(data) => self.blocked(data),
            Event::RunCancelRequested(data) => self.cancel_requested(data),
            Event::RunCancelled(data) => self.cancelled(data),
            Event::RunCompleted(data) => self.completed(data),
            Event::RunFailed(data) => self.failed(data),
            Event::RunRetryScheduled(data) => self.retry_scheduled(data),
            Event::RunRetried(data) => self.retried(data),
            Event::TurnStarted(data) => self.turn_started(data),
            Event::TurnCompleted(data) => self.turn_completed(data),
            Event::TurnFailed(data) => self.turn_failed(data),
            Event::TurnInterrupted(data) => self.turn_interrupted(data),
            Event::ToolStarted(data) => self.tool_started(data),
            Event::ToolCompleted(data) => self.tool_ended(data, false),
            Event::ToolFailed(data) | Event::ToolInterrupted(data) => self.tool_ended(data, true),
            Event::ToolInDoubt(data) => self.tool_in_doubt(data),
            Event::ToolVerified(data) => self.tool_verified(data),
            Event::ToolSurfaced(data) => self.tool_surfaced(data),
            Event::GateRaised(data) => self.gate_raised(data),
            Event::GateAnswered(data) => self.gate_answered(data),
            Event::GateExpired(data) => self.gate_expired(data),
            Event::GateWithdrawn(data) => self.gate_withdrawn(data),
            Event::SteerQueued(data) => self.steer_queued(data),
            Event::SteerChanged(data) => self.steer_changed(data),
            Event::SteerWithdrawn(data) => self.steer_removed(data.steer),
            Event::SteerDropped(data) => self.steer_removed(data.steer),
            Event::SteerDelivered(data) => self.steer_delivered(data),
            Event::TimerFired(data) => self.timer_fired(data),
            Event::ChildStarted(data) => self.child_started(data),
            Event::ChildEnded(data) => self.child_ended(data),
            Event::BudgetWarned(data) => self.budget_warned(data),
            Event::BudgetReached(data) => self.budget_reached(data),
            Event::BudgetRaised(data) => self.budget_raised(data),
            Event::RuleAdded(data) => self.rule_added(data),
            Event::RuleRevoked(data) => self.rule_revoked(data),
            Event::MemoryCompacted(data) => self.memory_compacted(data),
            // Facts that people read, and that bind nothing in the heart.
            Event::RunOverdue(_)
            | Event::RunForked(_)
            | Event::ToolProgress(_)
            | Event::GateVoted(_)
            | Event::GateReminded(_)
            | Event::BudgetSettled(_)
            | Event::SandboxCreating(_)
            | Event::SandboxStarting(_)
            | Event::SandboxRunning(_)
            | Event::SandboxStopping(_)
            | Event::SandboxStopped(_)
            | Event::SandboxDeleted(_)
            | Event::SandboxLost(_)
            | Event::ChainStepStarted(_)
            | Event::ChainStepCompleted(_)
            | Event::ProgressReported(_) => NO_MESSAGES,
        }
    }

    /// When the last result of a turn is there, the results are said together,
    /// in the model's order: so no request ever holds a call without its result.
    fn results(&mut self) -> Option<Message> {
        let acting = self.running_tools()?;
        if !acting.calls.iter().all(Call::is_done) {
            return None;
        }
        let results = acting.calls.iter().filter_map(Call::result).collect();
        let circles = self.loop_guard.record(&acting.calls);
        // A call beside it failed or was refused: the agent should know before it ends.
        let failed = |call: &Call| matches!(call.state, CallState::Done { is_error: true, .. });
        let is_fine = !acting.calls.iter().any(failed);
        self.stage = match acting.finish_output.as_ref().filter(|_| is_fine) {
            None => Stage::ModelPending(ModelPending::default()),
            Some(output) => Stage::Concluding(Concluding::new(output.clone(), true)),
        };
        self.loop_guard = circles;
        Some(Message::Results(results))
    }
}
