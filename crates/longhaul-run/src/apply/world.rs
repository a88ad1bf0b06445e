//! Facts about time, children, money and rules, taken in.
//!
//! Never: decides.

use longhaul_core::event::world::{
    BudgetRaised, BudgetReached, BudgetWarned, ChildEnded, ChildStarted, RuleAdded, RuleRevoked,
    TimerFired,
};
use longhaul_core::id::CallId;
use longhaul_core::message::Message;
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::GateKind;
use longhaul_core::status::Outcome;

use crate::apply::{SILENT, Said};
use crate::state::call::CallState;
use crate::state::control::Control;
use crate::state::stage::{Sleep, Stage, Thinking};

impl Control {
    pub(super) fn timer_fired(&mut self, data: &TimerFired) -> Said {
        let sleep: Option<&mut Sleep> = match &mut self.stage {
            Stage::Thinking(thinking) => thinking.sleep.as_mut(),
            Stage::Concluding(concluding) => concluding.sleep.as_mut(),
            Stage::Acting(acting) => acting.calls.iter_mut().find_map(|call| {
                let CallState::Sleeping(sleep) = &mut call.state else {
                    return None;
                };
                (sleep.timer == data.timer).then_some(sleep)
            }),
            Stage::New | Stage::Asking(_) | Stage::Ended(_) => None,
        };
        match sleep {
            Some(sleep) if sleep.timer == data.timer => sleep.fired = true,
            // Whatever it was set for has gone on without it.
            Some(_) | None => {}
        }
        SILENT
    }

    pub(super) fn child_started(&mut self, data: &ChildStarted) -> Said {
        let call = self.call_mut(data.call)?;
        if call.is_done() {
            return Err("a call that is done asks for nothing");
        }
        call.state = CallState::Child(data.child);
        SILENT
    }

    pub(super) fn child_ended(&mut self, data: &ChildEnded) -> Said {
        let mut calls = self.calls_mut().iter_mut();
        if let Some(call) = calls.find(|call| call.state == CallState::Child(data.child)) {
            let (words, is_error) = match &data.outcome {
                Outcome::Completed(output) => (output.text.clone(), false),
                Outcome::Failed(fault) => (format!("it failed: {}", fault.message), true),
                Outcome::Cancelled(why) => (format!("it was cancelled: {why}"), true),
            };
            call.state = CallState::settling(words, is_error);
        }
        SILENT
    }

    pub(super) fn budget_warned(&mut self, data: &BudgetWarned) -> Said {
        self.warned.push(data.cap);
        self.say_between_turns(Message::user(data.words.as_str()))
    }

    /// Words to the model stand between turns only. A run that was about to end
    /// goes on because of them.
    pub(super) fn say_between_turns(&mut self, words: Message) -> Said {
        match &mut self.stage {
            // Whoever is spoken to wakes: it asks now, whatever it waited for.
            Stage::Thinking(thinking) => thinking.sleep = None,
            Stage::Concluding(concluding) if concluding.gate.is_none() => {
                self.stage = Stage::Thinking(Thinking::default());
            }
            Stage::Concluding(_)
            | Stage::New
            | Stage::Asking(_)
            | Stage::Acting(_)
            | Stage::Ended(_) => return Err("words to the model stand between turns"),
        }
        self.cut_off = false;
        Ok(vec![words])
    }

    pub(super) fn budget_reached(&mut self, data: &BudgetReached) -> Said {
        self.broke = Some(data.cap);
        SILENT
    }

    pub(super) fn budget_raised(&mut self, data: &BudgetRaised) -> Said {
        self.raise(data.raise);
        SILENT
    }

    pub(super) fn raise(&mut self, raise: Raise) {
        self.caps = self.caps.raised(raise);
        self.broke = None;
        self.warned.clear();
    }

    pub(super) fn rule_added(&mut self, data: &RuleAdded) -> Said {
        self.allowed.push((data.rule, data.pattern.clone()));
        SILENT
    }

    pub(super) fn rule_revoked(&mut self, data: &RuleRevoked) -> Said {
        self.allowed.retain(|(rule, _)| *rule != data.rule);
        SILENT
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
