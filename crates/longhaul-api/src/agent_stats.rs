//! Statistics of an agent's runs in responses.

use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Statistics of the runs of an agent that were created in a time window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = AgentStats)]
pub struct AgentStatsView {
    /// Name of the agent.
    pub agent: String,
    /// Start of the time window of the statistics.
    pub since: Timestamp,
    /// End of the time window of the statistics: the time of the request.
    pub until: Timestamp,
    /// Whether the time window has more runs than are counted. Then only the newest are counted.
    pub truncated: bool,
    /// Numbers of runs by outcome.
    pub runs: OutcomeCounts,
    /// Share of completed runs among the completed and failed runs. `None` if there are none.
    pub success_rate: Option<f64>,
    /// Total and percentiles of the number of turns of ended runs.
    pub turns: PerRunStats,
    /// Total and percentiles of the input tokens of ended runs.
    pub input_tokens: PerRunStats,
    /// Total and percentiles of the output tokens of ended runs.
    pub output_tokens: PerRunStats,
    /// Total and percentiles of the time in milliseconds during which workers drove ended runs.
    pub active_ms: PerRunStats,
    /// Total and percentiles of the cost of ended runs in US dollars, without unknown costs.
    pub cost_usd: CostStats,
}

/// Numbers of runs by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OutcomeCounts)]
pub struct OutcomeCounts {
    /// Number of all runs, including those that have not ended.
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

/// Sum and percentiles of a number that each ended run has, such as its number of turns. All are 0
/// if no run has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AmountStats)]
pub struct PerRunStats {
    /// Sum of the measured amount, such as turns, over the ended runs.
    pub total: u64,
    /// Median of the measured amount, such as turns, over the ended runs.
    pub p50: u64,
    /// 95th percentile of the measured amount, such as turns, over the ended runs.
    pub p95: u64,
}

/// Total and percentiles of the cost per run, in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CostStats)]
pub struct CostStats {
    /// Sum of the costs of the ended runs whose cost is known.
    pub total: f64,
    /// Median cost of the ended runs whose cost is known.
    pub p50: f64,
    /// 95th percentile of the cost of the ended runs whose cost is known.
    pub p95: f64,
    /// Number of ended runs whose cost is unknown.
    pub unknown: u64,
}
