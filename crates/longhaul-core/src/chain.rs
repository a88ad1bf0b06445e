//! Chains: sequences of steps, each of which is a run of its own.
//!
//! This module only describes chains. The state machine starts the next step when a step has
//! completed.

use serde::{Deserialize, Serialize};

use crate::id::AgentName;
use crate::raw::Hash;

/// Maximum number of steps that a chain may run under one root run.
pub const CHAIN_STEPS_MAX: usize = 10;

/// A chain as submitted with a run. The agent version of every step is already pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Name of the chain. `None` means that the steps were given in the request itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Steps of the chain, in order.
    pub steps: Vec<ChainStep>,
}

impl Chain {
    /// Returns the index of the step to run after a completed step: the first later step whose
    /// condition holds for the outcome of the completed step. `None` means that the chain ends.
    pub fn next_step(&self, completed_step: usize, outcome: ChainStepOutcome) -> Option<usize> {
        (completed_step + 1..self.steps.len()).find(|step| match self.steps[*step].condition {
            ChainStepCondition::Always => true,
            ChainStepCondition::OnSuccess => outcome.success,
            ChainStepCondition::OnIssuesFound => outcome.issues_found,
        })
    }
}

/// Facts from the output of a completed step that the conditions of later steps refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainStepOutcome {
    /// Whether `output.data.success` is anything other than `false`.
    pub success: bool,
    /// Whether `output.data.issues_found` is `true`.
    pub issues_found: bool,
}

/// One step of a chain: an agent and the condition under which it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStep {
    /// Agent that executes the step.
    pub agent: AgentName,
    /// Hash of the agent definition that the step is pinned to.
    pub definition: Hash,
    /// Whether the gate that asks for approval of the step's result is approved automatically.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_approve: bool,
    /// Condition under which the step runs.
    #[serde(default)]
    pub condition: ChainStepCondition,
}

/// Condition under which a step of a chain runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainStepCondition {
    /// Run the step regardless of the previous step's output.
    #[default]
    Always,
    /// Run the step unless the previous step's output has `success: false`.
    OnSuccess,
    /// Run the step only if the previous step's output has `issues_found: true`.
    OnIssuesFound,
}

/// Position of a run in the chain that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionInChain {
    /// Chain that the run belongs to, with all its steps.
    pub chain: Chain,
    /// Index of the step that this run executes, from 0.
    pub step: usize,
}
