//! Gates (questions and approvals that wait for a person) and remembered approvals in responses, and
//! answers to gates in requests.

use longhaul_core::form::Form;
use longhaul_core::id::{CallId, GateId, RuleId, RunId, Seq};
use longhaul_core::output_reference::OutputReference;
use longhaul_core::policy::effect_facts::{EffectFacts, NOT_KNOWN};
use longhaul_core::policy::effect_key::EffectKeyState;
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateStatus, GateTimeoutAction, RecordedAnswer,
    RulePattern,
};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A gate with all its details.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Gate)]
pub struct GateView {
    /// Id of the gate.
    pub id: GateId,
    /// Run that waits at the gate.
    pub run: RunId,
    /// Type of the gate, such as an approval or a question.
    pub kind: GateKind,
    /// Status of the gate: whether it is open or how it was closed.
    pub status: GateStatus,
    /// Question to the person, or request for approval, in plain text.
    pub ask: String,
    /// Reason why the gate was raised. `None` means that no reason was given.
    pub reason: Option<String>,
    /// Name of the tool whose call waits at the gate. `None` if the gate is not about a call.
    pub tool: Option<String>,
    /// Content that a person must approve: the input of the call or the result of the run, with the
    /// latest edit. `None` if there is nothing to approve.
    pub input: Option<RawJson>,
    /// Texts that approval rules match and that the runtime, not the model, adds to the call, such
    /// as the recipient of a message.
    #[serde(default)]
    pub injected_rule_match_texts: Vec<String>,
    /// References in `input` to outputs of earlier calls. The tool receives the referenced values
    /// instead, and the digest covers the hashes of these values. An edit adds no references.
    #[serde(default)]
    pub outputs: Vec<OutputReference>,
    /// Effect key of the call: the name of an effect that happens at most once over all runs.
    /// `None` means that the call has none.
    pub key: Option<String>,
    /// What the call would change, computed by the server when the model made the call. `None`
    /// means that it is not known, or that the gate is not about a call. An edit of the input does
    /// not change it.
    pub facts: Option<EffectFacts>,
    /// Changes of files that the call would make, as a unified diff. `None` if no change is known.
    /// An edit of the input does not change the diff.
    pub diff: Option<String>,
    /// Digest (hash) of the content to approve, such as `input` and `facts`. An approval must
    /// contain it, to show what was approved.
    pub digest: Option<Hash>,
    /// Decisions that an answer to the gate may contain, such as `approve` and `reject`.
    pub decisions: Vec<String>,
    /// Pattern of the calls that an approval with another scope than `once` would cover. `None`
    /// means that no other scope is offered.
    pub pattern: Option<RulePattern>,
    /// Scopes that an approval may have: this call only, or all similar calls of the run, the agent
    /// or the project.
    #[serde(default)]
    pub scopes: Vec<AnswerScope>,
    /// Deadline for an answer to the gate. `None` means no deadline.
    pub deadline: Option<Timestamp>,
    /// What happens to the gate when the deadline passes.
    pub on_timeout: GateTimeoutAction,
    /// Time at which the result of a step of a chain is approved automatically, unless a person
    /// answers the gate or pauses the run before. `None` means that a person must answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_approves_at: Option<Timestamp>,
    /// Valid answers to the question. Empty means that any text is valid.
    pub options: Vec<String>,
    /// Form that an answer must fill in: a flat JSON Schema. `None` means that the answer is a text.
    pub schema: Option<RawJson>,
    /// Number of people who must approve the gate.
    pub approvers: u16,
    /// Name of the person who last edited the input. `None` if nobody did.
    pub edited_by: Option<String>,
    /// Time at which the gate was raised.
    pub raised_at: Timestamp,
    /// Tags of the gate, for searching.
    pub tags: Vec<String>,
    /// Agent of the run. `None` in the response to an answer, and if the run no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// First words of the run's task. `None` like `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Tags of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_tags: Vec<String>,
    /// Call that has the effect key of the call at an open gate, so that approving changes nothing.
    /// `None` if the key is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_taken: Option<TakenKeyView>,
    /// Answers to the gate so far, in order.
    pub answers: Vec<AnswerView>,
}

/// Call of another run, or an earlier call, that has the effect key of a call at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TakenKey)]
pub struct TakenKeyView {
    /// Run of the call that has the key.
    pub run: RunId,
    /// Id of the call that has the key.
    pub call: CallId,
    /// What is known about that call: `held` while it runs, `done` or `unknown`.
    pub state: EffectKeyState,
}

impl TakenKeyView {
    /// Returns what the taken key means for an approver.
    pub fn explanation(&self) -> String {
        let Self { run, state, .. } = self;
        match state {
            EffectKeyState::Done => {
                format!("already done by {run}; approving changes nothing")
            }
            EffectKeyState::Held => {
                format!("being done by {run}; if that succeeds, approving changes nothing")
            }
            EffectKeyState::Unknown => {
                format!("perhaps done by {run}, whose call has an unknown outcome")
            }
        }
    }
}

impl GateView {
    /// Returns the form that the answer fills in. `None` means that the answer is a text.
    pub fn form(&self) -> Option<Form> {
        Form::from_schema(&self.schema.as_ref()?.to_value()).ok()
    }

    /// Returns what the call would change as rows for people, each with a label and a text. Empty
    /// if nobody is asked to approve a call.
    pub fn call_effect_rows(&self) -> Vec<(&'static str, String)> {
        let facts = match &self.facts {
            Some(facts) => facts.label_and_text_rows(),
            None if self.kind == GateKind::Approval => vec![("Effects", NOT_KNOWN.to_owned())],
            None => Vec::new(),
        };
        let key = self.key.iter().map(|key| ("Key", key.clone()));
        let taken = self.key_taken.iter().map(|taken| ("Note", taken.explanation()));
        key.chain(taken).chain(facts).collect()
    }

    /// Returns the values that the input takes from outputs of earlier calls: for each value a
    /// description and the beginning of the value.
    pub fn values_from_earlier_calls(&self) -> Vec<(String, &str)> {
        let outputs = self.outputs.iter();
        outputs.map(|output| (output.description(self.run), output.preview.as_str())).collect()
    }
}

/// An answer to a gate, as responses describe it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = GivenAnswer)]
pub struct AnswerView {
    /// Name of the person who answered the gate.
    pub by: String,
    /// Time at which the answer was given.
    pub at: Timestamp,
    /// Decision on the gate: `approve`, `edit`, `reject`, `answer` or `complete`.
    pub decision: String,
    /// Calls that an approval covers: `once`, `run`, `agent` or `project`.
    #[serde(default)]
    pub scope: AnswerScope,
    /// Note of the person, or the text of an answer to a question.
    pub note: Option<String>,
    /// Data of the answer, for the model and for programs.
    pub payload: Option<RawJson>,
}

impl From<&RecordedAnswer> for AnswerView {
    fn from(recorded: &RecordedAnswer) -> Self {
        let answer = &recorded.answer;
        let text = match &answer.decision {
            GateDecision::Answer(text) => Some(text.clone()),
            GateDecision::Approve
            | GateDecision::Edit(_)
            | GateDecision::Reject
            | GateDecision::Complete => None,
        };
        Self {
            by: answer.by.clone(),
            at: recorded.at,
            decision: answer.decision.as_str().to_owned(),
            scope: answer.scope,
            note: answer.note.clone().or(text),
            payload: answer.payload.clone(),
        }
    }
}

/// An answer to a gate in a request.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Answer)]
pub struct AnswerBody {
    /// Decision on the gate. It must be one of the gate's `decisions`.
    pub decision: DecisionKind,
    /// Scope of an approval: `once` covers only this call. `run`, `agent` and `project` cover every
    /// call of this run, of this agent or of the project that matches the gate's `pattern`. It must
    /// be one of the gate's `scopes`.
    #[serde(default)]
    pub scope: AnswerScope,
    /// Note of the person, which the model reads.
    pub note: Option<String>,
    /// New input of the call, for the decision `edit`.
    pub edited: Option<RawJson>,
    /// For the decision `answer`: the answer as a string, or the fields of the gate's form as an
    /// object. For other decisions: data for the model and for programs.
    pub payload: Option<RawJson>,
    /// Digest of the input that the person saw. Required for the decisions `approve` and `edit`.
    pub digest: Option<Hash>,
}

/// Type of a decision on a gate.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Decision)]
pub enum DecisionKind {
    /// Approve the call or the result that waits at the gate.
    Approve,
    /// Approve the call with another input.
    Edit,
    /// Reject the call or the result that waits at the gate.
    Reject,
    /// Answer the question of the gate.
    Answer,
    /// Report that the event for which the gate waits has happened, or that a call whose outcome
    /// was unknown has taken effect.
    Complete,
}

/// Converts an answer to a request body, without the name of the person who answers: the server
/// knows the caller from the API key.
impl From<Answer> for AnswerBody {
    fn from(answer: Answer) -> Self {
        let (decision, edited, payload) = match answer.decision {
            GateDecision::Approve => (DecisionKind::Approve, None, answer.payload),
            GateDecision::Reject => (DecisionKind::Reject, None, answer.payload),
            GateDecision::Complete => (DecisionKind::Complete, None, answer.payload),
            GateDecision::Edit(edited) => (DecisionKind::Edit, Some(edited), answer.payload),
            GateDecision::Answer(text) => {
                (DecisionKind::Answer, None, Some(RawJson::from_serialize(&text)))
            }
        };
        Self {
            decision,
            scope: answer.scope,
            note: answer.note,
            edited,
            payload,
            digest: answer.digest,
        }
    }
}

/// Response to an answer to a gate.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AnswerResponse {
    /// Effect of the answer: `closed` if it closed the gate, `voted` if it counts but more
    /// approvals are needed.
    pub outcome: AnswerOutcomeKind,
    /// Sequence number of the answer's event in the journal.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// State of the gate after the answer.
    pub gate: GateView,
}

/// Effect of an answer: whether it closed its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnswerOutcome)]
pub enum AnswerOutcomeKind {
    /// The answer closed the gate.
    Closed,
    /// The answer counts, but more approvals are needed.
    Voted,
}

/// Body of a request to raise a gate of a run. The run can't end before a program answers the gate,
/// which reports that the awaited event has happened.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewGate)]
pub struct SignalGateBody {
    /// Run that can't end before the gate is answered.
    pub run: RunId,
    /// What the run waits for, as a sentence.
    #[schema(min_length = 1, max_length = 8000)]
    pub ask: String,
    /// Tags of the gate, for searching.
    #[serde(default)]
    #[schema(max_items = 20)]
    pub tags: Vec<String>,
    /// Idempotency key within the run: a second request with the same key raises no second gate.
    #[schema(min_length = 1, max_length = 255)]
    pub idempotency_key: Option<String>,
    /// Time within which the gate must be answered, such as `2h`, at most `3650d`, or `never`.
    /// Default: `24h`.
    pub timeout: Option<String>,
}

/// Body of a request that reports an event to the runs that wait for it by name.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Signal)]
pub struct SignalBody {
    /// Name of the signal: the `signal` of a call of `wait`, or a tag of a gate that a program
    /// raised.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// Only this run. Default: every run that waits for the signal.
    pub run: Option<RunId>,
    /// Data for the model and for programs.
    pub payload: Option<RawJson>,
    /// Note for the model.
    pub note: Option<String>,
}

/// Body of a request to create a link to a gate.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewLink)]
pub struct GateLinkBody {
    /// Name of the link's recipient, as it will appear in the journal.
    #[schema(min_length = 1, max_length = 200)]
    pub recipient: String,
}

/// A link to a gate. It is shown only in this response.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Link)]
pub struct GateLinkView {
    /// URL for the recipient. Anyone with this URL can answer the gate.
    pub url: String,
    /// Id of the gate that the link leads to.
    pub gate: GateId,
    /// Name of the person who receives the link.
    pub recipient: String,
}

/// An approval that is remembered: similar calls need no new approval.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Rule)]
pub struct RuleView {
    /// Id of the rule (the remembered approval).
    pub id: RuleId,
    /// Whether the rule applies to one run, to all runs of an agent, or to all runs of the project.
    pub scope: AnswerScope,
    /// Agent to whose runs the rule applies. `None` if the scope is not `agent`.
    pub agent: Option<String>,
    /// Pattern of the calls that the rule allows, copied from the agent's rule that required the
    /// approval.
    pub pattern: RulePattern,
    /// Name of the person who gave the approval.
    pub by: String,
    /// Time at which the approval was given.
    pub at: Timestamp,
    /// Run in which the approval was given. A rule with the scope `run` applies to this run only.
    pub run: RunId,
    /// Gate at which the approval was given.
    pub gate: GateId,
    /// Number of calls that needed no new approval because of the rule.
    pub used: u64,
    /// Time of the last call that needed no new approval because of the rule. `None` means that
    /// there was none.
    pub last_used_at: Option<Timestamp>,
    /// Who revoked the rule, and when. `None` means that nobody has revoked it.
    pub revoked: Option<RevocationView>,
}

/// Who revoked a rule (a remembered approval), and when.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Revocation)]
pub struct RevocationView {
    /// Name of the person who revoked the rule.
    pub by: String,
    /// Time at which the rule was revoked.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_serializes_as_the_api_documents() {
        let answer_with = |decision, digest| Answer {
            decision,
            by: "cli:anna".to_owned(),
            scope: AnswerScope::Once,
            note: Some("so".to_owned()),
            payload: None,
            digest,
        };
        let digest = Hash::digest(b"shown");
        let (edit, text) = (RawJson::from_serialize(&json!({ "a": 1 })), "left".to_owned());
        for (answer, body) in [
            (
                answer_with(GateDecision::Approve, Some(digest)),
                json!({ "decision": "approve", "scope": "once", "note": "so", "digest": digest }),
            ),
            (
                answer_with(GateDecision::Edit(edit), Some(digest)),
                json!({
                    "decision": "edit", "scope": "once", "note": "so", "edited": { "a": 1 },
                    "digest": digest,
                }),
            ),
            (
                answer_with(GateDecision::Reject, None),
                json!({ "decision": "reject", "scope": "once", "note": "so" }),
            ),
            (
                answer_with(GateDecision::Answer(text), None),
                json!({ "decision": "answer", "scope": "once", "note": "so", "payload": "left" }),
            ),
        ] {
            assert_eq!(serde_json::to_value(AnswerBody::from(answer)).unwrap(), body);
        }
    }
}
