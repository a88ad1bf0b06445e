//! Events in requests and responses: an event for an agent, and an event of a journal.

use longhaul_core::id::{LaneKey, ResourceKey, RunId, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

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
    #[serde(default)]
    pub actor: Option<RawJson>,
    /// Data of the event: a text or any JSON.
    #[serde(default)]
    pub payload: Option<RawJson>,
    /// References to related objects in other systems.
    #[serde(default, alias = "linkedGraphHandles")]
    pub links: Option<RawJson>,
    /// Lane of the run. Runs of one lane execute one at a time. Default: the lane of the agent.
    #[serde(default)]
    pub lane: Option<LaneKey>,
    /// Thread (conversation) that the run belongs to.
    #[serde(default)]
    pub thread: Option<ThreadKey>,
    /// Resource: the person or thing that the conversation is about.
    #[serde(default)]
    pub resource: Option<ResourceKey>,
}

/// OpenAPI schema of a journal event
/// ([`JournalEntryEnvelope`](longhaul_core::event::entry::JournalEntryEnvelope)).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// Id of the run whose journal has the event.
    run: RunId,
    /// Sequence number of the event in the run's journal, from 1.
    seq: u64,
    /// Time at which the event was appended.
    at: Timestamp,
    /// Type of the event, such as `run.created`.
    #[serde(rename = "type")]
    kind: String,
    /// Version of the event's `data` format.
    v: u16,
    /// Number of the turn to which the event belongs.
    #[schema(required = false)]
    turn: u32,
    /// Epoch of the claim under which the event was written. Each claim of a run by a worker has a
    /// higher epoch.
    epoch: u64,
    /// Data of the event, in the format of its `type` and `v`.
    data: Value,
}
