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
use serde::Serialize;

/// A gate, whole.
#[derive(Debug, Clone, Serialize)]
pub struct GateView {
    /// Which.
    pub id: GateId,
    /// Whose run waits.
    pub run: RunId,
    /// What is asked.
    pub kind: GateKind,
    /// How it stands.
    pub status: GateStatus,
    /// The question in words.
    pub ask: String,
    /// Why it is asked; none: nobody wrote it down.
    pub reason: Option<String>,
    /// The tool of the call it stands before.
    pub tool: Option<String>,
    /// What stands frozen: the call's input, or the newest edit of it.
    pub input: Option<RawJson>,
    /// What is known about the call beside its input.
    pub facts: Option<RawJson>,
    /// What the call would change.
    pub diff: Option<String>,
    /// The digest of what stands frozen; an approval names it.
    pub digest: Option<Hash>,
    /// What can be said.
    pub decisions: Vec<&'static str>,
    /// What "for this run" would remember; none: not offered.
    pub pattern: Option<Pattern>,
    /// Until when.
    pub deadline: Option<Timestamp>,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// Labels.
    pub tags: Vec<String>,
    /// What was said, in order.
    pub answers: Vec<AnswerView>,
}

/// An answer as answers show it.
#[derive(Debug, Clone, Serialize)]
pub struct AnswerView {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// What.
    pub decision: &'static str,
    /// The words that came with it: a note, or the answer itself.
    pub note: Option<String>,
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
            decision: answer.decision.as_str(),
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
            facts: None,
            diff: None,
            digest: standing_digest(gate),
            decisions: decisions(&spec.kind).to_vec(),
            pattern: spec.pattern.clone(),
            deadline: gate.deadline,
            on_timeout: spec.on_timeout,
            tags: spec.tags.clone(),
            answers: gate.answers.iter().map(AnswerView::from).collect(),
        }
    }
}
