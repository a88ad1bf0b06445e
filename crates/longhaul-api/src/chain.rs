//! Chains (sequences of steps that agents execute) in responses.

use longhaul_core::chain::{ChainRepeatSpec, ChainStepCondition};
use longhaul_core::raw::RawJson;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
