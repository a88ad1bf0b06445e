//! Steps that follow one another, each a run of its own.
//!
//! Never: opens a step. The heart decides that when a step has completed.

use serde::{Deserialize, Serialize};

use crate::id::AgentName;
use crate::raw::Hash;

/// No chain has more steps from one root.
pub const CHAIN_STEPS_MAX: usize = 10;

/// A chain, resolved whole when it is submitted: every step's agent is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Its name, or none for one given inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The steps in order.
    pub steps: Vec<ChainStep>,
}

impl Chain {
    /// The first step after `done` whose condition holds for what `done` gave.
    pub fn next_step(&self, done: usize, verdict: StepOutcome) -> Option<usize> {
        (done + 1..self.steps.len()).find(|step| match self.steps[*step].condition {
            Condition::Always => true,
            Condition::OnSuccess => verdict.success,
            Condition::OnIssuesFound => verdict.issues_found,
        })
    }
}

/// What the conditions look at in a completed step's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepOutcome {
    /// `output.data.success` is not false.
    pub success: bool,
    /// `output.data.issues_found` is true.
    pub issues_found: bool,
}

/// One step of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStep {
    /// Who does it.
    pub agent: AgentName,
    /// The agent's version.
    pub definition: Hash,
    /// Its result gate answers itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_approve: bool,
    /// Whether it is done at all.
    #[serde(default)]
    pub condition: Condition,
}

/// When a step is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Whatever the step before says.
    #[default]
    Always,
    /// Unless the step before says `success: false`.
    OnSuccess,
    /// Only if the step before says `issues_found: true`.
    OnIssuesFound,
}

/// Where a run stands in its chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainPosition {
    /// The whole chain.
    pub chain: Chain,
    /// Which step this run is, from 0.
    pub step: usize,
}
