//! Budget caps. Money and tokens are counted for the whole tree of runs and, for a child run, also
//! for the child alone. Turns and active time are counted for each run.
//!
//! The store counts what a tree of runs has used.

use serde::{Deserialize, Serialize};

use crate::time::Millis;
use crate::usage::{BudgetAmount, MicroUsd, RemainingBudget};

/// Budget caps of a run. `None` means no cap.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Maximum amount of money for the whole tree of runs. `None` means no cap.
    pub micro_usd: Option<MicroUsd>,
    /// Maximum number of input and output tokens for the whole tree of runs. `None` means no cap.
    pub tokens: Option<u64>,
    /// Maximum number of completed turns of the run. `None` means no cap.
    pub turns: Option<u32>,
    /// Maximum active time of the run, i.e. time spent in model calls, tool calls and the context
    /// provider, without waits. `None` means no cap.
    pub active: Option<Millis>,
    /// Used percentage of a cap from which the agent is asked to finish.
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

    /// Returns a cap in millionths of a US dollar, tokens, turns or milliseconds. `None` means no cap.
    pub fn limit_of_cap(&self, cap: BudgetCap) -> Option<u64> {
        match cap {
            BudgetCap::Money => self.micro_usd.map(|micro_usd| micro_usd.0),
            BudgetCap::Tokens => self.tokens,
            BudgetCap::Turns => self.turns.map(u64::from),
            BudgetCap::ActiveTime => self.active.map(|active| active.0),
        }
    }

    /// Returns the budget after replacing every cap for which `caps` has a value.
    pub fn with_replaced_caps(self, caps: BudgetRaise) -> Self {
        Self {
            micro_usd: caps.micro_usd.or(self.micro_usd),
            tokens: caps.tokens.or(self.tokens),
            turns: caps.turns.or(self.turns),
            active: caps.active.or(self.active),
            warn_percent: self.warn_percent,
        }
    }

    /// Returns the budget after raising every cap for which `raise` has a higher value. No cap is
    /// lowered, and a missing cap stays missing.
    pub fn with_raised_caps(self, raise: BudgetRaise) -> Self {
        Self {
            micro_usd: raised_cap(self.micro_usd, raise.micro_usd),
            tokens: raised_cap(self.tokens, raise.tokens),
            turns: raised_cap(self.turns, raise.turns),
            active: raised_cap(self.active, raise.active),
            warn_percent: self.warn_percent,
        }
    }
}

/// Returns the higher one of a cap and its new value `raise`. Without a new value the cap stays as
/// it is, and a missing cap (`None`) stays missing.
pub fn raised_cap<T: Copy + Ord>(cap: Option<T>, raise: Option<T>) -> Option<T> {
    cap.map(|cap| raise.map_or(cap, |raise| cap.max(raise)))
}

/// New budget caps for a run that continues. `None` leaves a cap unchanged.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetRaise {
    /// New cap on the money that the whole tree of runs may spend. `None` leaves the cap unchanged.
    pub micro_usd: Option<MicroUsd>,
    /// New cap on the tokens that the whole tree of runs may use. `None` leaves the cap unchanged.
    pub tokens: Option<u64>,
    /// New cap on the number of completed turns of the run. `None` leaves the cap unchanged.
    pub turns: Option<u32>,
    /// New cap on the active time (without waits) of the run. `None` leaves the cap unchanged.
    pub active: Option<Millis>,
}

/// Budget caps that override other caps. A cap that is `None` overrides nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetPatch {
    /// New caps of the budget. Caps that are not set stay as they are.
    pub caps: BudgetRaise,
    /// Used share of the budget, in percent, at which the model is asked to finish its work. `None`
    /// leaves the share unchanged.
    pub warn_percent: Option<u8>,
}

impl BudgetPatch {
    /// Returns `budget`, with every cap that this patch sets replaced by the cap of the patch.
    pub fn apply_to_budget(self, budget: Budget) -> Budget {
        Budget {
            warn_percent: self.warn_percent.unwrap_or(budget.warn_percent),
            ..budget.with_replaced_caps(self.caps)
        }
    }
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
    /// Cap on the active time (without waits) of a run.
    ActiveTime,
}

impl BudgetCap {
    pub const ALL: [Self; 4] = [Self::Money, Self::Tokens, Self::Turns, Self::ActiveTime];

    /// Returns what the cap limits, for texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Money => "money",
            Self::Tokens => "tokens",
            Self::Turns => "turns",
            Self::ActiveTime => "active time",
        }
    }
}

/// Budget account shared by a tree of runs, i.e. a root run and its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetAccount {
    /// Cap on the money that the tree of runs may spend. `None` means no cap.
    pub cap_micro_usd: Option<MicroUsd>,
    /// Cap on the tokens that the tree of runs may use. `None` means no cap.
    pub cap_tokens: Option<u64>,
    /// Money and tokens that the tree of runs has used so far.
    pub spent: BudgetAmount,
    /// Money and tokens booked as used because the real usage is unknown.
    pub lost: BudgetAmount,
    /// Money and tokens held (reserved) for model requests in progress.
    pub held: BudgetAmount,
}

impl BudgetAccount {
    /// Returns the part of the caps that is neither used nor held (reserved).
    pub fn unreserved_budget(&self) -> RemainingBudget {
        self.remaining_budget_after(self.used().plus(self.held))
    }

    /// Returns the part of the caps that is not used. Amounts that are only held (reserved) for
    /// model requests in progress count as not used.
    pub fn unspent_budget(&self) -> RemainingBudget {
        self.remaining_budget_after(self.used())
    }

    /// Returns a cap in millionths of a US dollar or in tokens. `None` means that the account has no
    /// such cap.
    pub fn limit_of_cap(&self, cap: BudgetCap) -> Option<u64> {
        match cap {
            BudgetCap::Money => self.cap_micro_usd.map(|micro_usd| micro_usd.0),
            BudgetCap::Tokens => self.cap_tokens,
            BudgetCap::Turns | BudgetCap::ActiveTime => None,
        }
    }

    /// Returns whether at least this percentage of a cap on money or tokens is used.
    pub fn has_used_percent(&self, cap: BudgetCap, percent: u8) -> bool {
        let max = self.limit_of_cap(cap);
        let used = match cap {
            BudgetCap::Money => self.used().micro_usd.0,
            BudgetCap::Tokens => self.used().tokens,
            BudgetCap::Turns | BudgetCap::ActiveTime => return false,
        };
        let is_above = |max: u64| u128::from(used) * 100 >= u128::from(max) * u128::from(percent);
        used > 0 && max.is_some_and(is_above)
    }

    const fn used(&self) -> BudgetAmount {
        self.spent.plus(self.lost)
    }

    fn remaining_budget_after(&self, amount: BudgetAmount) -> RemainingBudget {
        RemainingBudget {
            micro_usd: self.cap_micro_usd.map(|cap| cap.minus(amount.micro_usd)),
            tokens: self.cap_tokens.map(|cap| cap.saturating_sub(amount.tokens)),
        }
    }
}

/// Hold (reserved amount) for a model request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetHold {
    /// Money and tokens that the request uses at most.
    pub amount: BudgetAmount,
    /// Money and tokens that must be left after the request, so that the model can still be asked
    /// to finish. Ignored for a cap about which the model was warned already.
    pub reserve: BudgetAmount,
    /// If the tree of runs has used at least this percentage of its cap on money, the hold
    /// (reservation) is refused, so that the model is warned first. `None` means that the model is
    /// not warned, for example because it was warned already.
    pub warn_money_at: Option<u8>,
    /// If the tree of runs has used at least this percentage of its cap on tokens, the hold
    /// (reservation) is refused, so that the model is warned first. `None` means that the model is
    /// not warned, for example because it was warned already.
    pub warn_tokens_at: Option<u8>,
}

impl BudgetHold {
    /// Returns whether the account covers the amount to hold (reserve) and the model needs no
    /// budget warning first.
    pub fn fits_without_warning(&self, account: &BudgetAccount) -> bool {
        account.unreserved_budget().covers(self.amount) && self.cap_to_warn_about(account).is_none()
    }

    /// Returns a cap about which the model must be warned before the request: its warning
    /// percentage is used, or some of it is used and the request might not leave the reserve. What
    /// other requests hold (reserve) counts as left. `None` means that no warning is needed.
    pub fn cap_to_warn_about(&self, account: &BudgetAccount) -> Option<BudgetCap> {
        let BudgetAmount { micro_usd, tokens } = self.amount.plus(self.reserve);
        let RemainingBudget { micro_usd: money_left, tokens: tokens_left } =
            account.unspent_budget();
        let caps = [
            (BudgetCap::Money, self.warn_money_at, money_left.is_some_and(|left| left < micro_usd)),
            (BudgetCap::Tokens, self.warn_tokens_at, tokens_left.is_some_and(|left| left < tokens)),
        ];
        caps.into_iter().find_map(|(cap, percent, is_short)| {
            let is_due = account.has_used_percent(cap, percent?)
                || is_short && account.has_used_percent(cap, 0);
            is_due.then_some(cap)
        })
    }
}

impl From<BudgetAmount> for BudgetHold {
    fn from(amount: BudgetAmount) -> Self {
        let reserve = BudgetAmount::default();
        Self { amount, reserve, warn_money_at: None, warn_tokens_at: None }
    }
}

/// Release of a budget hold (reserved amount) after its model request has ended, with the amounts
/// to charge for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetHoldSettlement {
    /// Money and tokens that were held (reserved) before the request was sent.
    pub held: BudgetAmount,
    /// Money and tokens that the request actually used.
    pub spent: BudgetAmount,
    /// Money and tokens booked as used because the real usage is unknown.
    pub lost: BudgetAmount,
}
