//! Applies events about timers, child runs, budgets and approval rules to the control state.

use longhaul_core::event::environment::{
    BudgetRaised, BudgetReached, BudgetWarned, ChildEnded, ChildStarted, RuleAdded, RuleRevoked,
    TimerFired,
};
use longhaul_core::id::CallId;
use longhaul_core::message::Message;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::GateKind;
use longhaul_core::status::RunOutcome;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::call::ToolCallState;
use crate::state::control::ControlState;
use crate::state::stage::{PendingModelCall, PendingTimer, Stage};

impl ControlState {
    pub(super) fn apply_timer_fired(&mut self, data: &TimerFired) -> ApplyResult {
        let sleep: Option<&mut PendingTimer> = match &mut self.stage {
            Stage::ModelPending(pending) => pending.pending_timer.as_mut(),
            Stage::Concluding(concluding) => concluding.pending_timer.as_mut(),
            Stage::ToolsRunning(tools) => tools.calls.iter_mut().find_map(|call| {
                let ToolCallState::Sleeping(sleep) = &mut call.state else {
                    return None;
                };
                (sleep.timer == data.timer).then_some(sleep)
            }),
            Stage::New => {
                self.start_timer_fired = true;
                None
            }
            Stage::ModelRunning(_) | Stage::Ended(_) => None,
        };
        match sleep {
            Some(sleep) if sleep.timer == data.timer => sleep.fired = true,
            // The timer is no longer needed.
            Some(_) | None => {}
        }
        NO_MESSAGES
    }

    pub(super) fn apply_child_started(&mut self, data: &ChildStarted) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        if call.is_done() {
            return Err("a call that is done can't start a child run");
        }
        call.state = ToolCallState::AwaitingChild(data.child);
        NO_MESSAGES
    }

    pub(super) fn apply_child_ended(&mut self, data: &ChildEnded) -> ApplyResult {
        let mut calls = self.calls_mut().iter_mut();
        if let Some(call) =
            calls.find(|call| call.state == ToolCallState::AwaitingChild(data.child))
        {
            let (text, is_error) = match &data.outcome {
                RunOutcome::Completed(output) => (output.text.clone(), false),
                RunOutcome::Failed(error) => {
                    (format!("the child run failed: {}", error.message), true)
                }
                RunOutcome::Cancelled(why) => (format!("the child run was cancelled: {why}"), true),
            };
            call.state = ToolCallState::from_result_text(text, is_error);
        }
        NO_MESSAGES
    }

    pub(super) fn apply_budget_warned(&mut self, data: &BudgetWarned) -> ApplyResult {
        self.warned.push(data.cap);
        self.add_message_between_turns(Message::user(data.message.as_str()))
    }

    /// Adds a message for the model, which is valid only between turns. A run that was about to end
    /// continues.
    pub(super) fn add_message_between_turns(&mut self, message: Message) -> ApplyResult {
        match &mut self.stage {
            // A message ends the wait, so that the model is called now.
            Stage::ModelPending(pending) => pending.pending_timer = None,
            Stage::Concluding(concluding) if concluding.gate.is_none() => {
                self.stage = Stage::ModelPending(PendingModelCall::default());
            }
            Stage::Concluding(_)
            | Stage::New
            | Stage::ModelRunning(_)
            | Stage::ToolsRunning(_)
            | Stage::Ended(_) => {
                return Err("messages to the model are only allowed between turns");
            }
        }
        self.interrupted = false;
        Ok(vec![message])
    }

    pub(super) fn apply_budget_reached(&mut self, data: &BudgetReached) -> ApplyResult {
        self.exhausted_cap = Some(data.cap);
        NO_MESSAGES
    }

    pub(super) fn apply_budget_raised(&mut self, data: &BudgetRaised) -> ApplyResult {
        self.raise_caps(data.raise);
        NO_MESSAGES
    }

    pub(super) fn raise_caps(&mut self, raise: BudgetRaise) {
        self.caps = self.caps.with_raised_caps(raise);
        self.exhausted_cap = None;
        self.warned.clear();
    }

    pub(super) fn apply_rule_added(&mut self, data: &RuleAdded) -> ApplyResult {
        self.approvals.push((data.rule, data.pattern.clone()));
        NO_MESSAGES
    }

    pub(super) fn apply_rule_revoked(&mut self, data: &RuleRevoked) -> ApplyResult {
        self.approvals.retain(|(rule, _)| *rule != data.rule);
        NO_MESSAGES
    }

    /// Returns the first call that asks a person a question. A message to the run answers that
    /// question.
    pub(crate) fn first_question_call(&self) -> Option<CallId> {
        let is_question = |gate| {
            self.find_open_gate(gate)
                .is_some_and(|open| matches!(open.kind, GateKind::Question | GateKind::Blocked))
        };
        let mut calls = self.calls().iter();
        let call = calls.find(|call| call.gate().is_some_and(is_question))?;
        Some(call.id)
    }
}
