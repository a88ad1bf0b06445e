//! Statistics of an agent's runs in responses.

use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// Statistics of the runs of an agent that were created in a time window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = AgentStats)]
pub struct AgentStatsView {
    /// Name of the agent.
    pub agent: String,
    /// Start of the window.
    #[schema(schema_with = schema::timestamp_schema)]
    pub since: Timestamp,
    /// End of the window: the time of the request.
    #[schema(schema_with = schema::timestamp_schema)]
    pub until: Timestamp,
    /// Whether the window has more runs than are counted. Then only the newest are counted.
    pub truncated: bool,
    /// Numbers of runs by outcome.
    pub runs: OutcomeCounts,
    /// Share of completed runs among the completed and failed runs. `None` if there are none.
    pub success_rate: Option<f64>,
    /// Turns per ended run.
    pub turns: AmountStats,
    /// Input tokens per ended run.
    pub input_tokens: AmountStats,
    /// Output tokens per ended run.
    pub output_tokens: AmountStats,
    /// Active time per ended run, in milliseconds.
    pub active_ms: AmountStats,
    /// Cost per ended run in US dollars, without runs whose cost is unknown.
    pub cost_usd: CostStats,
}

/// Numbers of runs by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OutcomeCounts)]
pub struct OutcomeCounts {
    /// Number of all runs.
    pub total: u64,
    /// Number of completed runs.
    pub completed: u64,
    /// Number of failed runs.
    pub failed: u64,
    /// Number of cancelled runs.
    pub cancelled: u64,
    /// Number of runs that have not ended.
    pub open: u64,
}

/// Total and percentiles of a number per run. All are 0 if there are no runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AmountStats)]
pub struct AmountStats {
    /// Sum over all runs.
    pub total: u64,
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
}

/// Total and percentiles of the cost per run, in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CostStats)]
pub struct CostStats {
    /// Sum over all runs.
    pub total: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Number of runs whose cost is unknown.
    pub unknown: u64,
}
