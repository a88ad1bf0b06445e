//! Body of a request that sends an event to an agent.

use longhaul_core::raw::RawJson;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

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
    #[schema(schema_with = schema::any_json_schema)]
    pub actor: Option<RawJson>,
    /// Data of the event: a text or any JSON.
    #[serde(default)]
    #[schema(schema_with = schema::any_json_schema)]
    pub payload: Option<RawJson>,
    /// References to related objects in other systems.
    #[serde(default, alias = "linkedGraphHandles")]
    #[schema(schema_with = schema::any_json_schema)]
    pub links: Option<RawJson>,
    /// Lane of the run. Runs of one lane execute one at a time. Default: the lane of the agent.
    #[serde(default)]
    pub lane: Option<String>,
    /// Thread (conversation) that the run belongs to.
    #[serde(default)]
    pub thread: Option<String>,
    /// Resource: the person or thing that the conversation is about.
    #[serde(default)]
    pub resource: Option<String>,
}
