//! What a run may do, how often, how long, and whom it must ask.
//!
//! Never: judges a call or counts money. The heart does that with these words.

pub mod budget;
pub mod effect;
pub mod gate;
pub mod retry;

use serde::{Deserialize, Serialize};

use crate::policy::budget::Budget;
use crate::policy::effect::InDoubtPolicy;
use crate::policy::gate::{GateRule, ResultGate};
use crate::policy::retry::RetryPolicy;
use crate::time::Millis;

/// Everything that binds a run, resolved when it is submitted and pinned then.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Caps on money, tokens, turns and active time.
    pub budget: Budget,
    /// What to do after failures that may pass.
    pub retry: RetryPolicy,
    /// After so many turns the run ends, whatever its budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Which calls need a person; the first match wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<GateRule>,
    /// What happens to a call in doubt that no rule speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtPolicy>,
    /// The final answer is itself a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_gate: Option<ResultGate>,
    /// A run that would end stays open for follow-ups this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_open: Option<Millis>,
    /// Whether a parked run holds its lane.
    #[serde(skip_serializing_if = "LaneOnPark::is_keep")]
    pub lane_on_park: LaneOnPark,
    /// Before each turn but the first somebody looks at the world again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refresh_perception_each_turn: bool,
}

/// What a parked run does with its lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneOnPark {
    /// Nobody passes it while it waits.
    #[default]
    Keep,
    /// It lets the next one go and queues again when it wakes.
    Release,
}

impl LaneOnPark {
    const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}
