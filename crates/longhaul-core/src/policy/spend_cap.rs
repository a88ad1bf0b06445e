//! Spend caps: limits on money, tokens or runs per day, week or month, over all runs or per API key,
//! actor, agent or model.
//!
//! A spend cap applies in addition to the budgets of runs. This module only describes the caps and
//! their counts. The store counts, and the engine computes the windows.

use serde::{Deserialize, Serialize};

use crate::id::TimerId;
use crate::raw::Hash;
use crate::text_macros::string_enum;
use crate::time::{Millis, Timestamp};
use crate::usage::BudgetAmount;

string_enum! {
    /// Length of the window (day, week or month) in which a spend cap counts usage.
    pub enum CapWindowLength {
        /// The window lasts from midnight to midnight.
        Day = "day",
        /// The window lasts from Monday to Monday.
        Week = "week",
        /// The window lasts from the first day of a month to that of the next one.
        Month = "month",
    }
}

string_enum! {
    /// Grouping of the usage that a spend cap counts: all usage together, or that of each
    /// submitter (such as an API key), actor, agent or model on its own.
    pub enum CapUsageGrouping {
        /// The usage of all runs is counted together.
        All = "all",
        /// The usage of the runs of each principal that submits tasks, such as an API key, is
        /// counted separately.
        Key = "key",
        /// The usage of the runs of each actor (person on whose behalf a run acts) is counted
        /// separately.
        Actor = "actor",
        /// The usage of the runs of each agent is counted separately.
        Agent = "agent",
        /// The usage of each model is counted separately.
        Model = "model",
    }
}

string_enum! {
    /// What a spend cap counts.
    pub enum CapUnit {
        /// The cap counts money, in millionths of a US dollar.
        Usd = "usd",
        /// The cap counts input and output tokens.
        Tokens = "tokens",
        /// The cap counts root runs, i.e. no child runs.
        Runs = "runs",
    }
}

impl CapUnit {
    /// Returns the part of an amount that a spend cap with this unit counts: the money or the
    /// tokens. 0 for a cap on runs.
    pub const fn part_of(self, amount: BudgetAmount) -> u64 {
        match self {
            Self::Usd => amount.micro_usd.0,
            Self::Tokens => amount.tokens,
            Self::Runs => 0,
        }
    }
}

string_enum! {
    /// What happens when a spend cap is reached.
    pub enum CapReachedAction {
        /// Runs wait until the window ends or the cap is raised.
        Wait = "wait",
        /// New tasks are refused. Runs that have started wait.
        Refuse = "refuse",
    }
}

/// A spend cap of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendCap {
    /// Length of the window in which the cap counts usage: a day, a week or a month.
    pub window: CapWindowLength,
    /// IANA name of the time zone in which the cap's windows begin.
    pub tz: String,
    /// Whether all usage is counted together, or that of each submitter (such as an API key),
    /// actor, agent or model on its own.
    pub per: CapUsageGrouping,
    /// Pattern with `*` for the names of the submitters (such as API keys), actors, agents or
    /// models that the cap applies to. `None` means all.
    pub pattern: Option<String>,
    /// Whether the cap counts money, tokens or runs.
    pub unit: CapUnit,
    /// Maximum amount per window, of all usage or of each submitter (such as an API key), actor,
    /// agent or model.
    pub limit: u64,
    /// What happens when the limit is reached.
    pub at_cap: CapReachedAction,
}

impl SpendCap {
    /// Returns the id of the cap, such as `day-usd-key`. It names what is counted and not the limit,
    /// so that a cap with another limit keeps its count.
    pub fn cap_id(&self) -> String {
        let Self { window, unit, per, .. } = self;
        let name = format!("{}-{}-{}", window.as_str(), unit.as_str(), per.as_str());
        if self.pattern.is_none() && self.tz == "UTC" {
            return name;
        }
        let details = format!("{}\n{}", self.tz, self.pattern.as_deref().unwrap_or_default());
        let digest = Hash::digest(details.as_bytes()).to_string();
        format!("{name}-{}", digest.get(..6).unwrap_or(&digest))
    }
}

/// Window of a spend cap (a day, week or month): the times from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapWindowRange {
    /// Time at which the spend cap's window begins.
    pub start: Timestamp,
    /// Time at which the spend cap's window ends and the next one begins.
    pub end: Timestamp,
}

/// A spend cap with its current window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapWithWindow {
    /// Spend cap as it is configured.
    pub cap: SpendCap,
    /// Window (day, week or month) in which the spend cap currently counts usage.
    pub period: CapWindowRange,
}

/// Identifies one counter of a spend cap by the cap, by whose usage is counted (such as an agent),
/// and by the window.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CapCounterKey {
    /// Id of the spend cap.
    pub cap: String,
    /// Whose usage is counted: an API key, an actor, an agent or a model. Empty if all usage is
    /// counted together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Time at which the counter's window (day, week or month) begins.
    pub window_start: Timestamp,
}

/// Amount that is held (reserved) within a spend cap before a model request is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapHold {
    /// Counter of the spend cap in which the amount is held (reserved), even if its window has
    /// ended since.
    #[serde(flatten)]
    pub key: CapCounterKey,
    /// Whether the cap counts money, tokens or runs.
    pub unit: CapUnit,
    /// Amount that is held (reserved), in the unit of the spend cap.
    pub amount: u64,
}

impl CapHold {
    /// Returns the settlement that replaces the held (reserved) amount by `spent`, which the
    /// request used, and `lost`, which counts as used because the usage is unknown. A cap on runs
    /// counts the run in any case.
    pub fn settlement(&self, spent: BudgetAmount, lost: BudgetAmount) -> CapSettlement {
        let spent = match self.unit {
            CapUnit::Runs => self.amount,
            CapUnit::Usd | CapUnit::Tokens => self.unit.part_of(spent),
        };
        let (held, lost) = (self.amount, self.unit.part_of(lost));
        CapSettlement { key: self.key.clone(), held, spent, lost }
    }
}

/// Request to reserve an amount within a spend cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapReservation {
    /// Amount to reserve, and the counter of the spend cap in which it is reserved.
    pub hold: CapHold,
    /// Time at which the counter's window (day, week or month) ends.
    pub window_end: Timestamp,
    /// Configured limit of the spend cap. The counter has a higher limit if a person has raised it.
    pub limit: u64,
}

/// Release of an amount held (reserved) within a spend cap, with the amounts to count instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapSettlement {
    /// Counter of the spend cap in which the amount was held (reserved).
    pub key: CapCounterKey,
    /// Amount that was held (reserved), in the unit of the spend cap.
    pub held: u64,
    /// Amount that the model request used, in the unit of the spend cap.
    pub spent: u64,
    /// Amount that is counted as used because the real usage is unknown.
    pub lost: u64,
}

/// Refusal of an amount that does not fit within a spend cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapRefusal {
    /// Counter of the spend cap whose limit the refused amount would exceed.
    pub key: CapCounterKey,
    /// Time at which the counter's window (day, week or month) ends.
    pub window_end: Timestamp,
    /// Limit of the counter, including a raise by a person.
    pub limit: u64,
    /// Amount that is left of the counter's limit.
    pub left: u64,
}

/// Stored wait of a run at a spend cap. The store makes the timer of the wait due as soon as the
/// cap covers the amount that the run needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapWaitRow {
    /// Whole amount that the run tried to reserve for its next model request. It did not fit under
    /// the spend cap.
    pub reservation: CapReservation,
    /// Timer that wakes the run when the window of the spend cap has ended.
    pub timer: TimerId,
}

/// New limit of a spend cap that applies in one window (day, week or month).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapLimitChange {
    /// Id of the spend cap.
    pub cap: String,
    /// Submitter (such as an API key), actor, agent or model whose limit a person raises. `None`
    /// means that the limit of the configuration has changed, for all of them.
    pub subject: Option<String>,
    /// Window in which the limit applies.
    pub period: CapWindowRange,
    /// New limit, in the unit of the cap.
    pub limit: u64,
}

/// Counter of a spend cap in one window, for all usage or for one submitter (such as an API key),
/// actor, agent or model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapCounterRow {
    /// Spend cap, subject (such as an agent) and window of the counter.
    pub key: CapCounterKey,
    /// Time at which the counter's window (day, week or month) ends.
    pub window_end: Timestamp,
    /// Configured limit of the spend cap when the counter last changed.
    pub limit: u64,
    /// Limit that a person has set for this counter. `None` means that the configured limit
    /// applies.
    pub raised_limit: Option<u64>,
    /// Amount that was used in the window, in the unit of the spend cap.
    pub spent: u64,
    /// Amount that is counted as used because the real usage is unknown.
    pub lost: u64,
    /// Amount held (reserved) for model requests in progress, in the unit of the spend cap.
    pub held: u64,
    /// Number of runs that wait until the spend cap covers what they need. Computed only when
    /// counters are listed, otherwise 0.
    pub waiting: u64,
}

impl CapCounterRow {
    /// Creates a counter of a spend cap in which nothing is used yet.
    pub const fn new(key: CapCounterKey, window_end: Timestamp, limit: u64) -> Self {
        Self { key, window_end, limit, raised_limit: None, spent: 0, lost: 0, held: 0, waiting: 0 }
    }

    /// Returns the limit that applies: the configured limit, or a higher limit that a person has
    /// set.
    pub fn effective_limit(&self) -> u64 {
        self.limit.max(self.raised_limit.unwrap_or_default())
    }

    /// Returns the amount that is left of the limit in this window.
    pub fn remaining_amount(&self) -> u64 {
        let used = self.spent.saturating_add(self.lost).saturating_add(self.held);
        self.effective_limit().saturating_sub(used)
    }

    /// Returns the refusal of an amount that exceeds what is left of the counter's limit.
    pub fn refusal(&self) -> CapRefusal {
        CapRefusal {
            key: self.key.clone(),
            window_end: self.window_end,
            limit: self.effective_limit(),
            left: self.remaining_amount(),
        }
    }
}

/// Maximum number of waiting runs that a store wakes at once when a part of a spend cap becomes
/// free.
pub const CAP_WAKES_MAX: usize = 64;

/// Maximum number of waiting runs per spend cap counter that one call of
/// `RecordStore::wake_runs_waiting_at_caps` wakes.
pub const CAP_SWEEP_WAKES_MAX: usize = 1_000;

/// Maximum number of spend cap counters that a store lists.
pub const SPEND_ROWS_MAX: usize = 1_000;

/// Minimum time for which a spend cap counter is kept after its window has ended, so that it still
/// exists if the clock is set back.
pub const SPEND_TTL: Millis = Millis::from_secs(31 * 24 * 60 * 60);
