//! Budget caps. Money and tokens are counted over the whole tree of runs, turns and active time per
//! run.
//!
//! This module only describes the caps. The store counts what has been used.

use serde::{Deserialize, Serialize};

use crate::time::Millis;
use crate::usage::MicroUsd;

/// Budget caps of a run. `None` means no cap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Maximum amount of money for the whole tree of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<MicroUsd>,
    /// Maximum number of input and output tokens for the whole tree of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum number of completed turns of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Maximum active time of the run, i.e. total time from claiming to parking it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Millis>,
    /// Percentage of a cap: when so much is used, the agent is told to finish.
    pub warn_percent: u8,
}

impl Default for Budget {
    fn default() -> Self {
        Self { micro_usd: None, tokens: None, turns: None, active: None, warn_percent: 90 }
    }
}

impl Budget {
    /// Default budget of a project without budget settings: 5 dollars, 200 turns, 4 hours.
    pub const PROJECT_DEFAULT: Self = Self {
        micro_usd: Some(MicroUsd(5_000_000)),
        tokens: None,
        turns: Some(200),
        active: Some(Millis::from_secs(4 * 60 * 60)),
        warn_percent: 90,
    };

    /// Returns the budget after replacing every cap for which `raise` has a new value.
    pub fn with_raised_caps(self, raise: BudgetRaise) -> Self {
        Self {
            micro_usd: raise.micro_usd.or(self.micro_usd),
            tokens: raise.tokens.or(self.tokens),
            turns: raise.turns.or(self.turns),
            active: raise.active.or(self.active),
            warn_percent: self.warn_percent,
        }
    }
}

/// New budget caps for a run that continues. `None` leaves a cap unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetRaise {
    /// New cap on the money that the whole tree of runs may spend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<MicroUsd>,
    /// New cap on the tokens that the whole tree of runs may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// New cap on the number of completed turns of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// New cap on the active time of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Millis>,
}

/// Kind of a budget cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetCap {
    /// Cap on the money that the whole tree of runs may spend.
    Money,
    /// Cap on the tokens that the whole tree of runs may use.
    Tokens,
    /// Cap on the number of completed turns of a run.
    Turns,
    /// Cap on the active time of a run.
    ActiveTime,
}
