//! Gates in responses, and answers to them in requests.

use longhaul_core::id::{GateId, RunId, Seq};
use longhaul_core::policy::gate::{
    Answer, Decision, GateKind, GateStatus, OnTimeout, RecordedAnswer, RulePattern, Scope,
};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A gate, whole.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Gate)]
pub struct GateView {
    /// Which.
    #[schema(schema_with = schema::gate_id)]
    pub id: GateId,
    /// Whose run waits.
    #[schema(schema_with = schema::run_id)]
    pub run: RunId,
    /// What is asked.
    #[schema(schema_with = schema::gate_kind)]
    pub kind: GateKind,
    /// How it stands.
    #[schema(schema_with = schema::gate_status)]
    pub status: GateStatus,
    /// The question in words.
    pub ask: String,
    /// Why it is asked; none: nobody wrote it down.
    pub reason: Option<String>,
    /// The tool of the call it stands before.
    pub tool: Option<String>,
    /// What stands frozen: the call's input, or the newest edit of it.
    #[schema(schema_with = schema::any)]
    pub input: Option<RawJson>,
    /// What the call is about beside its input: what the runtime says and not the
    /// model, such as whom a message is for.
    #[serde(default)]
    pub injected_subjects: Vec<String>,
    /// What is known about the call beside its input.
    #[schema(schema_with = schema::any)]
    pub facts: Option<RawJson>,
    /// What the call would change.
    pub diff: Option<String>,
    /// The digest of what stands frozen; an approval names it.
    #[schema(value_type = Option<String>)]
    pub digest: Option<Hash>,
    /// What can be said.
    pub decisions: Vec<String>,
    /// What "for this run" would remember; none: not offered.
    #[schema(value_type = Option<PatternView>)]
    pub pattern: Option<RulePattern>,
    /// Until when.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// What happens then.
    #[schema(schema_with = schema::on_timeout)]
    pub on_timeout: OnTimeout,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// How many must agree.
    pub approvers: u16,
    /// Who changed what stands frozen, if somebody did.
    pub edited_by: Option<String>,
    /// When it was raised.
    #[schema(schema_with = schema::time)]
    pub raised_at: Timestamp,
    /// Labels.
    pub tags: Vec<String>,
    /// What was said, in order.
    pub answers: Vec<AnswerView>,
}

/// An answer as answers show it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = GivenAnswer)]
pub struct AnswerView {
    /// Who.
    pub by: String,
    /// When.
    #[schema(schema_with = schema::time)]
    pub at: Timestamp,
    /// What.
    pub decision: String,
    /// The words that came with it: a note, or the answer itself.
    pub note: Option<String>,
}

/// What "for this run" would remember: how [`Pattern`] is described.
#[derive(Debug, ToSchema)]
#[schema(as = Pattern)]
pub struct PatternView {
    /// Over the tool's name.
    pub tool: String,
    /// Over the subject.
    #[schema(rename = "match", required = false)]
    pub subject: String,
}

impl From<&RecordedAnswer> for AnswerView {
    fn from(given: &RecordedAnswer) -> Self {
        let answer = &given.answer;
        let words = match &answer.decision {
            Decision::Answer(words) => Some(words.clone()),
            Decision::Approve | Decision::Edit(_) | Decision::Reject | Decision::Complete => None,
        };
        Self {
            by: answer.by.clone(),
            at: given.at,
            decision: answer.decision.as_str().to_owned(),
            note: answer.note.clone().or(words),
        }
    }
}

/// An answer in a request.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Answer)]
pub struct AnswerBody {
    /// What is decided. The gate's `decisions` lists what it takes.
    pub decision: DecisionKind,
    /// How far an approval reaches: `once` is this call, `run` is every call of this run that
    /// the same rule stops.
    #[serde(default)]
    #[schema(schema_with = schema::scope)]
    pub scope: Scope,
    /// Words for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// For `edit`: the input instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any)]
    pub edited: Option<RawJson>,
    /// For `answer`: the words, as a text. Else data for the model and for templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any)]
    pub payload: Option<RawJson>,
    /// The digest of what was shown. Needed for `approve` and `edit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{64}$")]
    pub digest: Option<Hash>,
}

/// What can be decided.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Decision)]
pub enum DecisionKind {
    /// Yes.
    Approve,
    /// Yes, but with another input.
    Edit,
    /// No.
    Reject,
    /// The words to a question.
    Answer,
    /// What was waited for has happened.
    Complete,
}

/// The server knows by the key who answers.
impl From<Answer> for AnswerBody {
    fn from(answer: Answer) -> Self {
        let (decision, edited, payload) = match answer.decision {
            Decision::Approve => (DecisionKind::Approve, None, answer.payload),
            Decision::Reject => (DecisionKind::Reject, None, answer.payload),
            Decision::Complete => (DecisionKind::Complete, None, answer.payload),
            Decision::Edit(edited) => (DecisionKind::Edit, Some(edited), answer.payload),
            Decision::Answer(words) => {
                (DecisionKind::Answer, None, Some(RawJson::from_serialize(&words)))
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

/// What an answer did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AnswerResponse {
    /// `closed`: the gate is closed by it. `counted`: others must agree.
    pub outcome: AnswerOutcome,
    /// Its place in the journal.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// The gate as it is now.
    pub gate: GateView,
}

/// Whether an answer closed its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerOutcome {
    /// It closed the gate.
    Closed,
    /// It counts, and others must agree.
    Voted,
}

/// For whom a link to a gate is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewLink)]
pub struct LinkBody {
    /// Who will decide, as journals show them.
    #[schema(min_length = 1, max_length = 200)]
    pub recipient: String,
}

/// A link to a gate, shown this once.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Link)]
pub struct LinkView {
    /// What to send to them. Whoever has it can decide.
    pub url: String,
    /// To which gate.
    #[schema(schema_with = schema::gate_id)]
    pub gate: GateId,
    /// For whom.
    pub recipient: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_serializes_as_the_api_documents() {
        let said = |decision, digest| Answer {
            decision,
            by: "cli:anna".to_owned(),
            scope: Scope::Once,
            note: Some("so".to_owned()),
            payload: None,
            digest,
        };
        let digest = Hash::digest(b"shown");
        let (edit, words) = (RawJson::from_serialize(&json!({ "a": 1 })), "left".to_owned());
        for (answer, body) in [
            (
                said(Decision::Approve, Some(digest)),
                json!({ "decision": "approve", "scope": "once", "note": "so", "digest": digest }),
            ),
            (
                said(Decision::Edit(edit), Some(digest)),
                json!({
                    "decision": "edit", "scope": "once", "note": "so", "edited": { "a": 1 },
                    "digest": digest,
                }),
            ),
            (
                said(Decision::Reject, None),
                json!({ "decision": "reject", "scope": "once", "note": "so" }),
            ),
            (
                said(Decision::Answer(words), None),
                json!({ "decision": "answer", "scope": "once", "note": "so", "payload": "left" }),
            ),
        ] {
            assert_eq!(serde_json::to_value(AnswerBody::from(answer)).unwrap(), body);
        }
    }
}
