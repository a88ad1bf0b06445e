//! A timer that a run or one of its tool calls waits for, or that delays the end of a run.

use longhaul_core::id::TimerId;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A timer that a run or one of its tool calls waits for, or that delays the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingTimer {
    pub timer: TimerId,
    /// Time at which the pending timer is due.
    pub until: Timestamp,
    pub fired: bool,
}

/// Returns the id of a timer that has not fired. `None` if it has fired, or if there is none.
pub(crate) fn unfired_timer(pending: Option<PendingTimer>) -> Option<TimerId> {
    pending.filter(|pending| !pending.fired).map(|pending| pending.timer)
}
