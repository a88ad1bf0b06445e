//! The request to free an effect key, and what is recorded about calls of an ended run.

use longhaul_core::id::CallId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of a request to free the effect key of a call whose outcome is unknown.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FreeKeyBody {
    /// Id of the call that holds the effect key, such as `t3.1`.
    #[schema(value_type = String)]
    pub call: CallId,
    /// Why the call is known to have had no effect.
    #[serde(default)]
    pub note: String,
}

/// Result of a tool call that arrived after its run had ended, or who freed its effect key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LateToolResult)]
pub struct LateToolResultView {
    /// Id of the tool call, such as `t3.1`.
    pub call: String,
    /// The late result, or who freed the effect key, when and why.
    pub text: String,
}
