//! Policies of a run: budgets, retries, approval rules and effect classes.
//!
//! This module only contains plain data. The state machine evaluates the policies.

pub mod budget;
pub mod budget_queue;
pub mod effect;
pub mod effect_facts;
pub mod effect_key;
pub mod gate;
pub mod retry;
pub mod rule;
pub mod spend_cap;

use serde::{Deserialize, Serialize};

use crate::policy::budget::Budget;
use crate::policy::effect::InDoubtPolicy;
use crate::policy::gate::{GateRule, GateTimeout, ResultApprovalGate};
use crate::policy::retry::RetryPolicy;
use crate::raw::is_default;
use crate::time::Millis;

/// All limits and rules of a run. They are computed when the run is submitted and do not change
/// later.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunPolicy {
    /// Caps on money, tokens, turns and active time.
    pub budget: Budget,
    /// Retries of the run after transient failures.
    pub retry: RetryPolicy,
    /// Maximum number of turns, regardless of the budget. `None` means no limit.
    pub max_turns: Option<u32>,
    /// Approval rules. The first rule that matches a call applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<GateRule>,
    /// What happens with calls in doubt (without a recorded outcome) if no matching approval rule
    /// says it. `None` means what the called tool prefers or, if it prefers nothing, that a person
    /// is asked.
    pub in_doubt: Option<InDoubtPolicy>,
    /// Gate where a person approves the final answer. `None` means that the run ends without
    /// approval.
    pub result_gate: Option<ResultApprovalGate>,
    /// Maximum number of rounds in which the result is graded against the rubric of the agent. `None`
    /// means that the result is not graded.
    pub outcome_rounds: Option<u32>,
    /// Time within which questions, requests for help and signals of the agent must be answered.
    /// `None` means the default.
    pub question_timeout: Option<GateTimeout>,
    /// How long the run stays open for follow-up messages after its answer. `None` means not at
    /// all.
    pub keep_open: Option<Millis>,
    /// Whether the run keeps its lane while it is parked (waits without a worker).
    #[serde(skip_serializing_if = "is_default")]
    pub lane_on_park: ParkedLanePolicy,
    /// Whether the current state of what the agent works with is fetched again before each turn
    /// except the first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refresh_perception_each_turn: bool,
    /// What happens with the open child runs when the run is cancelled or fails.
    #[serde(skip_serializing_if = "is_default")]
    pub children_on_cancel: ChildCancelPolicy,
}

/// What happens with the open child runs of a run that is cancelled or fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildCancelPolicy {
    /// The child runs are cancelled when the run is cancelled or fails.
    #[default]
    Cancel,
    /// The child runs continue. Their ends are reported to no other run.
    Keep,
}

/// What happens with the lane of a run while the run is parked (waits without a worker).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkedLanePolicy {
    /// The run keeps its lane while it is parked (waits without a worker), so no other run of the
    /// lane starts.
    #[default]
    Keep,
    /// The run releases its lane to the next run, and queues for the lane again when it wakes. A
    /// run whose call holds an effect key (the key of an effect that happens at most once) keeps
    /// its lane.
    Release,
}

/// What happens with a new task of an agent whose lane, in which runs execute one at a time, is
/// busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneBusyPolicy {
    /// The task becomes a run that waits for the lane.
    #[default]
    Enqueue,
    /// The text of the task is sent as a message to the run that holds the lane.
    Steer,
    /// The text of the task is added to the run that waits for the lane, so that several tasks
    /// become one run.
    Collect,
    /// The task becomes a run, and all other runs in the lane are cancelled.
    Interrupt,
    /// The task is refused while its lane is busy, and no run is created.
    Reject,
}
