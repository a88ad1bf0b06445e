//! Approval rules and gates. A gate makes a run wait for a person or a program.
//!
//! A gate has a row in the store and an event in the journal. The run that raised it is parked.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{CallId, GateId, RunId};
use crate::output_reference::OutputReference;
use crate::policy::effect::InDoubtPolicy;
use crate::policy::effect_facts::EffectFacts;
use crate::raw::{Hash, RawJson};
use crate::text_macros::string_enum;
use crate::time::{Millis, Timestamp};

/// Timeout of a gate for which neither the agent's file nor the settings set one.
pub const GATE_TIMEOUT: Millis = Millis::from_secs(24 * 60 * 60);

/// Maximum timeout of a gate that expires: ten years of 365 days.
pub const GATE_TIMEOUT_MAX: Millis = Millis::from_secs(10 * 365 * 24 * 60 * 60);

/// Maximum number of tags of a gate.
const TAGS_MAX: usize = 20;
/// Maximum length of a tag of a gate in bytes.
const TAG_BYTES_MAX: usize = 200;

/// Time within which a gate must be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateTimeout {
    /// The gate stays open until it is answered.
    Never,
    /// The gate expires after this time.
    #[serde(untagged)]
    After(Millis),
}

impl Default for GateTimeout {
    fn default() -> Self {
        Self::After(GATE_TIMEOUT)
    }
}

impl GateTimeout {
    /// Returns the time after which the gate expires. `None` means never.
    pub const fn duration(self) -> Option<Millis> {
        match self {
            Self::Never => None,
            Self::After(duration) => Some(duration),
        }
    }
}

/// Approval rule: one entry of the `approve:` list in an agent file.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRule {
    /// Glob pattern that the tool's name must match.
    pub tool: String,
    /// Glob pattern that a text of the call, such as its path or command, must match. `None`
    /// matches every call.
    #[serde(rename = "match")]
    pub match_glob: Option<String>,
    /// Action for calls that match the rule.
    pub action: GateRuleAction,
    /// Whether every call needs its own approval, so that a person can't approve similar calls at
    /// once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// Time within which a person must answer. `None` means the default timeout.
    pub timeout: Option<GateTimeout>,
    /// Action if nobody answers within the timeout.
    #[serde(default)]
    pub on_timeout: GateTimeoutAction,
    /// What happens with matching calls in doubt, i.e. calls without a recorded outcome. `None`
    /// means the run's setting for calls that no approval rule covers.
    pub in_doubt: Option<InDoubtPolicy>,
    /// Required number of approvals, and whether the submitter may approve.
    #[serde(default)]
    pub approvers: ApprovalRequirement,
    /// Interval at which the approvers are reminded. `None` means no reminder.
    pub remind: Option<Millis>,
    /// Other people who are notified if nobody answers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalation: Vec<EscalationStep>,
    /// Tags of the gates that the rule raises, for searching.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A person or group that is notified if a gate stays unanswered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationStep {
    /// Time after which the notification is sent, from when the gate is raised.
    pub after: Millis,
    /// Name of the person or group to notify.
    pub to: String,
}

/// Action of an approval rule for the calls that it matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateRuleAction {
    /// Ask a person this question before the call starts.
    Ask(String),
    /// Allow the call without asking a person.
    Allow,
    /// Deny the call and tell the model this reason.
    Deny(String),
}

/// Approvals that a gate requires before it counts as approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequirement {
    /// Number of different people who must approve.
    pub count: u16,
    /// Whether all who added work to the run are excluded from approving.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_submitter: bool,
}

impl ApprovalRequirement {
    /// Returns the widest scope (call, run, agent or project) that an approval may have under this
    /// requirement. If several people or others than the submitter must approve, an approval holds
    /// for one run at most: otherwise people could approve calls of runs that they submit later.
    pub const fn widest_scope(self) -> AnswerScope {
        match self.count > 1 || self.not_submitter {
            true => AnswerScope::Run,
            false => AnswerScope::Project,
        }
    }
}

impl Default for ApprovalRequirement {
    fn default() -> Self {
        Self { count: 1, not_submitter: false }
    }
}

/// Action if nobody answers a gate in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateTimeoutAction {
    /// Treat the gate as rejected.
    #[default]
    Reject,
    /// Treat the gate as approved.
    Approve,
    /// End the run as failed, because nobody answered.
    Fail,
    /// Pause the run until a person resumes it.
    Pause,
}

/// Gate where a person approves the final answer of a run.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultApprovalGate {
    /// Question that the person is asked.
    pub ask: String,
    /// Time within which a person must answer. `None` means the default.
    pub timeout: Option<GateTimeout>,
    /// Action if nobody answers within the timeout. With `auto_approve`, this is `approve` after
    /// three seconds.
    #[serde(default)]
    pub on_timeout: GateTimeoutAction,
    /// Required number of approvals, and whether the submitter may approve.
    #[serde(default)]
    pub approvers: ApprovalRequirement,
    /// Tags of the gate, for searching.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Automatic approval after a delay. `None` means that the gate waits for a person.
    pub auto_approve: Option<AutoApproval>,
}

/// Approval of a result that is given without a person, unless a person answers first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoApproval {
    /// Delay after which the result is approved, in which a person can answer or pause the run.
    pub after: Millis,
    /// Name under which the approval is recorded, such as `chain:full-pipeline`.
    pub by: String,
}

/// Purpose of a gate, i.e. what the person or program is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// A person approves or rejects a tool call.
    #[default]
    Approval,
    /// A person approves or rejects the final result of the run.
    Result,
    /// A person answers a question of the agent.
    Question,
    /// A person helps an agent that is blocked. The gate says why it is blocked.
    Blocked,
    /// A person states the outcome of a call in doubt, i.e. one that was started but has no
    /// recorded outcome.
    InDoubt,
    /// A program signals that the awaited event has happened.
    Signal,
}

/// Tag of a gate that no answer can resolve: the task must be submitted again.
pub const SUBMIT_AGAIN: &str = "submit_again";

/// Returns whether the tags contain [`SUBMIT_AGAIN`], so that no answer can resolve the gate.
pub fn has_submit_again_tag(tags: &[String]) -> bool {
    tags.iter().any(|tag| tag == SUBMIT_AGAIN)
}

/// Checks the tags that a user gives to a gate. The error says which tags are valid.
pub fn check_gate_tags(tags: &[String]) -> Result<(), String> {
    let is_valid = |tag: &String| {
        (1..=TAG_BYTES_MAX).contains(&tag.len())
            && !tag.chars().any(char::is_control)
            && tag != SUBMIT_AGAIN
    };
    match tags.len() <= TAGS_MAX && tags.iter().all(is_valid) {
        true => Ok(()),
        false => Err(format!(
            "a gate has at most {TAGS_MAX} tags of 1 to {TAG_BYTES_MAX} bytes, without control \
             characters and other than `{SUBMIT_AGAIN}`"
        )),
    }
}

/// A gate with everything that is needed to validate an answer.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSpec {
    /// Id of the gate, under which it is answered.
    pub id: GateId,
    /// Purpose of the gate, i.e. what the person or program is asked for.
    pub kind: GateKind,
    /// Question that the person is asked.
    pub ask: String,
    /// Call that waits for the answer. `None` if no call waits.
    pub call: Option<CallId>,
    /// Name of the tool of the waiting call. `None` if no call waits.
    pub tool: Option<String>,
    /// Input of the call, or result, that the gate shows to the person; fixed while the gate is
    /// open. `None` if it shows neither, for example if it asks a question.
    pub input: Option<RawJson>,
    /// Texts that approval rules match and that the runtime injects into the waiting call, such as
    /// the recipient of a message. They are not part of its input. The gate's digest covers them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected_rule_match_texts: Vec<String>,
    /// References in the call's input to outputs of earlier calls. The gate's digest covers the
    /// hashes of the referenced values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputReference>,
    /// Effect key of the waiting tool call. Calls with the same key take effect at most once over
    /// all runs. `None` means no key.
    pub key: Option<String>,
    /// What the waiting tool call would change, predicted when the model made the call. The gate's
    /// digest covers it. `None` means not known.
    pub facts: Option<Box<EffectFacts>>,
    /// Answers that the person can choose from. Empty means that any answer is valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Schema of the form that the person fills in. `None` means that the answer is a text.
    pub schema: Option<RawJson>,
    /// Digest (hash) of the content to approve. An approval contains the same digest, to prove
    /// which content was shown. `None` if the gate has no digest.
    pub digest: Option<Hash>,
    /// Pattern of the similar calls that are approved too if the approval holds for the run, the
    /// agent or the project. `None` means that only this call can be approved.
    pub pattern: Option<RulePattern>,
    /// Approvals that the gate requires.
    #[serde(default)]
    pub approvers: ApprovalRequirement,
    /// Principals other than the submitter that added work to the run, for example with a
    /// message or a retry. If the submitter may not approve, they may not either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_submitters: Vec<String>,
    /// Time within which the gate must be answered, from when it is raised. `None` means no
    /// timeout.
    pub timeout: Option<Millis>,
    /// Action if nobody answers within the timeout.
    #[serde(default)]
    pub on_timeout: GateTimeoutAction,
    /// Automatic approval after a delay. `None` means that the gate waits for a person.
    pub auto_approve: Option<AutoApproval>,
    /// Interval at which the approvers are reminded. `None` means no reminder.
    pub remind: Option<Millis>,
    /// Other people who are notified if nobody answers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalation: Vec<EscalationStep>,
    /// Idempotency key of the program's request that raised the gate. A second request with the
    /// same key raises no second gate in this run. `None` if there was no key or no request.
    pub idempotency_key: Option<String>,
    /// Tags of the gate, for searching.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl GateSpec {
    /// Creates a gate that needs one answer and has no timeout and no further details.
    pub fn new(id: GateId, kind: GateKind, question: impl Into<String>) -> Self {
        Self { id, kind, ask: question.into(), ..Self::default() }
    }

    /// Returns the scopes (this call, run, agent, project) among which a person who approves the
    /// gate may choose.
    pub fn scopes(&self) -> Vec<AnswerScope> {
        let widest = self.pattern.as_ref().map(|_| self.approvers.widest_scope());
        let widest_scope = widest.unwrap_or(AnswerScope::Once);
        AnswerScope::ALL.into_iter().filter(|scope| *scope <= widest_scope).collect()
    }

    /// Returns whether the gate waits for a signal although no tool call waits for the gate,
    /// because a program raised it. The run can't end while such a gate is open.
    pub fn is_signal_gate_without_tool_call(&self) -> bool {
        self.kind == GateKind::Signal && self.call.is_none()
    }
}

/// Pattern of the calls that a remembered approval covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = Pattern)]
pub struct RulePattern {
    /// Glob pattern that the tool's name must match.
    pub tool: String,
    /// Glob pattern that a text of the call, such as its path or command, must match. `None`
    /// matches every call.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_glob: Option<String>,
}

/// Answer of a person or program to a gate.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Decision on the gate: `approve`, `edit`, `reject`, `answer` or `complete`.
    pub decision: GateDecision,
    /// Principal that answered, such as `cli:anna`.
    pub by: String,
    /// Tool calls that an approval covers: only this call, or all similar calls of the run, of the
    /// agent or of the project.
    #[serde(default)]
    pub scope: AnswerScope,
    /// Note from the person to the model. `None` if there is no note.
    pub note: Option<String>,
    /// Structured data of the answer, for the model and for templates. `None` if there is none.
    pub payload: Option<RawJson>,
    /// Digest (hash) of the content that was shown to the person. `None` if the answer has no
    /// digest.
    pub digest: Option<Hash>,
}

/// Decision of a person or program on a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateDecision {
    /// Approve the call or the result.
    Approve,
    /// Approve the call with this changed input.
    Edit(RawJson),
    /// Reject the call or the result.
    Reject,
    /// Answer the agent's question with this text. The answer to a form is a JSON object as text.
    Answer(String),
    /// Report that the awaited event has happened.
    Complete,
}

impl GateDecision {
    /// Returns the name of the decision, such as `approve`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Edit(_) => "edit",
            Self::Reject => "reject",
            Self::Answer(_) => "answer",
            Self::Complete => "complete",
        }
    }

    /// Returns the changed input or result of an edit. `None` for any other decision.
    pub const fn edit(&self) -> Option<&RawJson> {
        if let Self::Edit(edited) = self { Some(edited) } else { None }
    }
}

impl Answer {
    /// Creates an answer to this gate only, without a note, a payload and a digest.
    pub const fn new(decision: GateDecision, by: String) -> Self {
        Self { decision, by, scope: AnswerScope::Once, note: None, payload: None, digest: None }
    }
}

string_enum! {
    /// Which calls an approval covers, from the fewest to the most.
    #[derive(Default, PartialOrd, Ord)]
    pub enum AnswerScope {
        /// The approval covers this call only.
        #[default]
        Once = "once",
        /// The approval covers all calls of this run that the same approval rule matches.
        Run = "run",
        /// The approval covers all calls of the agent that match the pattern of the rule that asked.
        Agent = "agent",
        /// The approval covers all calls of the project that match the pattern of the rule that asked.
        Project = "project",
    }
}

string_enum! {
    pub enum GateStatus {
        /// The gate waits for an answer.
        Open = "open",
        /// The gate was closed by an answer.
        Answered = "answered",
        /// The gate was closed because its timeout passed without an answer.
        Expired = "expired",
        /// The gate was closed because its answer is no longer needed.
        Withdrawn = "withdrawn",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRow {
    /// Run that raised the gate.
    pub run: RunId,
    /// Question, timeout and other content of the gate.
    pub spec: GateSpec,
    pub status: GateStatus,
    pub raised_at: Timestamp,
    /// Deadline for the answer. `None` means no deadline.
    pub deadline: Option<Timestamp>,
    /// Principal that submitted the run. `None` if it is not recorded.
    pub submitter: Option<String>,
    /// Answers that the gate has received so far, in order.
    pub answers: Vec<RecordedAnswer>,
}

impl GateRow {
    /// Returns when the open gate is approved without a person. `None` means never.
    pub fn auto_approves_at(&self) -> Option<Timestamp> {
        let is_unanswered = self.status == GateStatus::Open && self.answers.is_empty();
        let auto = self.spec.auto_approve.as_ref().filter(|_| is_unanswered)?;
        Some(self.raised_at.plus(auto.after))
    }

    /// Returns whether the gate is still open although its deadline has passed. Such a gate accepts
    /// no answer; a worker closes it as soon as one is running.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.status == GateStatus::Open && self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// An answer to a gate, with the time at which it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    pub at: Timestamp,
    pub answer: Answer,
}
