//! What a check of `longhaul doctor` found.

use longhaul_engine::agent::Agent;
use serde::Serialize;

/// Result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) status: FindingStatus,
    /// What was found and, if it is a problem, what helps.
    pub(super) message: String,
    /// Further facts, each a sentence.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingStatus {
    Ok,
    /// Something is missing, but nothing in this folder needs it.
    Warning,
    Problem,
}

impl Finding {
    pub(super) fn new(name: &'static str, status: FindingStatus, message: String) -> Self {
        Self { name, status, message, notes: Vec::new() }
    }
}

/// Returns the names of agents, separated by commas.
pub(super) fn agent_names(agents: &[&Agent]) -> String {
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    names.join(", ")
}
