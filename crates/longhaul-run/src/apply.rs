//! Applies journal events to the control state of a run (everything but its conversation).
//!
//! An event that is invalid in the current state is an error, because Longhaul never writes such a
//! journal. Events that the run's worker did not write are valid in every state of a run that has
//! not ended.

mod environment;
mod fork;
mod gate;
mod outcome;
mod run;
mod tool;
mod turn;

use longhaul_core::change::SandboxState;
use longhaul_core::event::steer::{SteerDropped, SteerWithdrawn};
use longhaul_core::event::{Event, RunsToWake};
use longhaul_core::failure::FailureClass;
use longhaul_core::message::Message;
use longhaul_core::wait::WaitReason;

use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::control::ControlState;
use crate::state::driver::Activity;
use crate::state::stage::{ConcludingRunState, PendingModelCall, RunStage};

/// Messages that an event adds to the conversation, or the reason why the event is invalid.
pub(crate) type ApplyResult = Result<Vec<Message>, &'static str>;

/// Result of applying an event that adds no messages to the conversation.
const NO_MESSAGES: ApplyResult = Ok(Vec::new());

/// Message for the model when a new sandbox has not all files that its calls have changed.
const FILES_RESET: &str = "[longhaul] The files were reset: this run continues in a new sandbox, in \
     which changes are missing that the tool calls above have made to files. Check what exists \
     before you rely on it, and make the changes again if you need them.";

/// Returns whether the event counts as progress, which resets the number of crashes: a turn or a
/// call has ended, or the run is parked.
fn is_progress_event(event: &Event) -> bool {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events are not progress")]
    match event {
        Event::RunPrepared(_)
        | Event::TurnCompleted(_)
        | Event::TurnInterrupted(_)
        | Event::MemoryCompacted(_)
        | Event::ToolCompleted(_)
        | Event::ToolFailed(_)
        | Event::ToolInterrupted(_)
        | Event::ToolInputRequired(_)
        | Event::ToolPending(_)
        | Event::ToolVerified(_)
        | Event::ToolSurfaced(_) => true,
        Event::TurnFailed(data) => data.failure.class != FailureClass::Lost,
        Event::RunWaiting(data) => data.wait != WaitReason::Worker,
        _ => false,
    }
}

impl ControlState {
    /// Applies one event to the control state and returns the messages that it adds to the
    /// conversation.
    pub(crate) fn apply_event(&mut self, event: &Event) -> ApplyResult {
        if matches!(self.stage, RunStage::Ended(_)) {
            return Err("no events are allowed after the end");
        }
        let waking = match &self.driver.activity {
            Activity::Parked { .. } => &[RunsToWake::Parked, RunsToWake::ParkedOrPaused][..],
            Activity::Paused => &[RunsToWake::ParkedOrPaused],
            Activity::Ready | Activity::Driven => &[],
        };
        if event.runs_woken_by_outside_append().is_some_and(|runs| waking.contains(&runs)) {
            self.driver.activity = Activity::Ready;
        }
        let was_concluding = matches!(self.stage, RunStage::Concluding(_));
        let mut messages = self.dispatch_event(event)?;
        if is_progress_event(event) {
            self.driver.crashes = 0;
        }
        messages.extend(self.take_finished_tool_results());
        self.reopen_for_reports();
        if let RunStage::Concluding(concluding) = &mut self.stage
            && !was_concluding
        {
            concluding.output.artifacts.extend(self.artifacts.iter().cloned());
        }
        self.transcript_bytes += messages.iter().map(Message::estimated_bytes).sum::<u64>();
        Ok(messages)
    }

    /// Applies an event. The events of the last match arm are informational: they do not change the
    /// state.
    fn dispatch_event(&mut self, event: &Event) -> ApplyResult {
        match event {
            Event::RunCreated(_) => return Err("a run is created only once"),
            Event::RunClaimed(data) => return self.apply_run_claimed(data),
            Event::RunPrepared(data) => return self.apply_run_prepared(data),
            Event::RunWaiting(data) => return self.apply_run_waiting(data),
            Event::RunOverdue(_) | Event::RunTimedOut(_) => self.apply_passed_timeout(event),
            Event::RunRecovered(_) => self.apply_run_recovered(),
            Event::RunPauseRequested(data) => self.apply_pause_requested(data),
            Event::RunPaused(_) => return self.apply_run_paused(),
            Event::RunResumed(data) => self.apply_run_resumed(data),
            Event::RunBlocked(data) => self.apply_run_blocked(data),
            Event::RunCancelRequested(data) => self.apply_cancel_requested(data),
            Event::RunCancelled(data) => return self.apply_run_cancelled(data),
            Event::RunCompleted(data) => return self.apply_run_completed(data),
            Event::RunFailed(data) => return self.apply_run_failed(data),
            Event::RunRetryScheduled(data) => return self.apply_retry_scheduled(data),
            Event::RunRetried(data) => return self.apply_run_retried(data),
            Event::TurnStarted(data) => return self.apply_turn_started(data),
            Event::TurnCompleted(data) => return self.apply_turn_completed(data),
            Event::TurnFailed(data) => return self.apply_turn_failed(data),
            Event::TurnInterrupted(data) => return self.apply_turn_interrupted(data),
            Event::ToolStarted(data) => return self.apply_tool_started(data),
            Event::ToolKeyTaken(data) => return self.apply_tool_key_taken(data),
            Event::ToolCompleted(data) => return self.apply_tool_ended(data, false),
            Event::ToolFailed(data) | Event::ToolInterrupted(data) => return self.fail_call(data),
            Event::ToolInputRequired(data) => return self.apply_tool_input_required(data),
            Event::ToolPending(data) => return self.apply_tool_pending(data),
            Event::ToolResumed(data) => return self.apply_tool_resumed(data),
            Event::ToolInDoubt(data) => return self.apply_tool_in_doubt(data),
            Event::ToolVerified(data) => return self.apply_tool_verified(data),
            Event::ToolSurfaced(data) => self.apply_late_tool_result(data),
            Event::GateRaised(data) => return self.apply_gate_raised(data),
            Event::GateVoted(data) => self.apply_gate_voted(data),
            Event::GateAnswered(data) => return self.apply_gate_answered(data),
            Event::GateExpired(data) => return self.apply_gate_expired(data),
            Event::GateWithdrawn(data) => self.apply_gate_withdrawn(data),
            Event::SteerQueued(data) => self.apply_steer_queued(data),
            Event::SteerChanged(data) => self.apply_steer_changed(data),
            Event::SteerWithdrawn(_) | Event::SteerDropped(_) => self.apply_removed_steer(event),
            Event::SteerDelivered(data) => return self.apply_steer_delivered(data),
            Event::TimerFired(data) => self.apply_timer_fired(data),
            Event::ChildStarted(data) => return self.apply_child_started(data),
            Event::ChildEnded(data) => self.apply_child_ended(data),
            Event::OutcomeGraded(data) => return self.apply_outcome_graded(data),
            Event::BudgetWarned(data) => return self.apply_budget_warned(data),
            Event::BudgetReached(data) => self.budget.exhausted = Some(*data),
            Event::BudgetRaised(data) => self.budget.raise(data.raise),
            Event::RuleAdded(_) | Event::RuleRevoked(_) => self.apply_changed_rule(event),
            Event::MemoryCompacted(data) => return self.apply_memory_compacted(data),
            Event::SandboxCreating(data) => self.apply_sandbox(data, SandboxState::Creating),
            Event::SandboxStarting(data) => self.apply_sandbox(data, SandboxState::Starting),
            Event::SandboxRunning(data) => self.apply_sandbox(data, SandboxState::Running),
            Event::SandboxStopping(data) => self.apply_sandbox(data, SandboxState::Stopping),
            Event::SandboxStopped(data) => self.apply_sandbox(data, SandboxState::Stopped),
            Event::SandboxDeleted(data) => self.apply_sandbox(data, SandboxState::Deleted),
            Event::SandboxLost(data) => self.apply_sandbox(data, SandboxState::Lost),
            Event::WorkspaceSaved(data) => self.workspace.apply(&data.files),
            Event::RunForked(data) => return self.apply_run_forked(data),
            Event::ToolProgress(_)
            | Event::RuleUsed(_)
            | Event::GateReminded(_)
            | Event::BudgetSettled(_)
            | Event::ChainStepStarted(_)
            | Event::ProgressReported(_)
            | Event::SandboxCommandRun(_) => {}
        }
        NO_MESSAGES
    }

    /// Removes the queued message that was withdrawn or dropped.
    fn apply_removed_steer(&mut self, event: &Event) {
        if let Event::SteerWithdrawn(SteerWithdrawn { steer, .. })
        | Event::SteerDropped(SteerDropped { steer, .. }) = event
        {
            self.remove_steer(*steer);
        }
    }

    /// Adds the approval that was remembered, or removes the one that was revoked.
    fn apply_changed_rule(&mut self, event: &Event) {
        if let Event::RuleAdded(data) = event {
            self.apply_rule_added(data);
        } else if let Event::RuleRevoked(data) = event {
            self.people.approvals.retain(|rule| rule.rule != data.rule);
        }
    }

    /// Records that the soft or the hard timeout of the attempt has passed.
    const fn apply_passed_timeout(&mut self, event: &Event) {
        match matches!(event, Event::RunTimedOut(_)) {
            true => self.attempt.timed_out = true,
            false => self.attempt.overdue = true,
        }
    }

    /// Returns all tool results of a turn as one message, in the order of the calls. `None` means
    /// that a result is still missing. So no request to the model contains a call without its
    /// result.
    fn take_finished_tool_results(&mut self) -> Option<Message> {
        let RunStage::ToolsRunning(tools) = &self.stage else { return None };
        if !tools.calls.iter().all(TrackedCall::is_done) {
            return None;
        }
        let results = tools.calls.iter().filter_map(TrackedCall::recorded_result).collect();
        self.guards.record_calls(&tools.calls);
        // If another call failed or was denied, the agent should see that before the run ends.
        let is_failed =
            |call: &TrackedCall| matches!(call.state, ToolCallState::Done { is_error: true, .. });
        let all_succeeded = !tools.calls.iter().any(is_failed);
        self.stage = match tools.finish_output.as_ref().filter(|_| all_succeeded) {
            None => RunStage::ModelPending(PendingModelCall::default()),
            Some(output) => RunStage::Concluding(ConcludingRunState {
                output: output.clone(),
                by_finish_tool: true,
                ..ConcludingRunState::default()
            }),
        };
        Some(Message::Results(results))
    }
}
