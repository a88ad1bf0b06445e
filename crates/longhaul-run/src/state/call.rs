//! State of one tool call of a reply, from the evaluation of the approval rules to the result.
//!
//! Invariant: a call has at most one result, and a call that is done never changes.

use std::sync::Arc;

use longhaul_core::event::tool::{ToolOutput, ToolQuestion, ToolSuspension};
use longhaul_core::event::turn::ToolCallClassification;
use longhaul_core::id::{CallId, Epoch, GateId, RunId, TimerId};
use longhaul_core::message::{Part, ToolResult};
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::effect_key::EffectKeyHolder;
use longhaul_core::port::tool::{ToolQuestionAnswer, ToolResumption};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A timer that a run or one of its tool calls waits for, or that delays the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingTimer {
    pub timer: TimerId,
    /// Time at which the pending timer is due.
    pub until: Timestamp,
    pub fired: bool,
}

/// Returns the id of a timer that has not fired. `None` if it has fired, or if there is none.
pub(crate) fn unfired_timer(pending: Option<PendingTimer>) -> Option<TimerId> {
    pending.filter(|pending| !pending.fired).map(|pending| pending.timer)
}

/// One tool call of a reply, with its current state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedCall {
    /// Id of the tool call: turn and index within the turn.
    pub id: CallId,
    /// Id that the model provider gave the tool call.
    pub provider_id: String,
    /// Arguments of the tool call as the model wrote them.
    pub input: RawJson,
    /// What the engine has determined about the tool call, such as its effect class.
    pub classification: ToolCallClassification,
    /// Number of times the tool call was started.
    pub starts: u32,
    /// Arguments with which a person replaced those of the model. `None` means that nobody did.
    pub edited: Option<RawJson>,
    /// Note of the person who approved the tool call. `None` means that there is no note.
    pub approval_note: Option<String>,
    /// Structured data of the answer that approved the tool call. `None` means that there is no
    /// such answer, or that it has no data.
    pub approval_payload: Option<RawJson>,
    pub state: ToolCallState,
    /// Run that the tool call was copied from. `None` means that this run has made the call.
    pub origin: Option<CopiedToolCallOrigin>,
    /// Call of another run that has claimed the same effect key and whose outcome is unknown. If a
    /// person allows it, this call takes over the key. `None` means that there is no such call.
    pub replaces: Option<EffectKeyHolder>,
    /// Data about the suspension of the call. `None` means that the tool has never suspended it.
    pub suspended: Option<Arc<CallSuspension>>,
}

/// What is known about a call that its tool has suspended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSuspension {
    /// Stored state with which the tool continues the call.
    pub suspension: ToolSuspension,
    /// Time at which the call became pending for the first time. `None` means that it never was.
    pub since: Option<Timestamp>,
    /// Number of polls in which the tool had no result yet.
    pub polls: u32,
    /// Number of questions that the tool has asked.
    pub questions: u32,
    /// Question of the tool that is not answered yet. `None` means that no question is open.
    pub question: Option<ToolQuestion>,
    /// Answer to the tool's last question, with which the call is continued. `None` means that
    /// there is no new answer.
    pub answer: Option<ToolQuestionAnswer>,
    /// Number of times the call was continued since it was suspended.
    pub resumes: u32,
    /// Number of times in a row that the tool could not be asked, because it was not available.
    pub postponed: u32,
    /// Last status message of the tool about this call, or the reason why the tool could not be
    /// asked.
    pub message: Option<String>,
    /// Whether the run gives up the call, for the reason in `message`.
    pub given_up: bool,
}

/// Origin of an unfinished tool call that a retry has copied from a failed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedToolCallOrigin {
    /// Run whose model made the tool call. The idempotency key of the call names this run.
    pub run: RunId,
    /// Sum of the epochs (numbers of claims) of all earlier runs that had this call. Added to the
    /// epoch of a claim, it gives a number that tools have not seen for this call.
    pub epochs: Epoch,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolCallState {
    /// The approval rules have not been evaluated for the call yet.
    #[default]
    Unevaluated,
    /// The call is allowed to start, but has not been started yet.
    Ready,
    /// The call waits for a person's approval at this gate.
    Gated(GateId),
    /// The call was started by the worker that had claimed the run in this epoch. Each claim of a
    /// run has a new epoch.
    Started(Epoch),
    /// The call was started, but its outcome is unknown after a crash or an abort.
    InDoubt {
        /// Policy that says how the doubt is resolved.
        policy: InDoubtPolicy,
        /// Whether the tool can still verify whether the call has taken effect.
        can_verify: bool,
        /// Reason why the call's outcome is unknown. `None` means that the journal has no reason.
        reason: Option<String>,
    },
    /// The call waits for a person's answer at this gate. The answer becomes the call's result.
    AwaitingAnswer(GateId),
    /// The call waits for another call that holds the same effect key (name of an effect that must
    /// happen at most once).
    AwaitingKey {
        holder: EffectKeyHolder,
        /// Epoch (number of the run's claim) in which this run found that another call holds the key.
        epoch: Epoch,
    },
    /// The call waits for a timer. Its result is that the time has elapsed.
    Sleeping(PendingTimer),
    /// The call waits for this child run to end. The child run's outcome becomes the call's result.
    AwaitingChild(RunId),
    /// The tool needs a person's answer, and no gate asks for it yet.
    InputRequired,
    /// The tool has no result yet. It is asked again when this timer fires.
    Pending(PendingTimer),
    /// The call's result is known, but not recorded yet.
    ResultReady {
        output: ToolOutput,
        /// Whether the tool call failed.
        is_error: bool,
    },
    /// The call's result is recorded.
    Done {
        output: ToolOutput,
        /// Whether the tool call failed.
        is_error: bool,
    },
}

impl ToolCallState {
    /// Returns the state of a tool call whose result is this text and is not recorded yet.
    pub(crate) fn from_result_text(text: impl Into<std::sync::Arc<str>>, is_error: bool) -> Self {
        Self::ResultReady { output: ToolOutput::text(text), is_error }
    }
}

impl TrackedCall {
    /// Returns the arguments to call the tool with: those of the person who edited them, or else
    /// those of the model.
    pub fn arguments(&self) -> &RawJson {
        self.edited.as_ref().unwrap_or(&self.input)
    }

    /// Returns whether the result of the call is recorded.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, ToolCallState::Done { .. })
    }

    /// Returns whether the worker that has claimed the run in this epoch may start the call: it was
    /// never started, or it was started under an earlier claim and may be repeated.
    pub(crate) fn may_start_under_claim(&self, epoch: Epoch) -> bool {
        use ToolCallState::{AwaitingKey, Ready, Started, Unevaluated};
        matches!(self.state, Unevaluated | Ready | AwaitingKey { .. })
            || matches!(self.state, Started(older) if older < epoch && self.may_repeat())
    }

    pub(crate) fn has_effect_key(&self, hash: Hash) -> bool {
        self.classification.key.as_ref().is_some_and(|key| key.hash == hash)
    }

    /// Returns whether the tool call may be started or continued a second time after a crash.
    pub(crate) fn may_repeat(&self) -> bool {
        match &self.suspended {
            Some(suspended) => suspended.suspension.may_repeat,
            None => self.classification.class.may_repeat(),
        }
    }

    /// Returns whether another system works for the suspended call, so that its tool must be asked
    /// to cancel the work if the run gives up the call.
    pub(crate) fn must_cancel_remote(&self) -> bool {
        let is_open =
            !matches!(self.state, ToolCallState::ResultReady { .. } | ToolCallState::Done { .. });
        is_open && self.suspended.as_ref().is_some_and(|call| call.suspension.must_cancel)
    }

    /// Returns why the run gives up the suspended call. `None` means that it does not.
    pub(crate) fn give_up_reason(&self) -> Option<&str> {
        let suspended = self.suspended.as_ref().filter(|call| call.given_up)?;
        suspended.message.as_deref()
    }

    /// Returns whether the tool is to be asked now for the result of the pending call.
    pub(crate) fn is_tool_poll_due(&self) -> bool {
        let is_poll = self.suspended.as_ref().is_some_and(|call| {
            call.since.is_some() && call.answer.is_none() && call.suspension.may_repeat
        });
        is_poll && matches!(self.state, ToolCallState::Ready | ToolCallState::Started(_))
    }

    /// Returns the tool's question that is not answered yet. `None` means that there is none.
    pub(crate) fn unanswered_question(&self) -> Option<&ToolQuestion> {
        self.suspended.as_ref()?.question.as_ref()
    }

    /// Answers the tool's question, so that the call is continued. Returns `false` if the tool has
    /// asked no question.
    pub(crate) fn try_answer_question(&mut self, answer: ToolQuestionAnswer) -> bool {
        let Some(suspended) = self.suspended.as_mut().filter(|call| call.question.is_some()) else {
            return false;
        };
        let suspended = Arc::make_mut(suspended);
        suspended.question = None;
        suspended.answer = Some(answer);
        self.state = ToolCallState::Ready;
        true
    }

    /// Returns the state and the answer with which the tool continues the call. `None` means that
    /// the tool has never suspended the call.
    pub(crate) fn resumption(&self) -> Option<ToolResumption> {
        let suspended = self.suspended.as_ref()?;
        let state = suspended.suspension.state.clone();
        Some(ToolResumption { state, answer: suspended.answer.clone() })
    }

    /// Returns whether the worker that has claimed the run in this epoch is running the call.
    pub fn is_running_under_claim(&self, epoch: Epoch) -> bool {
        self.state == ToolCallState::Started(epoch)
    }

    /// Returns whether the call must not run at the same time as other calls of the reply. Such
    /// calls run one after another, in the order of the reply.
    pub const fn is_exclusive(&self) -> bool {
        !self.classification.class.may_repeat()
    }

    /// Returns the id of the gate that the call waits for. `None` means that it waits for no gate.
    pub const fn gate(&self) -> Option<GateId> {
        if let ToolCallState::Gated(gate) | ToolCallState::AwaitingAnswer(gate) = &self.state {
            return Some(*gate);
        }
        None
    }

    /// Returns the call's result for the model. `None` means that the result is not recorded yet.
    pub(crate) fn recorded_result(&self) -> Option<ToolResult> {
        let ToolCallState::Done { output, is_error } = &self.state else { return None };
        let notes = [
            ("changed this call to", self.edited.as_ref().map(RawJson::as_str)),
            ("approved this call with the note:", self.approval_note.as_deref()),
            (
                "approved this call with the data:",
                self.approval_payload.as_ref().map(RawJson::as_str),
            ),
        ];
        let notes =
            notes.into_iter().filter_map(|(verb, text)| Some(format!("A person {verb} {}", text?)));
        let content = prepend_notes(notes.collect(), &output.content);
        Some(ToolResult {
            call: self.id,
            id: self.provider_id.clone(),
            content,
            is_error: *is_error,
        })
    }
}

/// Returns the content of a result with notes of people before it. The notes and a text that
/// follows them are one part of several paragraphs, because providers join parts without a break.
fn prepend_notes(mut notes: Vec<String>, content: &[Part]) -> Vec<Part> {
    if notes.is_empty() {
        return content.to_vec();
    }
    let rest = match content {
        [Part::Text(text), rest @ ..] => {
            notes.push(text.to_string());
            rest
        }
        rest => rest,
    };
    let text = Part::Text(notes.join("\n\n").into());
    [text].into_iter().chain(rest.iter().cloned()).collect()
}
