//! Body of a request that posts a task to an inbox.

use std::collections::BTreeMap;

use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::schema;
use crate::submit::deserialize_timestamp;

/// A task that is posted to an inbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTask)]
pub struct NewTaskBody {
    /// Name of the agent for the task. Default: the agent of the inbox.
    #[serde(default)]
    pub agent: Option<String>,
    /// Type of the task, by which lists and workers can filter.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Input of the task: a text or any JSON.
    #[schema(schema_with = schema::any_schema)]
    pub payload: RawJson,
    /// Priority of the task; tasks with higher values run first.
    #[serde(default)]
    pub priority: i32,
    /// Lane of the run. Runs of one lane execute one at a time.
    #[serde(default)]
    pub lane: Option<String>,
    /// Thread (conversation) of the run; `metadata.threadId` is accepted, too.
    #[serde(default)]
    pub thread: Option<String>,
    /// Resource: the person or thing that the conversation is about; `metadata.resourceId` is
    /// accepted, too.
    #[serde(default)]
    pub resource: Option<String>,
    /// Any data of the caller, returned with the run.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// Idempotency key: retries with the same key create one task.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// Earliest time at which the run may start.
    #[serde(default, deserialize_with = "deserialize_timestamp")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_at: Option<Timestamp>,
}
