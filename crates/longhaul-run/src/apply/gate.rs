//! Applies events about gates to the control state of a run (everything but its conversation).
//! Answers were checked before they were recorded.

use longhaul_core::event::gate::{GateAnswer, GateExpired, GateNotice, GateRaised};
use longhaul_core::id::GateId;
use longhaul_core::message::Message;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{Answer, GateDecision, GateKind, GateSpec, GateTimeoutAction};
use longhaul_core::port::tool::ToolQuestionAnswer;
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunError;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::output::output_from_human_edit;
use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::control::ControlState;
use crate::state::stage::{PendingModelCall, RunStage};

/// Maximum length in bytes of one report that tells the model how a gate that a program raised was
/// closed, or how a child run ended.
const SIGNAL_BYTES_MAX: usize = 64 * 1024;
/// Maximum total length in bytes of the reports that the model has not read yet. Beyond it, each
/// further report is cut to 256 bytes.
const SIGNALS_BYTES_MAX: usize = 256 * 1024;

impl ControlState {
    pub(super) fn apply_gate_raised(&mut self, data: &GateRaised) -> ApplyResult {
        let gate = &data.gate;
        gate.earlier_submitters.iter().for_each(|name| self.submitters.add(name));
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
        self.people.gates.push(gate.clone());
        NO_MESSAGES
    }

    /// Adds a report that the model reads in its next turn: how a gate that a program raised was
    /// closed, or how a child run ended. A long text is cut.
    pub(super) fn add_report_for_model(&mut self, mut text: String) {
        let pending: usize = self.unread_reports.iter().map(|text| text.len()).sum();
        let max = SIGNAL_BYTES_MAX.min(SIGNALS_BYTES_MAX.saturating_sub(pending)).max(256);
        if text.len() > max {
            text.truncate(text.floor_char_boundary(max));
            text.push_str(" [cut]");
        }
        self.unread_reports.push(text.into());
    }

    /// Returns whether the model must read the unread reports before the run ends. False if no turn
    /// is left, or if the output is from a handler (a function that replaces the model).
    pub(crate) fn must_model_read_reports(&self) -> bool {
        let by_handler = matches!(&self.stage, RunStage::Concluding(state) if state.by_handler);
        let has_turn = self.budget.caps.turns.is_none_or(|max| self.turns < max);
        !self.unread_reports.is_empty() && has_turn && !self.has_used_all_turns() && !by_handler
    }

    pub(super) fn apply_gate_withdrawn(&mut self, data: &GateNotice) {
        self.close_gate(data.gate);
        self.take_vote_notes(data.gate);
    }

    /// Remembers the note and the payload of a vote until its gate is closed.
    pub(super) fn apply_gate_voted(&mut self, data: &GateAnswer) {
        if note_and_payload_text(&data.answer).is_some() {
            self.people.votes.push(data.clone());
        }
    }

    /// Removes the votes on a gate, and returns their notes and payloads as paragraphs.
    fn take_vote_notes(&mut self, gate: GateId) -> Vec<String> {
        let votes = self.people.votes.extract_if(.., |vote| vote.gate == gate);
        votes.filter_map(|vote| note_and_payload_text(&vote.answer)).collect()
    }

    fn close_gate(&mut self, gate: GateId) -> Option<GateSpec> {
        if let RunStage::Concluding(concluding) = &mut self.stage
            && concluding.gate == Some(gate)
        {
            concluding.gate = None;
        }
        let index = self.people.gates.iter().position(|open| open.id == gate)?;
        if self.stop.blocked.is_some_and(|blocked| blocked.gate == gate) {
            self.stop.blocked = None;
            self.driver.crashes = 0;
        }
        Some(self.people.gates.remove(index))
    }

    /// Applies an answer to a gate. An answer to a closed gate would have no effect, but can't
    /// occur: the gate's row in the store rejects it before it is recorded.
    pub(super) fn apply_gate_answered(&mut self, data: &GateAnswer) -> ApplyResult {
        let Some(gate) = self.close_gate(data.gate) else { return NO_MESSAGES };
        let vote_notes = self.take_vote_notes(gate.id);
        if gate.kind == GateKind::Result {
            return self.apply_result_answer(&data.answer, vote_notes);
        }
        let answer = &prepend_vote_notes(data.answer.clone(), vote_notes);
        if gate.is_signal_gate_without_tool_call() {
            // Like a message: nobody asked this person or program.
            self.submitters.add(&answer.by);
            self.add_report_for_model(signal_gate_answer_text(&gate, answer));
        }
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            match gate.kind {
                GateKind::Approval => apply_approval_answer(call, answer),
                GateKind::InDoubt => apply_in_doubt_answer(call, answer),
                GateKind::Question if call.try_answer_question(to_tool_answer(answer)) => {}
                GateKind::Question | GateKind::Blocked | GateKind::Signal | GateKind::Result => {
                    call.state = ToolCallState::from_result_text(answer_text(answer), false);
                }
            }
        }
        NO_MESSAGES
    }

    fn call_waiting_at_gate(&mut self, gate: GateId) -> Option<&mut TrackedCall> {
        let mut calls = self.calls_mut().iter_mut();
        calls.find(|call| call.gate() == Some(gate))
    }

    fn apply_result_answer(&mut self, answer: &Answer, vote_notes: Vec<String>) -> ApplyResult {
        let RunStage::Concluding(concluding) = &mut self.stage else { return NO_MESSAGES };
        if answer.decision == GateDecision::Reject {
            return self.apply_result_rejection(answer, vote_notes);
        }
        concluding.answer = note_and_payload_text(answer).map(|_| answer.into());
        let combined = prepend_vote_notes(answer.clone(), vote_notes);
        Ok(self.approve_result(answer.decision.edit(), note_and_payload_text(&combined)))
    }

    /// Approves the output, as edited by a person. A run that stays open may continue, so the
    /// returned message tells the model what the person changed and noted.
    fn approve_result(&mut self, edited: Option<&RawJson>, note: Option<String>) -> Vec<Message> {
        let RunStage::Concluding(concluding) = &mut self.stage else { return Vec::new() };
        concluding.approved = true;
        let verdict = match edited {
            Some(edited) => {
                concluding.output = output_from_human_edit(edited);
                format!("A person changed the result to:\n\n{}", concluding.output.text)
            }
            None => "A person approved the result.".to_owned(),
        };
        let is_reported = self.policy.keep_open.is_some() && (edited.is_some() || note.is_some());
        let text = [Some(verdict), note].into_iter().flatten().collect::<Vec<_>>().join("\n\n");
        is_reported.then(|| Message::user(text)).into_iter().collect()
    }

    /// Sends the result back to the model with the note or the payload of the rejection. Ends the
    /// run if the rejection has neither.
    fn apply_result_rejection(&mut self, answer: &Answer, vote_notes: Vec<String>) -> ApplyResult {
        self.result_rejected = true;
        match note_and_payload_text(answer) {
            Some(_) => {
                self.stage = RunStage::ModelPending(PendingModelCall::default());
                let combined = prepend_vote_notes(answer.clone(), vote_notes);
                Ok(note_and_payload_text(&combined).map(Message::user).into_iter().collect())
            }
            None => {
                let message = format!("{} rejected the result", answer.by);
                self.stop.failure = Some(RunError::new("rejected", message, ""));
                NO_MESSAGES
            }
        }
    }

    pub(super) fn apply_gate_expired(&mut self, data: &GateExpired) -> ApplyResult {
        let Some(gate) = self.close_gate(data.gate) else { return NO_MESSAGES };
        let vote_notes = self.take_vote_notes(gate.id);
        match data.on_timeout {
            GateTimeoutAction::Fail => {
                let message = format!("nobody answered before the deadline: {}", gate.ask);
                self.stop.failure = Some(RunError::new("gate_expired", message, ""));
            }
            GateTimeoutAction::Pause => {
                self.stop.pause.get_or_insert_with(|| "an unanswered gate".into());
                self.reset_at_expired_gate(&gate);
            }
            GateTimeoutAction::Approve => {
                let note = (!vote_notes.is_empty()).then(|| vote_notes.join("\n\n"));
                return Ok(self.approve_at_timeout(&gate, data.edited.as_ref(), note));
            }
            GateTimeoutAction::Reject => self.reject_at_timeout(&gate),
        }
        if gate.is_signal_gate_without_tool_call() {
            let text =
                format!("[longhaul] This has not happened before the deadline: {}", gate.ask);
            self.add_report_for_model(text);
        }
        NO_MESSAGES
    }

    /// Lets a run that is about to end call its model again, if the model must read reports first.
    pub(super) fn reopen_for_reports(&mut self) {
        if let RunStage::Concluding(concluding) = &self.stage
            && concluding.gate.is_none()
            && self.must_model_read_reports()
        {
            self.stage = RunStage::ModelPending(PendingModelCall::default());
        }
    }

    /// Resets the tool call that waits at an expired gate. The timeout of the gate has paused the
    /// run; when a person resumes it, a new gate asks again.
    fn reset_at_expired_gate(&mut self, gate: &GateSpec) {
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            call.state = match gate.kind == GateKind::InDoubt {
                true => ToolCallState::InDoubt {
                    policy: InDoubtPolicy::Ask,
                    can_verify: false,
                    reason: None,
                },
                false if call.unanswered_question().is_some() => ToolCallState::InputRequired,
                false => ToolCallState::Unevaluated,
            };
        }
    }

    /// Approves what waits at an expired gate, as edited by the newest vote that contains an edit.
    /// `note` has the notes of the votes. Returns the message for the model.
    fn approve_at_timeout(
        &mut self,
        gate: &GateSpec,
        edited: Option<&RawJson>,
        note: Option<String>,
    ) -> Vec<Message> {
        if gate.kind == GateKind::Result {
            return self.approve_result(edited, note);
        }
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            match gate.kind == GateKind::Approval {
                true => {
                    approve_call(call, edited);
                    call.approval_note = note;
                }
                false => continue_after_timeout(call),
            }
        }
        Vec::new()
    }

    fn reject_at_timeout(&mut self, gate: &GateSpec) {
        if gate.kind == GateKind::Result {
            let message = "the result was not approved before the deadline";
            self.stop.failure = Some(RunError::new("rejected", message, ""));
        }
        if let Some(call) = self.call_waiting_at_gate(gate.id) {
            continue_after_timeout(call);
        }
    }
}

/// Continues a call whose gate nobody has answered in time. A tool that has asked a question learns
/// that nobody answered; any other call gets this as an error result.
fn continue_after_timeout(call: &mut TrackedCall) {
    if !call.try_answer_question(ToolQuestionAnswer::Unanswered) {
        let text = "nobody answered before the deadline";
        call.state = ToolCallState::from_result_text(text, true);
    }
}

/// Converts a person's answer to the form that the tool that asked the question receives. Notes are
/// left out.
fn to_tool_answer(answer: &Answer) -> ToolQuestionAnswer {
    match &answer.decision {
        GateDecision::Answer(text) => RawJson::parse(text.as_str())
            .map_or(ToolQuestionAnswer::Declined, ToolQuestionAnswer::Answered),
        GateDecision::Approve
        | GateDecision::Edit(_)
        | GateDecision::Reject
        | GateDecision::Complete => ToolQuestionAnswer::Declined,
    }
}

/// Allows a call to start, with the arguments that a person edited. `None` means that nobody edited
/// them.
fn approve_call(call: &mut TrackedCall, edited_arguments: Option<&RawJson>) {
    call.state = ToolCallState::Ready;
    if let Some(edited) = edited_arguments {
        call.edited = Some(edited.clone());
        // The edited arguments were not classified, so the call may have any effect.
        if call.classification.class.may_repeat() {
            call.classification.class = EffectClass::Once;
        }
    }
}

fn apply_approval_answer(call: &mut TrackedCall, answer: &Answer) {
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

fn record_approval_note(call: &mut TrackedCall, answer: &Answer) {
    call.approval_note.clone_from(&answer.note);
    call.approval_payload.clone_from(&answer.payload);
}

/// Returns the text, followed by the note of the answer if there is one.
fn append_answer_note(text: &str, answer: &Answer) -> String {
    match note_and_payload_text(answer) {
        Some(note) => format!("{text}: {note}"),
        None => text.to_owned(),
    }
}

/// Returns the answer that closed a gate with the notes of the earlier votes before its own note.
fn prepend_vote_notes(mut answer: Answer, vote_notes: Vec<String>) -> Answer {
    if !vote_notes.is_empty() {
        let notes: Vec<String> = vote_notes.into_iter().chain(answer.note.take()).collect();
        answer.note = Some(notes.join("\n\n"));
    }
    answer
}

/// Returns the note and the payload of an answer as paragraphs. `None` means that it has neither.
fn note_and_payload_text(answer: &Answer) -> Option<String> {
    let payload = answer.payload.as_ref().map(RawJson::as_str);
    let note = answer.note.as_deref().filter(|note| !note.trim().is_empty());
    let parts: Vec<&str> = [note, payload].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Applies an answer about a call in doubt (outcome unknown). Approve: the call has not taken
/// effect and may run again. Reject: the call has not taken effect and must not run. Any other
/// answer: its text is the result of the call.
fn apply_in_doubt_answer(call: &mut TrackedCall, answer: &Answer) {
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
    let parts = [decision, note_and_payload_text(answer)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

/// Returns the message for the model about the answer to a gate that a program raised.
fn signal_gate_answer_text(gate: &GateSpec, answer: &Answer) -> String {
    let expected_event = &gate.ask;
    let result = match &answer.decision {
        GateDecision::Answer(text) => format!("[longhaul] {expected_event}: {text}"),
        GateDecision::Reject => format!("[longhaul] This will not happen: {expected_event}"),
        GateDecision::Approve | GateDecision::Edit(_) | GateDecision::Complete => {
            format!("[longhaul] This has happened: {expected_event}")
        }
    };
    let parts = [Some(result), note_and_payload_text(answer)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}
