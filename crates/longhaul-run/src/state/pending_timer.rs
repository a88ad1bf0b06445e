//! A timer that a run, a call or an end waits for.
//!
//! Never: sleeps.

use longhaul_core::id::TimerId;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A timer that holds something back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingTimer {
    /// Which.
    pub timer: TimerId,
    /// When it is due.
    pub until: Timestamp,
    /// It has fired.
    pub fired: bool,
}
