//! Caps. Money and tokens are counted over the whole tree of runs, turns and
//! active time for each run.
//!
//! Never: keeps a balance; that is a row of the store.

use serde::{Deserialize, Serialize};

use crate::time::Millis;
use crate::usage::MicroUsd;

/// What a run may use up. None: no cap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<MicroUsd>,
    /// Tokens, in and out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Completed turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Time between claim and park.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Millis>,
    /// From this share on, in percent, the agent is told to wrap up.
    pub warn_percent: u8,
}

impl Default for Budget {
    fn default() -> Self {
        Self { micro_usd: None, tokens: None, turns: None, active: None, warn_percent: 90 }
    }
}

impl Budget {
    /// What a project without a word about budgets gets: 5 dollars, 200 turns, 4 hours.
    pub const PROJECT_DEFAULT: Self = Self {
        micro_usd: Some(MicroUsd(5_000_000)),
        tokens: None,
        turns: Some(200),
        active: Some(Millis::from_secs(4 * 60 * 60)),
        warn_percent: 90,
    };

    /// These caps with every cap that `raise` names put in its place.
    pub fn with_raise(self, raise: BudgetRaise) -> Self {
        Self {
            micro_usd: raise.micro_usd.or(self.micro_usd),
            tokens: raise.tokens.or(self.tokens),
            turns: raise.turns.or(self.turns),
            active: raise.active.or(self.active),
            warn_percent: self.warn_percent,
        }
    }
}

/// New caps for a run that goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetRaise {
    /// Money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<MicroUsd>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Active time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Millis>,
}

/// Which cap was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    /// Money.
    Money,
    /// Tokens.
    Tokens,
    /// Turns.
    Turns,
    /// Active time.
    ActiveTime,
}
