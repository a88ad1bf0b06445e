//! A unit of work: what is to be done, by whom, under which policy.
//!
//! Never: the work's state. In a durable inbox a task is a run, one row, one id.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chain::ChainPosition;
use crate::id::{AgentName, BatchId, InboxName, LaneKey, ResourceKey, RunId, ThreadKey};
use crate::message::Message;
use crate::policy::Policy;
use crate::raw::{Hash, RawJson};
use crate::time::Timestamp;

/// Everything a run is made of, journaled once when it is created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Who does it.
    pub agent: AgentName,
    /// The agent's version: the hash of its definition.
    pub definition: Hash,
    /// A text or any JSON.
    pub input: RawJson,
    /// Names the runtime injects and the model can neither see nor set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
    /// A conversation that came with the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// The model, where the task names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where it queues.
    pub inbox: InboxName,
    /// What kind of task it is, for filters.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// It is an event: its kind and its input are told to the agent in words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub event: bool,
    /// Higher goes first; it orders lanes against each other, never inside one.
    #[serde(default)]
    pub priority: i32,
    /// Only one run of a lane goes at a time. Only a root has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<LaneKey>,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadKey>,
    /// Whom the conversation is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceKey>,
    /// When it may begin.
    #[serde(default, skip_serializing_if = "Start::is_now")]
    pub start: Start,
    /// What binds it.
    #[serde(default)]
    pub policy: Policy,
    /// The run that asked for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// The run at the top; a root's own id.
    pub root: RunId,
    /// Where it stands in a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainPosition>,
    /// Runs that were submitted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Who submitted it, such as `key:ops`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitter: Option<String>,
    /// On whose behalf, as the caller says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<RawJson>,
    /// Handles of things elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<RawJson>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Anything else the caller wants back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawJson>,
}

impl TaskSpec {
    /// A task with nothing but who, what and where.
    pub fn new(run: RunId, agent: AgentName, input: RawJson, inbox: InboxName) -> Self {
        Self {
            definition: Hash::digest(agent.as_str().as_bytes()),
            agent,
            input,
            context: BTreeMap::new(),
            history: Vec::new(),
            model: None,
            inbox,
            kind: None,
            event: false,
            priority: 0,
            lane: None,
            thread: None,
            resource: None,
            start: Start::Now,
            policy: Policy::default(),
            parent: None,
            root: run,
            chain: None,
            batch: None,
            submitter: None,
            actor: None,
            links: None,
            tags: Vec::new(),
            metadata: None,
        }
    }
}

/// When a task may begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// As soon as a worker has time.
    #[default]
    Now,
    /// Not before this point.
    At(Timestamp),
    /// When the run before it in its sequential batch has completed.
    AfterBatch,
}

impl Start {
    const fn is_now(&self) -> bool {
        matches!(self, Self::Now)
    }
}
