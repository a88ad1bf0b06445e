//! Applies events about tool calls to the control state of a run (everything but its conversation).
//!
//! Invariant: a call has at most one result.
//!
//! A tool suspends a call that needs an answer or more time.

use std::sync::Arc;

use longhaul_core::event::tool::{
    LateToolResultEvent, ToolEnded, ToolInDoubt, ToolInputRequired, ToolKeyTaken, ToolPending,
    ToolResumed, ToolStarted, ToolSuspension, ToolVerified, VerifyOutcome,
};
use longhaul_core::id::CallId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_key::EffectKeyState;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::in_doubt::key_taken_reason;
use crate::policy::output::first_rule_finish_output;
use crate::policy::{FINISH, poll_timer_id, wait_timer_id};
use crate::state::call::{CallSuspension, PendingTimer, ToolCallState, TrackedCall};
use crate::state::control::{ARTIFACTS_MAX, ControlState};
use crate::state::sandbox::WorkspaceChanges;

const NOT_STARTED: &str = "only a started call can be suspended";

impl ControlState {
    pub(super) fn call_mut(&mut self, id: CallId) -> Result<&mut TrackedCall, &'static str> {
        let mut calls = self.calls_mut().iter_mut();
        calls.find(|call| call.id == id).ok_or("the current reply has no such call")
    }

    pub(super) fn apply_tool_started(&mut self, data: &ToolStarted) -> ApplyResult {
        if self.stop.cancel.is_some() {
            return Err("a run that is being cancelled starts no calls");
        }
        let epoch = self.driver.epoch;
        let run = self.id;
        let call = self.call_mut(data.call)?;
        if !call.may_start_under_claim(epoch) {
            return Err("this call may not start in its current state");
        }
        let classification = &call.classification;
        if classification.sandboxed && classification.class != EffectClass::Pure {
            self.workspace.changes = WorkspaceChanges::Unsaved;
        }
        let call = self.call_mut(data.call)?;
        call.starts = data.attempt;
        call.state = match (data.until, data.child) {
            (None, Some(child)) => ToolCallState::AwaitingChild(child),
            (Some(until), _) => {
                let timer = wait_timer_id(run, call.id);
                ToolCallState::Sleeping(PendingTimer { timer, until, fired: false })
            }
            (None, None) => ToolCallState::Started(epoch),
        };
        self.retries.tool_calls =
            self.retries.tool_calls.saturating_add(u32::from(data.attempt > 1));
        NO_MESSAGES
    }

    pub(super) fn apply_tool_key_taken(&mut self, data: &ToolKeyTaken) -> ApplyResult {
        let epoch = self.driver.epoch;
        let call = self.call_mut(data.call)?;
        if !call.may_start_under_claim(epoch) {
            return Err("this call may not start in its current state");
        }
        match data.state {
            EffectKeyState::Held => {
                // A decision about an earlier attempt says nothing about this one.
                call.replaces = None;
                call.state = ToolCallState::AwaitingKey { holder: data.holder, epoch };
            }
            EffectKeyState::Unknown => {
                call.replaces = Some(data.holder);
                call.state = ToolCallState::InDoubt {
                    policy: data.in_doubt.unwrap_or_default(),
                    can_verify: false,
                    reason: Some(key_taken_reason(&call.classification, data.holder)),
                };
            }
            // The result follows.
            EffectKeyState::Done => call.replaces = None,
        }
        NO_MESSAGES
    }

    pub(super) fn fail_call(&mut self, data: &ToolEnded) -> ApplyResult {
        self.apply_tool_ended(data, true)
    }

    pub(super) fn apply_tool_ended(&mut self, data: &ToolEnded, is_error: bool) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        if call.is_done() {
            return Err("a call has only one result");
        }
        call.state = ToolCallState::Done { output: data.output.clone(), is_error };
        if !data.output.artifacts.is_empty() {
            let artifacts = Arc::make_mut(&mut self.artifacts);
            artifacts.extend(data.output.artifacts.iter().cloned());
            artifacts.truncate(ARTIFACTS_MAX);
        }
        let tool_bytes = data.output.loaded_tools.iter().map(|entry| entry.as_str().len() as u64);
        self.transcript_bytes += tool_bytes.sum::<u64>();
        let call = self.call_mut(data.call)?;
        if call.classification.tool.as_str() == FINISH && !is_error {
            let first = first_rule_finish_output(&call.arguments().to_value());
            if let Some(tools) = self.running_tools_mut() {
                tools.finish_output = Some(tools.final_output.clone().unwrap_or(first));
            }
        }
        self.totals.add_active(data.active);
        NO_MESSAGES
    }

    pub(super) fn apply_tool_in_doubt(&mut self, data: &ToolInDoubt) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        let ToolCallState::Started(_) = call.state else {
            return Err("only a started call can be in doubt");
        };
        call.state = ToolCallState::InDoubt {
            policy: data.policy,
            can_verify: call.classification.can_verify,
            reason: data.reason.clone(),
        };
        self.totals.add_active(data.active);
        NO_MESSAGES
    }

    pub(super) fn apply_tool_verified(&mut self, data: &ToolVerified) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        let ToolCallState::InDoubt { policy, reason, .. } = &call.state else {
            return Err("only a call in doubt can be verified");
        };
        call.state = match &data.outcome {
            VerifyOutcome::Happened(output) => {
                ToolCallState::ResultReady { output: output.clone(), is_error: false }
            }
            VerifyOutcome::NotHappened => ToolCallState::Ready,
            VerifyOutcome::Unknown => ToolCallState::InDoubt {
                policy: *policy,
                can_verify: false,
                reason: reason.clone(),
            },
        };
        NO_MESSAGES
    }

    /// Applies a tool result that arrived late. It becomes the result of a call whose outcome was
    /// unknown, even if a person is being asked about the call. It changes nothing if the call
    /// already has a result.
    pub(super) fn apply_late_tool_result(&mut self, data: &LateToolResultEvent) {
        let epoch = self.driver.epoch;
        let Ok(call) = self.call_mut(data.call) else { return };
        use ToolCallState::{AwaitingAnswer, InDoubt, Ready, Started};
        // A call that was about to start again is settled too: its first start has a result.
        let has_started =
            call.starts > 0 && matches!(call.state, InDoubt { .. } | AwaitingAnswer(_) | Ready);
        if has_started || matches!(call.state, Started(older) if older < epoch) {
            call.state =
                ToolCallState::ResultReady { output: data.output.clone(), is_error: data.is_error };
        }
    }

    pub(super) fn apply_tool_input_required(&mut self, data: &ToolInputRequired) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        let suspended = suspend_call(call, &data.suspension)?;
        suspended.questions = suspended.questions.saturating_add(1);
        suspended.question = Some(data.question.clone());
        call.state = ToolCallState::InputRequired;
        self.totals.add_active(data.active);
        NO_MESSAGES
    }

    pub(super) fn apply_tool_pending(&mut self, data: &ToolPending) -> ApplyResult {
        let (run, epoch) = (self.id, self.driver.epoch);
        let call = self.call_mut(data.call)?;
        let is_due = call.state == ToolCallState::Ready && call.is_tool_poll_due();
        // In a copy of a failed run's journal, the id of the timer that has fired is another one.
        let is_postponed = is_due || matches!(call.state, ToolCallState::Pending(_));
        if is_postponed {
            call.state = ToolCallState::Started(epoch);
        }
        let suspended = suspend_call(call, &data.suspension)?;
        if is_postponed {
            suspended.postponed = suspended.postponed.saturating_add(1);
        }
        suspended.since.get_or_insert(data.since);
        suspended.message.clone_from(&data.message);
        suspended.given_up = data.given_up;
        suspended.polls = suspended.polls.saturating_add(1);
        let timer = poll_timer_id(run, data.call, suspended.polls);
        let until = data.until;
        call.state = ToolCallState::Pending(PendingTimer { timer, until, fired: false });
        self.totals.add_active(data.active);
        NO_MESSAGES
    }

    pub(super) fn apply_tool_resumed(&mut self, data: &ToolResumed) -> ApplyResult {
        if self.stop.cancel.is_some() {
            return Err("a run that is being cancelled continues no calls");
        }
        let epoch = self.driver.epoch;
        let call = self.call_mut(data.call)?;
        // In a copy of a failed run's journal, the id of the timer that has fired is another one.
        let may_continue = matches!(call.state, ToolCallState::Pending(_));
        if !may_continue && !call.may_start_under_claim(epoch) {
            return Err("this call may not continue in its current state");
        }
        let suspended = call.suspended.as_mut().ok_or("this call was not suspended")?;
        let suspended = Arc::make_mut(suspended);
        suspended.resumes = data.attempt;
        suspended.postponed = 0;
        call.state = ToolCallState::Started(epoch);
        self.retries.tool_calls =
            self.retries.tool_calls.saturating_add(u32::from(data.attempt > 1));
        NO_MESSAGES
    }
}

/// Stores the data with which the tool continues the suspended call later. Removes the answer to
/// the tool's earlier question.
fn suspend_call<'a>(
    call: &'a mut TrackedCall,
    suspension: &ToolSuspension,
) -> Result<&'a mut CallSuspension, &'static str> {
    let ToolCallState::Started(_) = call.state else { return Err(NOT_STARTED) };
    let suspended = Arc::make_mut(call.suspended.get_or_insert_default());
    suspended.suspension = suspension.clone();
    suspended.answer = None;
    suspended.resumes = 0;
    Ok(suspended)
}
