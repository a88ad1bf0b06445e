//! Facts about asking the model.
//!
//! Never: the request. It is the fold of what came before.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::ToolName;
use crate::message::{Reply, StopReason};
use crate::policy::effect::{EffectClass, InDoubtPolicy};
use crate::raw::{Hash, RawJson};
use crate::status::Output;
use crate::time::Millis;
use crate::usage::{Hold, MicroUsd, Usage};

/// The model is about to be asked. Durable before the request leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// Which turn, from 1.
    pub turn: u32,
    /// Which try of this turn, from 1.
    pub attempt: u32,
    /// What the call is for.
    #[serde(default, skip_serializing_if = "ModelCallPurpose::is_turn")]
    pub purpose: ModelCallPurpose,
    /// The worst case, held in the account.
    pub hold: Hold,
    /// The longest reply that the hold pays for.
    pub max_tokens: u64,
    /// The model that is asked, where it is not the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the runtime tells the model before it speaks, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_messages: Vec<RuntimeMessage>,
    /// What somebody saw who looked at the world again; none: nothing else than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perception: Option<PerceptionUpdate>,
}

/// Words of the runtime that the model reads as a user's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeMessage {
    /// What they are about.
    pub topic: Topic,
    /// The words.
    pub text: Arc<str>,
}

/// What words of the runtime are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// The final answer does not fit its schema.
    Output,
    /// The same call gives the same result again and again.
    Loop,
    /// The world as it is now.
    World,
}

/// What a later look at the world gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerceptionUpdate {
    /// The hash of the world's JSON: an unchanged one is not told again.
    pub world_hash: Hash,
    /// What tools are given from now on, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
}

/// What a model's call is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelCallPurpose {
    /// The next turn.
    #[default]
    Turn,
    /// To sum up the older part of the conversation.
    Compact,
}

impl ModelCallPurpose {
    const fn is_turn(&self) -> bool {
        matches!(self, Self::Turn)
    }
}

/// The model replied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCompleted {
    /// Which turn.
    pub turn: u32,
    /// What it said, whole.
    pub reply: Arc<Reply>,
    /// Why it stopped.
    pub stop: StopReason,
    /// What was used.
    pub usage: Usage,
    /// What it cost; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// The model that answered, as it calls itself.
    pub model: String,
    /// How long it took, by the driver's own clock.
    pub active: Millis,
    /// What each call of the reply is, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallClassification>,
    /// Whether the words, or what `finish` is given, fit the schema of the run's
    /// result; none: there is no schema, or the reply does not end the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_check: Option<OutputCheck>,
    /// What the run gives back if it ends with this reply; none: what the first rule
    /// reads from it, by which journals were folded before this stood in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
}

/// Whether a final answer fits its schema: judged once and journaled, so that a
/// later build does not judge it otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputCheck {
    /// It does, and this is the data in it.
    Valid(RawJson),
    /// It does not, and why, in words for the model.
    Invalid(String),
}

/// What the engine found out about a call before anything is decided: journaled,
/// so that a later build judges the call as this one did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallClassification {
    /// Our name of the tool.
    pub tool: ToolName,
    /// What it does to the world.
    #[serde(default)]
    pub class: EffectClass,
    /// What rules match against: a command's parts, a path, a recipient.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// Those of them that nobody reads in the input: the runtime injects them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected_subjects: Vec<String>,
    /// A part of it can't be read before it runs, such as a command inside a
    /// command: it counts as matching every rule that asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opaque: bool,
    /// Why it can't be made: an unknown tool, an input against the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The tool can look whether a call has happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_verify: bool,
    /// What the tool wants done in doubt, where no rule says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtPolicy>,
    /// What it begins may go on after its worker was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_outlive_worker: bool,
}

/// The model did not reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnFailed {
    /// Which turn.
    pub turn: u32,
    /// Which try.
    pub attempt: u32,
    /// What happened.
    pub failure: Failure,
    /// How long it took.
    #[serde(default)]
    pub active: Millis,
    /// What it cost all the same; for a lost call the whole hold counts.
    #[serde(default)]
    pub charged: Hold,
    /// What whoever was asked says that it cost; none: the list price was charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// The model that is asked from now on, in the place of the one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<String>,
}

/// A person cut the model off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnInterrupted {
    /// Which turn.
    pub turn: u32,
    /// The words so far; thoughts without a seal and half calls are dropped.
    pub text: Arc<str>,
    /// What was used, mostly a guess.
    pub usage: Usage,
    /// What it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// How long it took.
    pub active: Millis,
}
