//! Facts about time, children, money and rules, taken in.
//!
//! Never: decides.

use longhaul_core::event::environment::{
    BudgetRaised, BudgetReached, BudgetWarned, ChildEnded, ChildStarted, RuleAdded, RuleRevoked,
    TimerFired,
};
use longhaul_core::id::CallId;
use longhaul_core::message::Message;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::GateKind;
use longhaul_core::status::Outcome;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::call::CallState;
use crate::state::control::Control;
use crate::state::stage::{ModelPending, PendingTimer, Stage};

impl Control {
    pub(super) fn timer_fired(&mut self, data: &TimerFired) -> ApplyResult {
        let sleep: Option<&mut PendingTimer> = match &mut self.stage {
            Stage::ModelPending(thinking) => thinking.pending_timer.as_mut(),
            Stage::Concluding(concluding) => concluding.pending_timer.as_mut(),
            Stage::ToolsRunning(acting) => acting.calls.iter_mut().find_map(|call| {
                let CallState::Sleeping(sleep) = &mut call.state else {
                    return None;
                };
                (sleep.timer == data.timer).then_some(sleep)
            }),
            Stage::New | Stage::ModelRunning(_) | Stage::Ended(_) => None,
        };
        match sleep {
            Some(sleep) if sleep.timer == data.timer => sleep.fired = true,
            // Whatever it was set for has gone on without it.
            Some(_) | None => {}
        }
        NO_MESSAGES
    }

    pub(super) fn child_started(&mut self, data: &ChildStarted) -> ApplyResult {
        let call = self.call_mut(data.call)?;
        if call.is_done() {
            return Err("a call that is done asks for nothing");
        }
        call.state = CallState::AwaitingChild(data.child);
        NO_MESSAGES
    }

    pub(super) fn child_ended(&mut self, data: &ChildEnded) -> ApplyResult {
        let mut calls = self.calls_mut().iter_mut();
        if let Some(call) = calls.find(|call| call.state == CallState::AwaitingChild(data.child)) {
            let (words, is_error) = match &data.outcome {
                Outcome::Completed(output) => (output.text.clone(), false),
                Outcome::Failed(fault) => (format!("it failed: {}", fault.message), true),
                Outcome::Cancelled(why) => (format!("it was cancelled: {why}"), true),
            };
            call.state = CallState::settling(words, is_error);
        }
        NO_MESSAGES
    }

    pub(super) fn budget_warned(&mut self, data: &BudgetWarned) -> ApplyResult {
        self.warned.push(data.cap);
        self.push_between_turns(Message::user(data.message.as_str()))
    }

    /// Words to the model stand between turns only. A run that was about to end
    /// goes on because of them.
    pub(super) fn push_between_turns(&mut self, words: Message) -> ApplyResult {
        match &mut self.stage {
            // Whoever is spoken to wakes: it asks now, whatever it waited for.
            Stage::ModelPending(thinking) => thinking.pending_timer = None,
            Stage::Concluding(concluding) if concluding.gate.is_none() => {
                self.stage = Stage::ModelPending(ModelPending::default());
            }
            Stage::Concluding(_)
            | Stage::New
            | Stage::ModelRunning(_)
            | Stage::ToolsRunning(_)
            | Stage::Ended(_) => return Err("words to the model stand between turns"),
        }
        self.interrupted = false;
        Ok(vec![words])
    }

    pub(super) fn budget_reached(&mut self, data: &BudgetReached) -> ApplyResult {
        self.exhausted_cap = Some(data.cap);
        NO_MESSAGES
    }

    pub(super) fn budget_raised(&mut self, data: &BudgetRaised) -> ApplyResult {
        self.raise_caps(data.raise);
        NO_MESSAGES
    }

    pub(super) fn raise_caps(&mut self, raise: BudgetRaise) {
        self.caps = self.caps.with_raise(raise);
        self.exhausted_cap = None;
        self.warned.clear();
    }

    pub(super) fn rule_added(&mut self, data: &RuleAdded) -> ApplyResult {
        self.approvals.push((data.rule, data.pattern.clone()));
        NO_MESSAGES
    }

    pub(super) fn rule_revoked(&mut self, data: &RuleRevoked) -> ApplyResult {
        self.approvals.retain(|(rule, _)| *rule != data.rule);
        NO_MESSAGES
    }

    /// The first call that asks a person for words: a message is its answer.
    pub(crate) fn question_call(&self) -> Option<CallId> {
        let asks = |gate| {
            self.open_gate(gate)
                .is_some_and(|open| matches!(open.kind, GateKind::Question | GateKind::Blocked))
        };
        let mut calls = self.calls().iter();
        let call = calls.find(|call| call.gate().is_some_and(asks))?;
        Some(call.id)
    }
}
