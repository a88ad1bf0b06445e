//! Inboxes in requests and responses: a new task or event, and the tasks of an inbox.

use std::collections::BTreeMap;

use longhaul_core::id::{LaneKey, ResourceKey, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::run_list::RunBriefView;
use crate::task::deserialize_timestamp;

/// An inbox with the number of its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Inbox)]
pub struct InboxView {
    /// Name of the inbox.
    pub name: String,
    /// Default agent of the inbox, for tasks that name no agent. `None` means that it has none.
    pub agent: Option<String>,
    /// Whether a live worker claims tasks from the inbox.
    pub served: bool,
    /// Number of tasks that no worker has claimed yet.
    pub pending: u64,
    /// Number of tasks that a worker drives or that are ready to continue.
    pub running: u64,
    /// Number of tasks whose runs wait for something, such as a person, or are blocked or paused.
    pub waiting: u64,
    /// Number of dead letters: failed tasks that nobody has retried.
    pub failed: u64,
}

/// An inbox with its newest tasks and its dead letters (failed tasks that nobody has retried).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = InboxDetail)]
pub struct InboxDetailView {
    /// Name, default agent and number of tasks of the inbox.
    #[serde(flatten)]
    pub inbox: InboxView,
    /// The newest tasks of the inbox, at most 20, newest first.
    pub tasks: Vec<RunBriefView>,
    /// The newest dead letters of the inbox, at most 20, newest first: failed tasks that nobody has
    /// retried.
    pub dead_letters: Vec<RunBriefView>,
}

/// A task that is posted to an inbox.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTask)]
pub struct NewTaskBody {
    /// Name of the agent for the task. Default: the agent of the inbox.
    pub agent: Option<String>,
    /// Type of the task, by which lists and workers can filter.
    #[serde(rename = "type")]
    #[schema(min_length = 1, max_length = 256)]
    pub kind: Option<String>,
    /// Input of the task: a text or any JSON.
    pub payload: RawJson,
    /// Priority of the task; tasks with higher values run first.
    #[serde(default)]
    pub priority: i32,
    /// Lane of the run. Runs of one lane execute one at a time.
    pub lane: Option<LaneKey>,
    /// Thread (conversation) of the run; `metadata.threadId` is accepted, too.
    pub thread: Option<ThreadKey>,
    /// Resource: the person or thing that the conversation is about; `metadata.resourceId` is
    /// accepted, too.
    pub resource: Option<ResourceKey>,
    /// Context values that the runtime injects into tool calls. The model can neither see nor set
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
    /// Person or system on whose behalf the run acts.
    pub actor: Option<RawJson>,
    /// References to related objects in other systems.
    #[serde(alias = "linkedGraphHandles")]
    pub links: Option<RawJson>,
    /// Any data of the caller, returned with the run.
    pub metadata: Option<BTreeMap<String, Value>>,
    /// Idempotency key: retries with the same key create one task.
    #[schema(min_length = 1, max_length = 255, pattern = "^[ -~]*[!-~][ -~]*$")]
    pub idempotency_key: Option<String>,
    /// Earliest time at which the run may start.
    #[serde(default, deserialize_with = "deserialize_timestamp")]
    pub start_at: Option<Timestamp>,
}

/// An event for an agent, such as `idle_tick` (the agent has nothing else to do) or `player_action`
/// (the user of a game acts).
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEvent)]
pub struct NewEventBody {
    /// Name of the agent that reads the event.
    pub agent: String,
    /// Kind of the event. The agent's file may define the text that the agent reads for this kind.
    #[schema(min_length = 1, max_length = 256)]
    pub kind: String,
    /// Person or system that caused the event, such as `{"name": "Ada"}`.
    pub actor: Option<RawJson>,
    /// Data of the event: a text or any JSON.
    pub payload: Option<RawJson>,
    /// References to related objects in other systems.
    #[serde(alias = "linkedGraphHandles")]
    pub links: Option<RawJson>,
    /// Lane of the run. Runs of one lane execute one at a time. Default: the lane of the agent.
    pub lane: Option<LaneKey>,
    /// Thread (conversation) that the run belongs to.
    pub thread: Option<ThreadKey>,
    /// Resource: the person or thing that the conversation is about.
    pub resource: Option<ResourceKey>,
}
