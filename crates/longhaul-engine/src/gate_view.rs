//! A gate as answers show it: one shape everywhere.
//!
//! Never: an input and a digest that are not of the same thing.

use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::gate::{
    Decision, GateKind, GateRow, GateStatus, GivenAnswer, OnTimeout, Pattern,
};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Timestamp;
use longhaul_run::outside::{decisions, standing_digest, standing_input};
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
    pub about: Vec<String>,
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
    pub pattern: Option<Pattern>,
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

/// Who changed what stands frozen, if somebody did.
fn editor(gate: &GateRow) -> Option<String> {
    let newest = gate.answers.iter().rev();
    newest
        .map(|given| &given.answer)
        .find(|answer| matches!(answer.decision, Decision::Edit(_)))
        .map(|answer| answer.by.clone())
}

impl From<&GivenAnswer> for AnswerView {
    fn from(given: &GivenAnswer) -> Self {
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

impl From<&GateRow> for GateView {
    fn from(gate: &GateRow) -> Self {
        let spec = &gate.spec;
        Self {
            id: spec.id,
            run: gate.run,
            kind: spec.kind.clone(),
            status: gate.status,
            ask: spec.ask.clone(),
            reason: None,
            tool: spec.tool.clone(),
            input: standing_input(gate).cloned(),
            about: spec.about.clone(),
            facts: None,
            diff: None,
            digest: standing_digest(gate),
            decisions: decisions(&spec.kind)
                .iter()
                .map(|word| (*word).to_owned())
                .collect(),
            pattern: spec.pattern.clone(),
            deadline: gate.deadline,
            on_timeout: spec.on_timeout,
            options: spec.options.clone(),
            approvers: spec.approvers.count,
            edited_by: editor(gate),
            raised_at: gate.raised_at,
            tags: spec.tags.clone(),
            answers: gate.answers.iter().map(AnswerView::from).collect(),
        }
    }
}
