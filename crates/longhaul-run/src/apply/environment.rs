//! Applies events about timers, child runs, budgets, approval rules and queued messages to the
//! control state of a run (everything but its conversation).
//!
//! Invariant: a message leaves the queue only as delivered, dropped or withdrawn.

use std::sync::Arc;

use longhaul_core::change::SandboxState;
use longhaul_core::event::environment::{
    BudgetWarned, ChildEnded, ChildStarted, RuleAdded, SandboxEvent, TimerFired,
};
use longhaul_core::event::steer::{SteerDelivered, SteerDelivery, SteerMessage};
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, SteerId};
use longhaul_core::message::Message;
use longhaul_core::policy::gate::{AnswerScope, GateKind, GateSpec};
use longhaul_core::policy::rule::RememberedApproval;
use longhaul_core::status::{RunError, RunOutcome};

use crate::apply::outcome::result_text;
use crate::apply::{ApplyResult, FILES_RESET, NO_MESSAGES};
use crate::policy::check_question_answer;
use crate::state::call::{PendingTimer, ToolCallState, unfired_timer};
use crate::state::control::{ControlState, OpenChildRun, QueuedSteer};
use crate::state::driver::Activity;
use crate::state::sandbox::{RunSandbox, WorkspaceChanges};
use crate::state::stage::{PendingModelCall, RunStage};

impl ControlState {
    pub(super) fn apply_timer_fired(&mut self, data: &TimerFired) {
        let sleep: Option<&mut PendingTimer> = match &mut self.stage {
            RunStage::ModelPending(pending) => pending.timer.as_mut(),
            RunStage::Concluding(concluding) => concluding.timer.as_mut(),
            RunStage::ToolsRunning(tools) => tools.calls.iter_mut().find_map(|call| {
                let (ToolCallState::Sleeping(sleep) | ToolCallState::Pending(sleep)) =
                    &mut call.state
                else {
                    return None;
                };
                (sleep.timer == data.timer).then_some(sleep)
            }),
            RunStage::New { start_timer_fired } => {
                *start_timer_fired = true;
                None
            }
            RunStage::ModelRunning(_) | RunStage::Ended(_) => None,
        };
        // Any other timer is no longer needed.
        if let Some(sleep) = sleep.filter(|sleep| sleep.timer == data.timer) {
            sleep.fired = true;
        }
        for call in self.calls_mut() {
            if matches!(call.state, ToolCallState::Pending(timer) if timer.fired) {
                call.state = ToolCallState::Ready;
            }
        }
    }

    /// Applies a change of the run's sandbox. A change of an earlier sandbox, such as its deletion,
    /// has no effect.
    pub(super) fn apply_sandbox(&mut self, event: &SandboxEvent, state: SandboxState) {
        let epoch = self.driver.epoch;
        let is_driven = self.driver.activity == Activity::Driven;
        let is_current = |sandbox: &RunSandbox| sandbox.event.sandbox == event.sandbox;
        let is_new = state == SandboxState::Creating;
        if is_new || self.sandbox.as_deref().is_some_and(is_current) {
            let sandbox = self.sandbox.get_or_insert_default();
            sandbox.apply(event, state, epoch);
            sandbox.is_marked_idle &= !is_driven;
            let is_gone = matches!(state, SandboxState::Deleted | SandboxState::Lost);
            if is_gone && !self.workspace.is_saved() {
                self.workspace.changes = WorkspaceChanges::Skipped;
                self.add_report_for_model(FILES_RESET.to_owned());
            }
        }
    }

    pub(super) fn apply_child_started(&mut self, data: &ChildStarted) -> ApplyResult {
        match data.call {
            Some(call) => self.start_child_call(call, data)?,
            None => self.apply_grading_started(data.child)?,
        }
        let ChildStarted { child: id, agent, call, .. } = data.clone();
        self.children.push(OpenChildRun { id, agent, call });
        NO_MESSAGES
    }

    fn start_child_call(&mut self, call: CallId, data: &ChildStarted) -> Result<(), &'static str> {
        let call = self.call_mut(call)?;
        if call.is_done() {
            return Err("a call that is done can't start a child run");
        }
        call.state = match data.background {
            true => {
                let text = format!(
                    "started the child run {} of agent `{}`; you are told when it ends, and `wait` \
                     waits for it",
                    data.child, data.agent
                );
                ToolCallState::from_result_text(text, false)
            }
            false => ToolCallState::AwaitingChild(data.child),
        };
        Ok(())
    }

    /// Applies the end of a child run. The outcome of a grading run is applied to the grading. The
    /// outcome of any other child becomes the result of the call that waits for the child, or else
    /// a message for the model's next turn. A repeated report of the same end changes nothing.
    pub(super) fn apply_child_ended(&mut self, data: &ChildEnded) {
        let Some(index) = self.children.iter().position(|open| open.id == data.child) else {
            return;
        };
        data.submitters.iter().for_each(|name| self.submitters.add(name));
        let OpenChildRun { id, agent, call } = self.children.remove(index);
        if call.is_none() {
            self.apply_grading_ended(id, &data.outcome);
            return;
        }
        let (text, is_error) = match &data.outcome {
            RunOutcome::Completed(output) => (result_text(output), false),
            RunOutcome::Failed(RunError { code, message, .. }) => {
                (format!("the child run {id} failed ({code}): {message}"), true)
            }
            RunOutcome::Cancelled(cancellation) => {
                (format!("the child run {id} was {cancellation}"), true)
            }
        };
        let mut calls = self.calls_mut().iter_mut();
        match calls.find(|call| call.state == ToolCallState::AwaitingChild(id)) {
            Some(call) => {
                let output = ToolOutput { full: data.full, ..ToolOutput::text(text) };
                call.state = ToolCallState::ResultReady { output, is_error };
            }
            None => self.add_report_for_model(match is_error {
                true => format!("[longhaul] A child run of agent `{agent}` ended: {text}"),
                false => format!("[longhaul] The child run {id} of agent `{agent}` ended: {text}"),
            }),
        }
    }

    pub(super) fn apply_budget_warned(&mut self, data: &BudgetWarned) -> ApplyResult {
        self.budget.warned.push(data.cap);
        self.add_message_between_turns(Message::user(data.message.as_str()))
    }

    /// Adds a message for the model to the conversation. A run that was about to end continues with
    /// another turn. Returns an error during a turn, before the first turn is prepared, after the
    /// end of the run, and while a person is asked to approve the result.
    pub(super) fn add_message_between_turns(&mut self, message: Message) -> ApplyResult {
        match &mut self.stage {
            // A message ends the wait, so that the model is called now.
            RunStage::ModelPending(pending) => {
                pending.skip_timer();
                pending.interrupted = false;
            }
            RunStage::Concluding(concluding) if concluding.gate.is_none() => {
                let skipped_timer = unfired_timer(concluding.timer);
                let pending = PendingModelCall { skipped_timer, ..PendingModelCall::default() };
                self.stage = RunStage::ModelPending(pending);
            }
            RunStage::Concluding(_)
            | RunStage::New { .. }
            | RunStage::ModelRunning(_)
            | RunStage::ToolsRunning(_)
            | RunStage::Ended(_) => {
                return Err("messages to the model are only allowed between turns");
            }
        }
        Ok(vec![message])
    }

    /// Remembers an approval for this run. An approval for the agent or the project is read from the
    /// store with each reply, because it can be revoked without an event in this journal.
    pub(super) fn apply_rule_added(&mut self, data: &RuleAdded) {
        let RuleAdded { rule, scope, pattern, by, other_voters } = data.clone();
        if scope == AnswerScope::Run {
            let approval = RememberedApproval { rule, scope, pattern, by, other_voters };
            self.people.approvals.push(approval);
        }
    }

    /// Returns the first call that asks a person a question, which a message to the run can answer.
    /// `None` if no question is open.
    pub(crate) fn first_asking_call(&self) -> Option<CallId> {
        self.first_open_question().map(|(call, _)| call)
    }

    /// Returns the first call that asks a person a question, with the gate of the question. `None`
    /// if no question is open. Questions of tools are left out, because messages to the run do not
    /// answer them.
    pub(crate) fn first_open_question(&self) -> Option<(CallId, &GateSpec)> {
        self.calls().iter().filter(|call| call.unanswered_question().is_none()).find_map(|call| {
            let open = self.find_open_gate(call.gate()?)?;
            let is_question = matches!(open.kind, GateKind::Question | GateKind::Blocked);
            is_question.then_some((call.id, open))
        })
    }

    pub(crate) fn answers_first_question(&self, text: &str) -> bool {
        let question = self.first_open_question();
        question.is_some_and(|(_, question)| check_question_answer(question, text).is_ok())
    }

    pub(super) fn apply_steer_queued(&mut self, data: &SteerMessage) {
        self.submitters.add(&data.by);
        let answers =
            data.delivery != SteerDelivery::FollowUp && self.answers_first_question(&data.text);
        self.people.steers.push(QueuedSteer {
            id: data.steer,
            text: data.text.as_str().into(),
            delivery: data.delivery,
            answers,
            is_task: data.is_task,
            by: data.by.clone(),
        });
    }

    /// Returns the text of a queued message that gives the run a further task. `None` means that
    /// the message is an ordinary one, or not queued.
    pub(crate) fn text_of_queued_message_if_task(&self, id: SteerId) -> Option<Arc<str>> {
        let steer = self.people.steers.iter().find(|steer| steer.id == id && steer.is_task)?;
        Some(Arc::clone(&steer.text))
    }

    pub(super) fn apply_steer_changed(&mut self, data: &SteerMessage) {
        self.submitters.add(&data.by);
        let is_answer = self.first_asking_call().map(|_| self.answers_first_question(&data.text));
        if let Some(steer) = self.people.steers.iter_mut().find(|steer| steer.id == data.steer) {
            steer.text = data.text.as_str().into();
            steer.delivery = data.delivery;
            steer.by.clone_from(&data.by);
            steer.answers =
                data.delivery != SteerDelivery::FollowUp && is_answer.unwrap_or(steer.answers);
        }
    }

    pub(super) fn remove_steer(&mut self, id: SteerId) {
        self.people.steers.retain(|steer| steer.id != id);
    }

    pub(super) fn apply_steer_delivered(&mut self, data: &SteerDelivered) -> ApplyResult {
        let Some(index) = self.people.steers.iter().position(|steer| steer.id == data.steer) else {
            return Err("this message is not queued");
        };
        let steer = self.people.steers.remove(index);
        self.guards.forget_repetitions();
        self.outcome.reset_count();
        if !data.as_answer {
            return self.add_message_between_turns(Message::user(steer.text));
        }
        if let Some(call) = self.first_asking_call() {
            let text = data.answer.clone().unwrap_or_else(|| steer.text.to_string());
            self.call_mut(call)?.state = ToolCallState::from_result_text(text, false);
        }
        NO_MESSAGES
    }
}
