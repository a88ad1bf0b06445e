//! A task as a caller writes it: who, what, and whatever else is to be said.
//!
//! Never: an id, or what the agent's file says. The handle fills those in.

use std::collections::BTreeMap;

use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::raw::RawJson;
use longhaul_core::task::Start;
use serde::Serialize;

use crate::agent::BudgetPatch;

/// A unit of work for an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    /// Who does it.
    pub agent: String,
    /// A text or any JSON.
    pub input: RawJson,
    /// Names the runtime injects and the model can neither see nor set.
    pub context: BTreeMap<String, RawJson>,
    /// A conversation that comes with it.
    pub history: Vec<Message>,
    /// The model, where the caller names one.
    pub model: Option<String>,
    /// Where it queues; none: the default inbox.
    pub inbox: Option<InboxName>,
    /// What kind of task it is, for filters.
    pub kind: Option<String>,
    /// It is an event: its kind and its input are told to the agent in words.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub event: bool,
    /// Higher goes first.
    pub priority: i32,
    /// Only one run of a lane goes at a time; none: what the agent's file says.
    pub lane: Option<LaneKey>,
    /// The conversation it belongs to.
    pub thread: Option<ThreadKey>,
    /// Whom the conversation is about.
    pub resource: Option<ResourceKey>,
    /// When it may begin.
    pub start: Start,
    /// Caps of its own.
    pub budget: BudgetPatch,
    /// Who submits it, such as `cli:anna`.
    pub submitter: Option<String>,
    /// On whose behalf, as the caller says it.
    pub actor: Option<RawJson>,
    /// Handles of things elsewhere.
    pub links: Option<RawJson>,
    /// Labels to find it by.
    pub tags: Vec<String>,
    /// Anything else the caller wants back.
    pub metadata: Option<RawJson>,
    /// Submit once, however often it is sent.
    pub idempotency_key: Option<String>,
}

impl Task {
    /// A task with nothing but who and what.
    pub fn new(agent: impl Into<String>, input: impl Serialize) -> Self {
        Self {
            agent: agent.into(),
            input: RawJson::from_serialize(&input),
            context: BTreeMap::new(),
            history: Vec::new(),
            model: None,
            inbox: None,
            kind: None,
            event: false,
            priority: 0,
            lane: None,
            thread: None,
            resource: None,
            start: Start::Now,
            budget: BudgetPatch::default(),
            submitter: None,
            actor: None,
            links: None,
            tags: Vec::new(),
            metadata: None,
            idempotency_key: None,
        }
    }
}
