//! An agent in responses. The prompt is not included; the transcript of a run shows it.

use longhaul_core::raw::Hash;
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
