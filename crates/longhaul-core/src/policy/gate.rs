//! Rules that stop a call for a person, and what a gate is.
//!
//! Never: waits. A gate is a row and a fact; the run that raised it rests.

use serde::{Deserialize, Serialize};

use crate::id::{CallId, GateId, RunId};
use crate::policy::effect::InDoubtPolicy;
use crate::raw::{Hash, RawJson};
use crate::text_macros::string_enum;
use crate::time::{Millis, Timestamp};

/// The deadline of a gate when its rule names none.
pub const GATE_TIMEOUT: Millis = Millis::from_secs(24 * 60 * 60);

/// One line of an agent's `approve:` list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRule {
    /// A glob over the tool's name.
    pub tool: String,
    /// A glob over the call's subject; none matches every call.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What a match means.
    pub action: RuleAction,
    /// "For this run" is not offered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// Until when a person may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// What happens then.
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// What happens to such a call in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtPolicy>,
    /// How many must say yes, and who may not.
    #[serde(default)]
    pub approvers: Approvers,
    /// Remind the people after so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind: Option<Millis>,
}

/// What a rule says of the calls it matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// A person is asked, in these words.
    Ask(String),
    /// It may go on.
    Allow,
    /// It may not, and the model reads why.
    Deny(String),
}

/// How many approvals a gate needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvers {
    /// So many different people.
    pub count: u16,
    /// Whoever submitted the run may not be one of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_submitter: bool,
}

impl Default for Approvers {
    fn default() -> Self {
        Self { count: 1, not_submitter: false }
    }
}

/// What happens when nobody answers in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// As if somebody had said no.
    #[default]
    Reject,
    /// As if somebody had said yes.
    Approve,
    /// The run ends.
    Fail,
    /// The run is paused.
    Pause,
}

/// The gate that a run's final answer is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultGate {
    /// What the person is asked.
    pub ask: String,
    /// Until when.
    pub timeout: Millis,
    /// What happens then. With `auto_approve` this is `approve` after three seconds.
    #[serde(default)]
    pub on_timeout: OnTimeout,
}

/// What is asked of whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// May this call be made?
    Approval,
    /// Is this result good?
    Result,
    /// Please answer.
    Question,
    /// The agent can't go on and says why.
    Blocked,
    /// A call was cut off: what came of it?
    InDoubt,
    /// A program will say when.
    Signal,
}

/// The label of a gate that no answer helps: what is wrong is part of the run, so
/// the task is to be submitted again.
pub const SUBMIT_AGAIN: &str = "submit_again";

/// Whether no answer helps a gate with these labels.
pub fn is_unanswerable(tags: &[String]) -> bool {
    tags.iter().any(|tag| tag == SUBMIT_AGAIN)
}

/// A gate as it is raised: everything that judging an answer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSpec {
    /// Which.
    pub id: GateId,
    /// What is asked.
    pub kind: GateKind,
    /// The question in words.
    pub ask: String,
    /// The call it stands before, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// That call's tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The frozen input or result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<RawJson>,
    /// What that call is about beside its input: what the runtime says and not the
    /// model, such as whom a message is for. The digest is of that too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected_subjects: Vec<String>,
    /// Answers to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The digest of the frozen thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
    /// The subject glob that "for this run" would remember; none: not offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<RulePattern>,
    /// How many must agree.
    #[serde(default)]
    pub approvers: Approvers,
    /// Until when, from now; none: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// What happens then.
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// When to remind, from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind: Option<Millis>,
    /// The one gate under this key in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl GateSpec {
    /// A gate that asks for one answer, stays open for ever and says no more
    /// than its words.
    pub fn new(id: GateId, kind: GateKind, ask: impl Into<String>) -> Self {
        Self {
            id,
            kind,
            ask: ask.into(),
            call: None,
            tool: None,
            input: None,
            injected_subjects: Vec::new(),
            options: Vec::new(),
            digest: None,
            pattern: None,
            approvers: Approvers::default(),
            timeout: None,
            on_timeout: OnTimeout::default(),
            remind: None,
            idempotency_key: None,
            tags: Vec::new(),
        }
    }
}

/// The globs of a rule, as they are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulePattern {
    /// Over the tool's name.
    pub tool: String,
    /// Over the subject.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// One person's or program's word on a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What was decided.
    pub decision: Decision,
    /// Who said it, such as `cli:anna`.
    pub by: String,
    /// How far it reaches.
    #[serde(default)]
    pub scope: Scope,
    /// Words for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Data for the model and for templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<RawJson>,
    /// The digest of what was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
}

/// What a person can say at a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes.
    Approve,
    /// Yes, but with this input.
    Edit(RawJson),
    /// No.
    Reject,
    /// These are the words to a question.
    Answer(String),
    /// The thing that was waited for has happened.
    Complete,
}

impl Decision {
    /// The decision's name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Edit(_) => "edit",
            Self::Reject => "reject",
            Self::Answer(_) => "answer",
            Self::Complete => "complete",
        }
    }
}

/// How far an approval reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call.
    #[default]
    Once,
    /// Every call of this run that the same rule stops.
    Run,
}

string_enum! {
    /// How a gate stands.
    pub enum GateStatus {
        /// Somebody may answer.
        Open = "open",
        /// Somebody has.
        Answered = "answered",
        /// Nobody did in time.
        Expired = "expired",
        /// It is no longer asked.
        Withdrawn = "withdrawn",
    }
}

/// A gate as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRow {
    /// The run that waits.
    pub run: RunId,
    /// What was raised.
    pub spec: GateSpec,
    /// How it stands.
    pub status: GateStatus,
    /// When it was raised.
    pub raised_at: Timestamp,
    /// Until when it may be answered.
    pub deadline: Option<Timestamp>,
    /// Who submitted the run.
    pub submitter: Option<String>,
    /// What was said so far, in order.
    pub answers: Vec<RecordedAnswer>,
}

/// An answer and when it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    /// When.
    pub at: Timestamp,
    /// What.
    pub answer: Answer,
}
