//! Applies events about suspended tool calls to the control state of a run (everything but its
//! conversation). A tool suspends a call that needs an answer or more time.

use std::sync::Arc;

use longhaul_core::event::tool::{ToolInputRequired, ToolPending, ToolResumed, ToolSuspension};

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::control_tool_names::poll_timer_id;
use crate::state::call::{CallSuspension, PendingTimer, ToolCallState, TrackedToolCall};
use crate::state::control::ControlState;

const NOT_STARTED: &str = "only a started call can be suspended";

impl ControlState {
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
    call: &'a mut TrackedToolCall,
    suspension: &ToolSuspension,
) -> Result<&'a mut CallSuspension, &'static str> {
    let ToolCallState::Started(_) = call.state else { return Err(NOT_STARTED) };
    let suspended = Arc::make_mut(call.suspended.get_or_insert_default());
    suspended.suspension = suspension.clone();
    suspended.answer = None;
    suspended.resumes = 0;
    Ok(suspended)
}
