//! A lane (queue of runs that are driven one at a time) in responses. The runs of a lane are listed
//! with the `lane` filter.

use longhaul_core::id::RunId;
use longhaul_core::port::records::LaneRow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A lane (queue of runs that are driven one at a time) with at least one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Lane)]
pub struct LaneView {
    /// Name of the lane.
    pub lane: String,
    /// Id of the run that currently holds the lane.
    #[schema(value_type = Option<String>)]
    pub head: Option<RunId>,
    /// Number of runs in the lane, including the run that holds it.
    pub depth: u32,
}

impl From<&LaneRow> for LaneView {
    fn from(row: &LaneRow) -> Self {
        Self { lane: row.lane.to_string(), head: row.head, depth: row.depth }
    }
}
