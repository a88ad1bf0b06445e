//! Applies the event that ends the part of a journal that was copied from another run. A retry
//! continues from the last usable state of the failed run, a fork from the start of a turn.
//!
//! Invariant: completed calls keep their results, and the usage of the other run still counts.

use longhaul_core::event::environment::GradingVerdict;
use longhaul_core::event::run::{ForkKind, RunForked};
use longhaul_core::id::Epoch;
use longhaul_core::message::Message;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::status::RunError;

use crate::apply::outcome::{GRADER_FAILED, NOT_MET};
use crate::apply::turn::CONTINUE_MESSAGE;
use crate::apply::{ApplyResult, FILES_RESET};
use crate::state::call::{CopiedToolCallOrigin, ToolCallState, TrackedCall};
use crate::state::control::{ControlState, OpenChildRun, PeopleState, RetryCounts, StopReasons};
use crate::state::driver::DriverState;
use crate::state::sandbox::WorkspaceChanges;
use crate::state::stage::{ConcludingRunState, Grading, PendingModelCall, RunStage};

/// Result given to a call that waited for a child run when the run failed and was retried.
const CHILD_RUN_LEFT: &str = "the run that had started this child run has failed";

/// Error codes of runs that fail although their last reply is usable: because of an answer to a gate,
/// its timeout, or a verdict about the result.
const ERRORS_AFTER_USABLE_REPLY: [&str; 4] = ["rejected", "gate_expired", NOT_MET, GRADER_FAILED];

impl ControlState {
    /// Returns whether the run is about to fail because its last reply was truncated or refused. A
    /// retry asks the model again.
    pub(crate) fn has_unusable_reply(&self) -> bool {
        let after_reply = matches!(self.stage, RunStage::Concluding(_) | RunStage::ToolsRunning(_));
        let is_unusable =
            |error: &RunError| !ERRORS_AFTER_USABLE_REPLY.contains(&error.code.as_str());
        after_reply && self.stop.failure.as_ref().is_some_and(is_unusable)
    }

    /// Turns the copied state of another run into the state of its retry or fork: resets the parts
    /// that belong to the other run (its driver, what stopped it, what it asked people) and the
    /// counters.
    pub(super) fn apply_run_forked(&mut self, data: &RunForked) -> ApplyResult {
        let has_unusable_reply = self.has_unusable_reply();
        let unread_grader_note = self.unread_grader_note();
        self.report_open_children(data.kind);
        let earlier = CopiedToolCallOrigin { run: data.from, epochs: self.driver.epoch };
        let new_call = || RunStage::ModelPending(PendingModelCall::default());
        self.stage = match std::mem::replace(&mut self.stage, new_call()) {
            RunStage::Ended(_) => return Err("a copy never contains the end of a run"),
            new @ RunStage::New { .. } => new,
            _ if has_unusable_reply || unread_grader_note.is_some() => new_call(),
            RunStage::ModelPending(PendingModelCall { interrupted, .. }) => {
                RunStage::ModelPending(PendingModelCall { interrupted, ..Default::default() })
            }
            RunStage::ModelRunning(_) => new_call(),
            RunStage::Concluding(concluding) => RunStage::Concluding(ConcludingRunState {
                gate: None,
                approved: concluding.approved && !data.drops_approvals,
                grading: reset_grading(concluding.grading),
                timer: None,
                ..concluding
            }),
            RunStage::ToolsRunning(mut tools) => {
                let open = tools.calls.iter_mut().filter(|call| !call.is_done());
                open.for_each(|call| {
                    reset_call_of_failed_run(call, earlier);
                    if data.drops_approvals {
                        drop_approval_of_call(call);
                    }
                });
                RunStage::ToolsRunning(tools)
            }
        };
        self.driver = DriverState::default();
        self.stop = StopReasons::default();
        self.people = PeopleState::default();
        // The sandbox still belongs to the other run.
        self.sandbox = None;
        self.workspace.changes = WorkspaceChanges::Saved;
        self.attempt.restart(1, self.totals.active);
        self.retries = RetryCounts::default();
        self.guards.reset_for_retry();
        self.outcome.reset_count();
        self.compaction.last_turns = None;
        if data.kind == ForkKind::Fork {
            // The caps of the shared account may have been raised after the copied events.
            self.budget.caps = self.policy.budget;
            self.budget.exhausted = None;
        }
        if data.resets_files {
            self.add_report_for_model(FILES_RESET.to_owned());
        }
        let mut messages: Vec<Message> = unread_grader_note.into_iter().collect();
        if data.prepares_again {
            if matches!(&self.stage, RunStage::ModelPending(pending) if pending.interrupted) {
                messages.push(Message::user(CONTINUE_MESSAGE));
            }
            self.stage = RunStage::default();
        }
        Ok(messages)
    }
}

/// Returns the grading state of the result in a retry: an accepted result stays accepted, any other
/// result is graded by a new run.
fn reset_grading(grading: Grading) -> Grading {
    match grading {
        accepted @ Grading::Graded(GradingVerdict::Satisfied) => accepted,
        Grading::Pending | Grading::Running(_) | Grading::Ended { .. } | Grading::Graded(_) => {
            Grading::Pending
        }
    }
}

impl ControlState {
    /// Adds reports for the model about the child runs that the other run had started in the
    /// background: this run is not notified when they end.
    fn report_open_children(&mut self, kind: ForkKind) {
        let parent = match kind {
            ForkKind::Retry => "the failed run before this retry",
            ForkKind::Fork => "the run that this run was forked from",
        };
        for OpenChildRun { id, agent, call } in std::mem::take(&mut self.children) {
            // The call itself gets a result that says so, and a grading run is not the model's own.
            if call.is_none()
                || self.calls().iter().any(|call| call.state == ToolCallState::AwaitingChild(id))
            {
                continue;
            }
            self.add_report_for_model(format!(
                "[longhaul] The child run {id} of agent `{agent}` belongs to {parent}: you are not \
                 told when it ends. Start another one if you need its result."
            ));
        }
    }
}

/// Resets a call of the failed run that has no recorded result, for the retry. A call that was
/// started is started or continued again if that may be repeated; otherwise a person is asked
/// whether it has taken effect.
fn reset_call_of_failed_run(call: &mut TrackedCall, earlier: CopiedToolCallOrigin) {
    call.origin = Some(match call.origin {
        None => earlier,
        Some(first) => CopiedToolCallOrigin {
            epochs: Epoch(first.epochs.0.saturating_add(earlier.epochs.0)),
            ..first
        },
    });
    // The world has changed since they were computed.
    call.classification.facts = None;
    // These approvals may have been revoked since the failed run read them.
    call.classification.approvals.clear();
    // The retry asks a person about the call of the other run that made this run fail.
    let is_question = call.starts == 0
        && matches!(call.state, ToolCallState::InDoubt { policy: InDoubtPolicy::Fail, .. });
    call.replaces = call.replaces.filter(|_| is_question);
    let ask = |can_verify, reason| ToolCallState::InDoubt {
        policy: InDoubtPolicy::Ask,
        can_verify,
        reason,
    };
    call.state = match std::mem::replace(&mut call.state, ToolCallState::Unevaluated) {
        ToolCallState::Started(_) if call.may_repeat() => ToolCallState::Ready,
        // The retry continues with a call that its tool has suspended.
        ToolCallState::Pending(_) => ToolCallState::Ready,
        ToolCallState::AwaitingAnswer(_) if call.unanswered_question().is_some() => {
            ToolCallState::InputRequired
        }
        ToolCallState::Started(_) => ask(call.classification.can_verify, None),
        ToolCallState::InDoubt { policy: InDoubtPolicy::Fail, can_verify, reason } => {
            ask(can_verify, reason)
        }
        // The call of another run with the same effect key is in doubt.
        ToolCallState::InDoubt { .. } if call.starts == 0 => ToolCallState::Unevaluated,
        // Only the question about a call in doubt is asked after its start.
        ToolCallState::AwaitingAnswer(_) if call.starts > 0 => ask(false, None),
        ToolCallState::Gated(_)
        | ToolCallState::AwaitingAnswer(_)
        | ToolCallState::AwaitingKey { .. }
        | ToolCallState::Sleeping(_) => ToolCallState::Unevaluated,
        ToolCallState::AwaitingChild(_) => ToolCallState::from_result_text(CHILD_RUN_LEFT, true),
        kept @ (ToolCallState::Unevaluated
        | ToolCallState::Ready
        | ToolCallState::InDoubt { .. }
        | ToolCallState::InputRequired
        | ToolCallState::ResultReady { .. }
        | ToolCallState::Done { .. }) => kept,
    };
}

/// Takes back the permission to start a call, so that the retry asks again. A call that has started
/// and may be repeated, or that its tool continues, keeps its permission.
fn drop_approval_of_call(call: &mut TrackedCall) {
    if call.state != ToolCallState::Ready || call.suspended.is_some() {
        return;
    }
    call.state = match call.starts {
        0 => ToolCallState::Unevaluated,
        _ if call.may_repeat() => ToolCallState::Ready,
        // A person has allowed to repeat a call in doubt, or its tool says that it did not happen.
        _ => ToolCallState::InDoubt {
            policy: InDoubtPolicy::Ask,
            can_verify: call.classification.can_verify,
            reason: None,
        },
    };
}
