//! A lane as answers show it.
//!
//! Never: its runs. Those are listed by `lane=`.

use longhaul_core::id::RunId;
use longhaul_core::port::records::LaneRow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A lane with somebody in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Lane)]
pub struct LaneView {
    /// Which.
    pub lane: String,
    /// The run that holds it.
    #[schema(value_type = Option<String>)]
    pub head: Option<RunId>,
    /// How many runs are in it, the head included.
    pub depth: u32,
}

impl From<&LaneRow> for LaneView {
    fn from(row: &LaneRow) -> Self {
        Self { lane: row.lane.to_string(), head: row.head, depth: row.depth }
    }
}
