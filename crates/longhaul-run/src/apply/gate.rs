//! Applies events about gates to the control state. Answers were checked before they were recorded.

use longhaul_core::event::gate::{GateAnswer, GateExpired, GateNotice, GateRaised};
use longhaul_core::id::GateId;
use longhaul_core::message::Message;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{Answer, GateDecision, GateKind, GateSpec, GateTimeoutAction};
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunError;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::legacy_output::output_from_human_edit;
use crate::state::call::{ToolCallState, TrackedToolCall};
use crate::state::control::ControlState;
use crate::state::stage::{PendingModelCall, RunStage};

impl ControlState {
    pub(super) fn apply_gate_raised(&mut self, data: &GateRaised) -> ApplyResult {
        let gate = &data.gate;
        if let Some(id) = gate.call {
            let call = self.call_mut(id)?;
            call.state = match gate.kind == GateKind::Approval {
                true => ToolCallState::Gated(gate.id),
                false => ToolCallState::AwaitingAnswer(gate.id),
            };
        } else if gate.kind == GateKind::Result {
            let RunStage::Concluding(concluding) = &mut self.stage else {
                return Err("the output is approved only at the end");
            };
            concluding.gate = Some(gate.id);
        }
        self.gates.push(gate.clone());
        NO_MESSAGES
    }

    pub(super) fn apply_gate_withdrawn(&mut self, data: &GateNotice) -> ApplyResult {
        self.close_gate(data.gate);
        if let RunStage::Concluding(concluding) = &mut self.stage
            && concluding.gate == Some(data.gate)
        {
            concluding.gate = None;
        }
        NO_MESSAGES
    }

    fn close_gate(&mut self, gate: GateId) -> Option<GateSpec> {
        let index = self.gates.iter().position(|open| open.id == gate)?;
        if self.blocked_on == Some(gate) {
            self.blocked_on = None;
            self.blocked_resumed = false;
            self.crashes = 0;
        }
        Some(self.gates.remove(index))
    }

    /// Applies an answer to a gate. An answer to a closed gate would have no effect, but can't
    /// occur: the gate's row in the store rejects it before it is recorded.
    pub(super) fn apply_gate_answered(&mut self, data: &GateAnswer) -> ApplyResult {
        let Some(gate) = self.close_gate(data.gate) else {
            return NO_MESSAGES;
        };
        let answer = &data.answer;
        if gate.kind == GateKind::Result {
            return self.apply_result_gate_answer(answer);
        }
        if gate.is_signal_without_call() {
            self.signal_answers.push(signal_answer_text(&gate, answer).into());
        }
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            match gate.kind {
                GateKind::Approval => apply_approval_answer(call, answer),
                GateKind::InDoubt => apply_in_doubt_answer(call, answer),
                GateKind::Question | GateKind::Blocked | GateKind::Signal | GateKind::Result => {
                    call.state = ToolCallState::from_result_text(answer_text(answer), false);
                }
            }
        }
        NO_MESSAGES
    }

    fn call_waiting_at_gate(&mut self, gate: GateId) -> Option<&mut TrackedToolCall> {
        let mut calls = self.calls_mut().iter_mut();
        calls.find(|call| call.gate() == Some(gate))
    }

    fn apply_result_gate_answer(&mut self, answer: &Answer) -> ApplyResult {
        let RunStage::Concluding(concluding) = &mut self.stage else {
            return NO_MESSAGES;
        };
        concluding.gate = None;
        if answer.decision == GateDecision::Reject {
            return self.apply_result_rejection(answer);
        }
        concluding.approved = true;
        let note = answer_note(answer);
        concluding.answer = note.as_ref().map(|_| answer.into());
        if let GateDecision::Edit(edited) = &answer.decision {
            concluding.output = output_from_human_edit(edited);
        }
        // A run that stays open may continue, so the model must learn what the person answered.
        match note.filter(|_| self.policy.keep_open.is_some()) {
            Some(note) => {
                Ok(vec![Message::user(format!("A person approved the result.\n\n{note}"))])
            }
            None => NO_MESSAGES,
        }
    }

    fn apply_result_rejection(&mut self, answer: &Answer) -> ApplyResult {
        let has_note = answer.note.as_ref().is_some_and(|note| !note.trim().is_empty());
        match answer_note(answer).filter(|_| has_note) {
            Some(note) => {
                self.stage = RunStage::ModelPending(PendingModelCall::default());
                Ok(vec![Message::user(note)])
            }
            None => {
                let message = format!("{} rejected the result", answer.by);
                self.pending_failure = Some(RunError::new("rejected", message, ""));
                NO_MESSAGES
            }
        }
    }

    pub(super) fn apply_gate_expired(&mut self, data: &GateExpired) -> ApplyResult {
        let Some(gate) = self.close_gate(data.gate) else {
            return NO_MESSAGES;
        };
        match data.on_timeout {
            GateTimeoutAction::Fail => {
                let message = format!("nobody answered before the deadline: {}", gate.ask);
                self.pending_failure = Some(RunError::new("gate_expired", message, ""));
            }
            GateTimeoutAction::Pause => {
                self.pause.get_or_insert_with(|| "an unanswered gate".into());
                self.reset_expired_question(&gate);
            }
            GateTimeoutAction::Approve => {
                self.apply_gate_timeout_approval(&gate, data.edited.as_ref());
            }
            GateTimeoutAction::Reject => self.apply_gate_timeout_rejection(&gate),
        }
        if gate.is_signal_without_call() {
            let text =
                format!("[longhaul] This has not happened before the deadline: {}", gate.ask);
            self.signal_answers.push(text.into());
        }
        NO_MESSAGES
    }

    /// Lets a run go on that would end before its model has learned of the answer to a gate of a
    /// program.
    pub(super) fn continue_for_signal_answers(&mut self) {
        if let RunStage::Concluding(concluding) = &self.stage
            && concluding.gate.is_none()
            && !self.signal_answers.is_empty()
        {
            self.stage = RunStage::ModelPending(PendingModelCall::default());
        }
    }

    /// Resets the tool call or the output that waits at an expired gate, so that a new gate asks
    /// again after the pause.
    fn reset_expired_question(&mut self, gate: &GateSpec) {
        if let RunStage::Concluding(concluding) = &mut self.stage {
            concluding.gate = None;
        }
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            call.state = match gate.kind == GateKind::InDoubt {
                true => ToolCallState::InDoubt {
                    policy: InDoubtPolicy::Ask,
                    can_verify: false,
                    reason: None,
                },
                false => ToolCallState::Unevaluated,
            };
        }
    }

    /// Approves what waits at an expired gate, as edited by the newest vote that contains an edit.
    fn apply_gate_timeout_approval(&mut self, gate: &GateSpec, edited: Option<&RawJson>) {
        if let RunStage::Concluding(concluding) = &mut self.stage
            && concluding.gate == Some(gate.id)
        {
            concluding.gate = None;
            concluding.approved = true;
            if let Some(edited) = edited {
                concluding.output = output_from_human_edit(edited);
            }
        }
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            match gate.kind == GateKind::Approval {
                true => approve_call(call, edited),
                false => call.state = unanswered_call_state(),
            }
        }
    }

    fn apply_gate_timeout_rejection(&mut self, gate: &GateSpec) {
        if let RunStage::Concluding(concluding) = &mut self.stage
            && concluding.gate == Some(gate.id)
        {
            concluding.gate = None;
            let message = "the result was not approved before the deadline";
            self.pending_failure = Some(RunError::new("rejected", message, ""));
        }
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            call.state = unanswered_call_state();
        }
    }
}

fn unanswered_call_state() -> ToolCallState {
    ToolCallState::from_result_text("nobody answered before the deadline", true)
}

/// Lets a call start, with the arguments of the person who edited it.
fn approve_call(call: &mut TrackedToolCall, edited: Option<&RawJson>) {
    call.state = ToolCallState::Ready;
    if let Some(edited) = edited {
        call.edited = Some(edited.clone());
        // The edited arguments were not classified, so the call may have any effect.
        if call.classification.class.may_repeat() {
            call.classification.class = EffectClass::Once;
        }
    }
}

fn apply_approval_answer(call: &mut TrackedToolCall, answer: &Answer) {
    match &answer.decision {
        GateDecision::Approve | GateDecision::Complete | GateDecision::Answer(_) => {
            approve_call(call, None);
        }
        GateDecision::Edit(edited) => approve_call(call, Some(edited)),
        GateDecision::Reject => {
            call.state = ToolCallState::from_result_text(
                append_answer_note("a person rejected this call", answer),
                true,
            );
            return;
        }
    }
    record_approval_note(call, answer);
}

fn record_approval_note(call: &mut TrackedToolCall, answer: &Answer) {
    call.approval_note.clone_from(&answer.note);
    call.approval_payload.clone_from(&answer.payload);
}

/// Returns the text, followed by the note of the answer if there is one.
fn append_answer_note(text: &str, answer: &Answer) -> String {
    match answer_note(answer) {
        Some(note) => format!("{text}: {note}"),
        None => text.to_owned(),
    }
}

/// Returns the note and the payload of an answer as paragraphs. `None` means that it has neither.
fn answer_note(answer: &Answer) -> Option<String> {
    let payload = answer.payload.as_ref().map(RawJson::as_str);
    let parts = [answer.note.as_deref(), payload];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Applies an answer about a call in doubt. Approve: the call has not taken effect and may run
/// again. Reject: the call has not taken effect and must not run. Any other answer: its text is the
/// result of the call.
fn apply_in_doubt_answer(call: &mut TrackedToolCall, answer: &Answer) {
    call.state = match &answer.decision {
        GateDecision::Approve | GateDecision::Edit(_) => {
            record_approval_note(call, answer);
            ToolCallState::Ready
        }
        GateDecision::Reject => ToolCallState::from_result_text(
            append_answer_note("a person confirmed that it did not happen", answer),
            true,
        ),
        GateDecision::Answer(_) | GateDecision::Complete => {
            ToolCallState::from_result_text(answer_text(answer), false)
        }
    };
}

/// Returns the decision, note and payload of an answer as paragraphs for the model.
fn answer_text(answer: &Answer) -> String {
    let decision = match &answer.decision {
        GateDecision::Answer(text) => Some(text.clone()),
        GateDecision::Reject => Some("no".into()),
        GateDecision::Complete => Some("it has happened".into()),
        GateDecision::Approve => Some("yes".into()),
        GateDecision::Edit(edited) => Some(edited.as_str().to_owned()),
    };
    let parts = [decision, answer_note(answer)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

/// Returns the message for the model about the answer to a gate that a program raised.
fn signal_answer_text(gate: &GateSpec, answer: &Answer) -> String {
    let ask = &gate.ask;
    let result = match &answer.decision {
        GateDecision::Answer(text) => format!("[longhaul] {ask}: {text}"),
        GateDecision::Reject => format!("[longhaul] This will not happen: {ask}"),
        GateDecision::Approve | GateDecision::Edit(_) | GateDecision::Complete => {
            format!("[longhaul] This has happened: {ask}")
        }
    };
    let parts = [Some(result), answer_note(answer)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}
