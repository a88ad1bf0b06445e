//! Facts about the run as a whole.
//!
//! Never: facts about a turn, a call or a gate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::FailureClass;
use crate::id::{Epoch, GateId, RunId, Seq, TimerId, WorkerId};
use crate::message::Message;
use crate::policy::budget::BudgetRaise;
use crate::raw::{RawJson, StoredText};
use crate::status::{Output, RunError, Wait};
use crate::task::TaskSpec;
use crate::time::Millis;
use crate::usage::ModelPricing;

/// Everything a run is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunCreated {
    /// What is to be done.
    pub task: TaskSpec,
}

/// Who took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaimed {
    /// The worker.
    pub worker: WorkerId,
    /// The fence it holds.
    pub epoch: Epoch,
}

/// What the run sees: rendered once, so that a replay sees the same world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPrepared {
    /// The system prompt.
    pub system: StoredText,
    /// The table of tools: our names, wire names, schemas, classes.
    pub tools: StoredText,
    /// Memory and the first user message.
    pub initial_messages: Vec<Message>,
    /// The model that will be asked, as `provider/model`.
    pub model: String,
    /// The models that are asked in its place when it fails for good, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// What the dearest model of the list charges.
    pub pricing: ModelPricing,
    /// Who sums up what no longer fits; none: the run's own model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compactor: Option<Compactor>,
    /// The world as somebody saw it, as JSON; none: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<StoredText>,
    /// What whoever looked gives to tools, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
    /// Those tools of the table that others bring: what they bring later is not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external_tools: Vec<String>,
    /// So many identical calls with identical results in a row end the run, and at
    /// half of it the model is told; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identical_calls: Option<u32>,
}

/// A model that sums up conversations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compactor {
    /// As `provider/model`.
    pub model: String,
    /// What it charges, and how much it can read.
    pub pricing: ModelPricing,
}

/// Why it rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWaiting {
    /// What it waits for.
    pub wait: Wait,
    /// The timer that ends the wait by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<TimerId>,
}

/// An attempt has passed its soft timeout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOverdue {
    /// The active time so far.
    pub active: Millis,
    /// The bound.
    pub soft_timeout: Millis,
}

/// A new driver found the run as a dead one left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecovered {
    /// The epoch of the driver that died.
    pub crashed_epoch: Epoch,
}

/// A person or program asked for something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunControlRequest {
    /// Who.
    pub by: String,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// New caps that come with a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise: Option<BudgetRaise>,
}

impl RunControlRequest {
    /// Asked by this person, without a reason.
    pub fn by(who: impl Into<String>) -> Self {
        Self { by: who.into(), reason: String::new(), raise: None }
    }
}

/// The agent can't go on, or a part is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBlocked {
    /// The question that an answer or a steer settles.
    pub gate: GateId,
    /// Why, in a sentence.
    pub reason: String,
}

/// It ended because somebody said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCancelled {
    /// Who and why, in a sentence.
    pub reason: String,
}

/// It ended with a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCompleted {
    /// The result.
    pub output: Output,
}

/// It ended without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailed {
    /// Why.
    pub error: RunError,
}

/// It will be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRetryScheduled {
    /// The attempt to come, from 2.
    pub attempt: u32,
    /// After how long.
    pub delay: Millis,
    /// What failed.
    pub class: FailureClass,
}

/// It is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRetried {
    /// Which attempt this is.
    pub attempt: u32,
}

/// It began as a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunForked {
    /// Of this run.
    pub from: RunId,
    /// Up to here, exclusive.
    pub before: Seq,
}
