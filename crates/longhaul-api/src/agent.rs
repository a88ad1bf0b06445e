//! Agents with the statistics of their runs, and chains (sequences of steps that agents execute), in
//! responses. The prompt of an agent is not included; the transcript of a run shows it.

use longhaul_core::chain::{ChainRepeatSpec, ChainStepCondition};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An agent, as responses describe it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Agent)]
pub struct AgentView {
    /// Name of the agent.
    pub name: String,
    /// Version of the agent: the hash of its definition.
    pub version: Hash,
    /// Short description of the agent's purpose.
    pub description: String,
    /// Models of the agent, tried in this order. An empty list means the project's default model.
    pub models: Vec<String>,
    /// Names of the tools that the agent may use.
    pub tools: Vec<String>,
    /// Names of the context values that a task may set for the agent's tools.
    pub context: Vec<String>,
    /// Maximum number of turns per run. `None` means no limit.
    pub max_turns: Option<u32>,
}

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

/// A chain (sequence of steps that agents execute) that the server knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Chain)]
pub struct ChainView {
    /// Name of the chain.
    pub name: String,
    /// What the chain is for, in a sentence.
    pub description: Option<String>,
    /// Steps of the chain, in order.
    pub steps: Vec<ChainStepView>,
}

/// A step of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ChainStep)]
pub struct ChainStepView {
    /// Name of the step.
    pub name: String,
    /// Name of the agent that executes the step.
    pub agent: String,
    /// Whether the result of the step is approved automatically after three seconds, unless a
    /// person answers before.
    pub auto_approve: bool,
    /// Condition under which the step runs: `always`, `on_success` or `on_issues_found`.
    pub condition: ChainStepCondition,
    /// Loop after this step: the step to go back to, the condition that ends the loop, and the
    /// maximum number of repetitions. `None` means no loop.
    #[schema(value_type = Option<RawJson>)]
    pub repeat: Option<ChainRepeatSpec>,
}
