//! The filter with which gates are listed.

use crate::id::{GateId, RunId};
use crate::policy::gate::GateStatus;

/// Filter for listing gates.
#[derive(Debug, Clone, Default)]
pub struct GateFilter {
    /// Restricts the list to this gate. `None` means no restriction.
    pub gate: Option<GateId>,
    /// Restricts the list to gates of this run. `None` means no restriction.
    pub run: Option<RunId>,
    /// Restricts the list to gates with this status. `None` means no restriction.
    pub status: Option<GateStatus>,
    /// Restricts the list to gates with this tag. `None` means no restriction.
    pub tag: Option<String>,
    /// Continues after this gate in the newest-first order: only older gates are listed. `None`
    /// means from the newest gate.
    pub after: Option<GateId>,
    /// Maximum number of gates to list.
    pub limit: usize,
}

impl GateFilter {
    /// Returns a filter for at most `limit` open gates of this run, or of all runs.
    pub fn open(run: Option<RunId>, limit: usize) -> Self {
        Self { run, status: Some(GateStatus::Open), limit, ..Self::default() }
    }
}
