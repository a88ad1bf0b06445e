//! Facts about gates, taken in: what an answer means for whoever waited.
//!
//! Never: judges an answer. That was done before it was written down.

use longhaul_core::event::gate::{GateAnswer, GateExpired, GateNotice, GateRaised};
use longhaul_core::id::GateId;
use longhaul_core::message::Message;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateSpec, OnTimeout};
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunError;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::legacy_output::output_from_edit;
use crate::state::call::{Call, CallState};
use crate::state::control::Control;
use crate::state::stage::{ModelPending, Stage};

impl Control {
    pub(super) fn gate_raised(&mut self, data: &GateRaised) -> ApplyResult {
        let gate = &data.gate;
        if let Some(id) = gate.call {
            let call = self.call_mut(id)?;
            call.state = match gate.kind == GateKind::Approval {
                true => CallState::Gated(gate.id),
                false => CallState::AwaitingAnswer(gate.id),
            };
        } else if gate.kind == GateKind::Result {
            let Stage::Concluding(concluding) = &mut self.stage else {
                return Err("a result is asked about at the end");
            };
            concluding.gate = Some(gate.id);
        }
        self.gates.push(gate.clone());
        NO_MESSAGES
    }

    pub(super) fn gate_withdrawn(&mut self, data: &GateNotice) -> ApplyResult {
        self.close_gate(data.gate);
        if let Stage::Concluding(concluding) = &mut self.stage
            && concluding.gate == Some(data.gate)
        {
            concluding.gate = None;
        }
        NO_MESSAGES
    }

    fn close_gate(&mut self, gate: GateId) -> Option<GateSpec> {
        let place = self.gates.iter().position(|open| open.id == gate)?;
        if self.blocked_on == Some(gate) {
            self.blocked_on = None;
            self.crashes = 0;
        }
        Some(self.gates.remove(place))
    }

    /// An answer to a gate that is closed here changes nothing: the row that
    /// let it pass and the journal agree, so this is never seen.
    pub(super) fn gate_answered(&mut self, data: &GateAnswer) -> ApplyResult {
        let Some(gate) = self.close_gate(data.gate) else {
            return NO_MESSAGES;
        };
        let answer = &data.answer;
        if gate.kind == GateKind::Result {
            return self.result_answered(answer);
        }
        if let Some(call) = self.waiting_call(gate.id) {
            match gate.kind {
                GateKind::Approval => approval_answered(call, answer),
                GateKind::InDoubt => in_doubt_answered(call, answer),
                GateKind::Question | GateKind::Blocked | GateKind::Signal | GateKind::Result => {
                    call.state = CallState::settling(answer_text(answer), false);
                }
            }
        }
        NO_MESSAGES
    }

    fn waiting_call(&mut self, gate: GateId) -> Option<&mut Call> {
        let mut calls = self.calls_mut().iter_mut();
        calls.find(|call| call.gate() == Some(gate))
    }

    fn result_answered(&mut self, answer: &Answer) -> ApplyResult {
        let Stage::Concluding(concluding) = &mut self.stage else {
            return NO_MESSAGES;
        };
        concluding.gate = None;
        match &answer.decision {
            Decision::Approve | Decision::Complete | Decision::Answer(_) => {
                concluding.approved = true;
            }
            Decision::Edit(edited) => {
                concluding.approved = true;
                concluding.output = output_from_edit(edited);
            }
            Decision::Reject => match answer.note.as_ref().filter(|note| !note.trim().is_empty()) {
                Some(note) => {
                    let note = Message::user(note.as_str());
                    self.stage = Stage::ModelPending(ModelPending::default());
                    return Ok(vec![note]);
                }
                None => {
                    let words = format!("{} rejected the result", answer.by);
                    self.pending_failure = Some(RunError::new("rejected", words, ""));
                }
            },
        }
        NO_MESSAGES
    }

    pub(super) fn gate_expired(&mut self, data: &GateExpired) -> ApplyResult {
        let Some(gate) = self.close_gate(data.gate) else {
            return NO_MESSAGES;
        };
        match data.on_timeout {
            OnTimeout::Fail => {
                let words = format!("nobody answered in time: {}", gate.ask);
                self.pending_failure = Some(RunError::new("gate_expired", words, ""));
            }
            OnTimeout::Pause => {
                self.pause.get_or_insert_with(|| "an unanswered gate".into());
                self.reset_question(&gate);
            }
            OnTimeout::Approve => self.expire_gate(&gate, true),
            OnTimeout::Reject => self.expire_gate(&gate, false),
        }
        NO_MESSAGES
    }

    /// After a pause the question is asked again: it was never answered.
    fn reset_question(&mut self, gate: &GateSpec) {
        if let Stage::Concluding(concluding) = &mut self.stage {
            concluding.gate = None;
        }
        if let Some(call) = self.waiting_call(gate.id) {
            call.state = match gate.kind == GateKind::InDoubt {
                true => CallState::InDoubt {
                    policy: InDoubtPolicy::Ask,
                    can_verify: false,
                    reason: None,
                },
                false => CallState::Unevaluated,
            };
        }
    }

    fn expire_gate(&mut self, gate: &GateSpec, approved: bool) {
        if let Stage::Concluding(concluding) = &mut self.stage
            && concluding.gate == Some(gate.id)
        {
            concluding.gate = None;
            concluding.approved = approved;
            if !approved {
                let words = "nobody approved the result in time";
                self.pending_failure = Some(RunError::new("rejected", words, ""));
            }
        }
        if let Some(call) = self.waiting_call(gate.id) {
            call.state = match approved && gate.kind == GateKind::Approval {
                true => CallState::Ready,
                false => CallState::settling("nobody answered in time", true),
            };
        }
    }
}

fn approval_answered(call: &mut Call, answer: &Answer) {
    match &answer.decision {
        Decision::Approve | Decision::Complete | Decision::Answer(_) => {
            call.state = CallState::Ready;
        }
        Decision::Edit(edited) => {
            call.edited = Some(edited.clone());
            call.state = CallState::Ready;
            // Nobody has appraised what a person wrote: it may be anything.
            if call.classification.class.may_repeat() {
                call.classification.class = EffectClass::Once;
            }
        }
        Decision::Reject => {
            call.state =
                CallState::settling(with_note("a person rejected this call", answer), true);
            return;
        }
    }
    call.approval_note = answer_note(answer);
}

/// What happened, and what the person said about it.
fn with_note(what: &str, answer: &Answer) -> String {
    match answer_note(answer) {
        Some(words) => format!("{what}: {words}"),
        None => what.to_owned(),
    }
}

/// The words and data that came with an answer.
fn answer_note(answer: &Answer) -> Option<String> {
    let payload = answer.payload.as_ref().map(RawJson::as_str);
    let said = [answer.note.as_deref(), payload];
    let said: Vec<&str> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join("\n"))
}

/// What a person says of a call that was cut off. Yes: it has not happened and
/// may begin anew; no: it has not happened and shall not; words: what came of it.
fn in_doubt_answered(call: &mut Call, answer: &Answer) {
    call.state = match &answer.decision {
        Decision::Approve | Decision::Edit(_) => {
            call.approval_note = answer_note(answer);
            CallState::Ready
        }
        Decision::Reject => {
            CallState::settling(with_note("a person says: it did not happen", answer), true)
        }
        Decision::Answer(_) | Decision::Complete => CallState::settling(answer_text(answer), false),
    };
}

/// Everything a person said, for the model.
fn answer_text(answer: &Answer) -> String {
    let decision = match &answer.decision {
        Decision::Answer(words) => Some(words.clone()),
        Decision::Reject => Some("no".into()),
        Decision::Complete => Some("it has happened".into()),
        Decision::Approve => Some("yes".into()),
        Decision::Edit(edited) => Some(edited.as_str().to_owned()),
    };
    let said = [decision, answer_note(answer)];
    said.into_iter().flatten().collect::<Vec<_>>().join("\n")
}
