//! A task for an inbox in a request.

use std::collections::BTreeMap;

use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::schema;
use crate::submit::timestamp;

/// A task to be posted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTask)]
pub struct NewTaskBody {
    /// Who does it; unless it is said, the inbox's own.
    #[serde(default)]
    pub agent: Option<String>,
    /// What kind of task it is, for filters.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// A text or any JSON.
    #[schema(schema_with = schema::any)]
    pub payload: RawJson,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Only one run of a lane goes at a time.
    #[serde(default)]
    pub lane: Option<String>,
    /// The conversation it belongs to; `metadata.threadId` is read too.
    #[serde(default)]
    pub thread: Option<String>,
    /// Whom the conversation is about; `metadata.resourceId` is read too.
    #[serde(default)]
    pub resource: Option<String>,
    /// Anything that is wanted back.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// Post it again under the same key, and it counts once.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// It does not begin before this point.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_at: Option<Timestamp>,
}
