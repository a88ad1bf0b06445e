//! A lane (queue of runs that are driven one at a time) in responses. `GET /v1/runs?lane=NAME`
//! lists the runs of a lane.

use longhaul_core::id::RunId;
use longhaul_core::port::records::LaneRow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A lane (queue of runs that are driven one at a time).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Lane)]
pub struct LaneView {
    /// Name of the lane.
    pub lane: String,
    /// Id of the run that currently holds the lane. `None` means that no run holds it.
    pub holder: Option<RunId>,
    /// Whether a run holds the lane.
    pub busy: bool,
    /// Number of runs that wait for the lane, without the run that holds it.
    pub waiting: u32,
    /// Whether the lane is paused, so that no run of it starts.
    pub paused: bool,
}

impl From<&LaneRow> for LaneView {
    fn from(row: &LaneRow) -> Self {
        Self {
            lane: row.lane.to_string(),
            holder: row.holder,
            busy: row.is_busy(),
            waiting: row.waiting_run_count(),
            paused: row.paused,
        }
    }
}
