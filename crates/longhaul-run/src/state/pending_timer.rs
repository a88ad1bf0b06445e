//! A timer that a run, a tool call or the end of a run waits for.

use longhaul_core::id::TimerId;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A timer that a run, a tool call or the end of a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingTimer {
    /// Id of the pending timer.
    pub timer: TimerId,
    /// Time at which the pending timer is due.
    pub until: Timestamp,
    /// Whether the pending timer has fired.
    pub fired: bool,
}
