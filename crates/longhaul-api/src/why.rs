//! Explanation of a run's status in responses.

use longhaul_core::id::RunId;
use longhaul_core::status::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An explanation of a run's status, and a command to run next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Why)]
pub struct RunExplanation {
    /// Id of the run.
    pub run: RunId,
    /// Status of the run, such as running, waiting or completed.
    pub status: Status,
    /// Reason for the status as a short code.
    pub reason: Option<String>,
    /// Explanation of the status in a sentence.
    pub message: String,
    /// Shell command to run next. Empty if nothing needs to be done.
    pub command: String,
}
