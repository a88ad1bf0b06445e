//! Events about model requests.
//!
//! The content of a request is not stored, because it can be computed from all earlier events.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::ToolName;
use crate::message::{Reply, StopReason};
use crate::output_reference::OutputReference;
use crate::policy::effect::{EffectClass, InDoubtPolicy};
use crate::policy::effect_facts::EffectFacts;
use crate::policy::effect_key::EffectKey;
use crate::policy::rule::RememberedApproval;
use crate::policy::spend_cap::CapHold;
use crate::raw::{Hash, RawJson, is_default};
use crate::status::RunOutput;
use crate::time::Millis;
use crate::usage::{BudgetAmount, MicroUsd, Usage};

/// A model request is about to be sent. The event is durable before the request is sent.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the attempt within the turn, from 1.
    pub attempt: u32,
    /// Purpose of the model request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub purpose: ModelCallPurpose,
    /// Worst-case cost of the request, which is held (reserved) in the budget account.
    pub hold: BudgetAmount,
    /// Amounts that are held (reserved) within spend caps for the model request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapHold>,
    /// Maximum length of the reply in tokens. The held (reserved) cost covers this length.
    pub max_tokens: u64,
    /// Model that receives this request. `None` means the run's own model.
    pub model: Option<String>,
    /// Messages that the runtime itself inserts before this request, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_messages: Vec<RuntimeMessage>,
    /// New perception (current state of what the agent works with). `None` means that it was not
    /// fetched again or has not changed.
    pub perception: Option<PerceptionUpdate>,
    /// Time that the context provider (the source of the current state for the prompt) needed
    /// before this request, which counts as active time of the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub perception_active: Millis,
}

/// A message that the runtime itself writes and the model sees as a user message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeMessage {
    /// Topic of the message, i.e. why the runtime wrote it.
    pub topic: RuntimeMessageTopic,
    /// Text of the message, as the model sees it.
    pub text: Arc<str>,
}

/// Topic of a message that the runtime itself writes to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeMessageTopic {
    /// The message says that the final answer does not match the output schema.
    Output,
    /// The message says that the same tool call keeps returning the same result.
    Loop,
    /// The message says how a gate that a program raised was answered.
    Signal,
    /// The message says that the last turns made no progress.
    NoProgress,
    /// The message says that the last replies had the same text.
    RepeatedText,
    /// The message says that the conversation soon fills the context window again after each
    /// compaction.
    Compaction,
    /// The message says that the last reply was empty.
    EmptyReply,
    /// The message describes the current state of what the agent works with, such as a game world.
    World,
}

/// The current state of the outside world that an agent acts on, such as a game (its perception),
/// fetched again during the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerceptionUpdate {
    /// Hash of the fetched state as JSON. An unchanged state is not sent to the model again.
    pub world_hash: Hash,
    /// Values injected into tool calls from now on, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
}

/// Purpose of a model request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelCallPurpose {
    /// The request asks for the next turn of the conversation.
    #[default]
    Turn,
    /// The request asks for a summary of the older part of the conversation.
    Compact,
}

/// The model replied to the request of a turn.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCompleted {
    pub turn: u32,
    /// Complete reply of the model.
    pub reply: Arc<Reply>,
    /// Reason why the model stopped generating.
    pub stop: StopReason,
    /// Tokens used by the request.
    pub usage: Usage,
    /// Cost of the request. `None` means that the cost is unknown.
    pub cost: Option<MicroUsd>,
    /// Model name as reported by the provider.
    pub model: String,
    /// Duration of the request, measured by the clock of the worker that drives the run.
    pub active: Millis,
    /// Properties of each tool call in the reply, such as its effect class, in the order of the
    /// calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCallClassification>,
    /// Result of checking the final answer (the text, or the input of `finish`) against the output
    /// schema. `None` means that there is no schema or the reply does not end the run.
    pub output_check: Option<OutputCheckResult>,
    /// Output of the run if it ends with this reply. `None` in journals of older builds, which did
    /// not store it: the output is then derived from the reply.
    pub output: Option<RunOutput>,
}

/// Result of checking a final answer against the output schema. It is journaled, so that a later
/// build can't come to a different result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputCheckResult {
    /// The answer is valid and contains this data.
    Valid(RawJson),
    /// The answer is invalid. This text explains to the model why.
    Invalid(String),
}

/// Properties of a tool call that the engine determines before the call is approved or started.
/// They are journaled, so that a later build treats the call in the same way.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallClassification {
    pub tool: ToolName,
    /// Effect class of the tool call, which says whether the call may be repeated after a crash.
    #[serde(default)]
    pub class: EffectClass,
    /// Texts of the call that approval rules match: parts of a command, a path, a recipient.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rule_match_texts: Vec<String>,
    /// Those of `rule_match_texts` that the runtime injects, so that they are not part of the
    /// input from the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected_rule_match_texts: Vec<String>,
    /// Whether a part of the call, such as a nested command, can't be determined before the call
    /// runs, or `rule_match_texts` were truncated. Every rule that asks for approval then applies to
    /// the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opaque: bool,
    /// Reason why the tool call can't be made, such as an unknown tool or an invalid input. `None`
    /// means that it can be made.
    pub problem: Option<String>,
    /// Whether the tool can verify if the call has taken effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_verify: bool,
    /// What the tool prefers to happen with calls in doubt (without a recorded outcome). It is used
    /// if neither a matching approval rule nor the run's policy says what happens.
    pub in_doubt: Option<InDoubtPolicy>,
    /// Whether a process that the call starts may keep running after the worker was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_outlive_worker: bool,
    /// Whether the call is made in the sandbox of the run, which must run before the call starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sandboxed: bool,
    /// What the call would change. `None` if no person is asked about the call, or if nothing is
    /// known.
    pub facts: Option<Box<EffectFacts>>,
    /// References in the input to outputs of earlier calls, with their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputReference>,
    /// Effect key of the tool call: calls with the same key take effect at most once over all runs.
    /// `None` means that the call has no key.
    pub key: Option<EffectKey>,
    /// Approvals remembered for the agent or the project that apply to the call and were active
    /// when the model replied. A later revocation does not affect the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<RememberedApproval>,
}

impl ToolCallClassification {
    /// Returns the classification of a call without effects of this tool.
    pub fn pure(tool: ToolName) -> Self {
        Self { tool, class: EffectClass::Pure, ..Self::default() }
    }
}

/// The model request failed.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnFailed {
    /// Number of the turn whose request failed.
    pub turn: u32,
    /// Number of the failed attempt within the turn, from 1.
    pub attempt: u32,
    /// Class and description of the failure.
    pub failure: Failure,
    /// Duration of the failed request.
    #[serde(default)]
    pub active: Millis,
    /// Amount charged to the budget despite the failure. If the outcome of the request is unknown,
    /// this is the whole amount that was held (reserved) for it.
    #[serde(default)]
    pub charged: BudgetAmount,
    /// Cost of the failed request as reported by the provider. `None` means that the list price was
    /// charged.
    pub cost: Option<MicroUsd>,
    /// Fallback model to use from now on. `None` means that the run keeps its model.
    pub fallback_model: Option<String>,
}

/// The model request was interrupted by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnInterrupted {
    pub turn: u32,
    /// Text of the reply that was received before the interruption. Unsigned thinking and
    /// incomplete calls are dropped.
    pub text: Arc<str>,
    /// Tokens used by the interrupted request, usually estimated.
    pub usage: Usage,
    /// Cost of the interrupted request. `None` means that the cost is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// Duration of the interrupted request.
    pub active: Millis,
}
