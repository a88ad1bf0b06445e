//! Facts about calls, taken in.
//!
//! Never: a second result for a call.

use longhaul_core::event::tool::{
    ToolEnded, ToolInDoubt, ToolStarted, ToolSurfaced, ToolVerified, VerifyOutcome,
};
use longhaul_core::id::CallId;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::control_tool_names::{FINISH, wait_timer};
use crate::policy::legacy_output::legacy_output_from_finish;
use crate::state::call::{Call, CallState};
use crate::state::control::Control;
use crate::state::stage::PendingTimer;

impl Control {
    pub(super) fn call_mut(&mut self, id: CallId) -> Result<&mut Call, &'static str> {
        let mut calls = self.calls_mut().iter_mut();
        calls.find(|call| call.id == id).ok_or("no such call is being made")
    }

    pub(super) fn tool_started(&mut self, data: &ToolStarted) -> ApplyResult {
        if self.cancel.is_some() {
            return Err("a run that is being cancelled starts nothing");
        }
        let epoch = self.epoch;
        let run = self.id;
        let call = self.call_mut(data.call)?;
        if !call.may_begin(epoch) {
            return Err("this call may not begin");
        }
        call.starts = data.attempt;
        call.state = match data.until {
            Some(until) => {
                let timer = wait_timer(run, call.id);
                CallState::Sleeping(PendingTimer { timer, until, fired: false })
            }
            None => CallState::Started(epoch),
        };
        NO_MESSAGES
    }

    pub(super) fn tool_ended(&mut self, data: &ToolEnded, is_error: bool) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        if call.is_done() {
            return Err("a call has one result");
        }
        call.state = CallState::Done { output: data.output.clone(), is_error };
        if call.classification.tool.as_str() == FINISH && !is_error {
            let first = legacy_output_from_finish(&call.arguments().to_value());
            if let Some(acting) = self.running_tools_mut() {
                acting.finish_output = Some(acting.final_output.clone().unwrap_or(first));
            }
        }
        self.totals.active = self.totals.active.plus(data.active);
        NO_MESSAGES
    }

    pub(super) fn tool_in_doubt(&mut self, data: &ToolInDoubt) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        let CallState::Started(_) = call.state else {
            return Err("only a call that has begun can be in doubt");
        };
        call.state = CallState::InDoubt {
            policy: data.policy,
            can_verify: call.classification.can_verify,
            reason: data.reason.clone(),
        };
        self.totals.active = self.totals.active.plus(data.active);
        NO_MESSAGES
    }

    pub(super) fn tool_verified(&mut self, data: &ToolVerified) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        let CallState::InDoubt { policy: then, reason: why, .. } = &call.state else {
            return Err("only a call in doubt is looked after");
        };
        call.state = match &data.outcome {
            VerifyOutcome::Happened(output) => {
                CallState::ResultReady { output: output.clone(), is_error: false }
            }
            VerifyOutcome::NotHappened => CallState::Ready,
            VerifyOutcome::Unknown => {
                CallState::InDoubt { policy: *then, can_verify: false, reason: why.clone() }
            }
        };
        NO_MESSAGES
    }

    /// A real result settles a call in doubt, also one that a person is asked
    /// about. Where the result is written down already it changes nothing.
    pub(super) fn tool_surfaced(&mut self, data: &ToolSurfaced) -> ApplyResult {
        let epoch = self.epoch;
        let Ok(call) = self.call_mut(data.call) else {
            return NO_MESSAGES;
        };
        let settles = match &call.state {
            CallState::Started(older) => *older < epoch,
            // Also one that was about to begin anew: its first start has a result.
            CallState::InDoubt { .. } | CallState::AwaitingAnswer(_) | CallState::Ready => {
                call.starts > 0
            }
            CallState::Unevaluated
            | CallState::Gated(_)
            | CallState::Sleeping(_)
            | CallState::AwaitingChild(_)
            | CallState::ResultReady { .. }
            | CallState::Done { .. } => false,
        };
        if settles {
            call.state =
                CallState::ResultReady { output: data.output.clone(), is_error: data.is_error };
        }
        NO_MESSAGES
    }
}
