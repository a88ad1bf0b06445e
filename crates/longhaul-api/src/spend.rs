//! Spend caps in responses, and the body of a request that raises one.

use std::fmt;

use longhaul_core::policy::spend_cap::CapUnit;
use longhaul_core::port::records::UsageSum;
use longhaul_core::time::Timestamp;
use longhaul_core::usage::MicroUsd;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::run::{UsageView, micro_usd_to_usd};

/// Maximum value of a spend cap's limit in dollars.
const USD_MAX: f64 = 1e9;

/// Maximum value of a spend cap's limit in tokens or runs: 2^50.
const COUNT_MAX: u64 = 1 << 50;

/// The spend caps, and what model calls have used by day, agent and model.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Spend)]
pub struct SpendView {
    /// All spend caps.
    pub data: Vec<SpendCapView>,
    /// Always `None`: the list of caps has one page.
    pub next: Option<String>,
    /// Usage by day, agent and model, the newest day first. Runs that have not ended are included,
    /// deleted runs are not.
    pub usage: Vec<UsageSumView>,
}

/// Token usage and cost of one agent with one model on one day.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = UsageSum)]
pub struct UsageSumView {
    /// Start of the day, in UTC.
    pub day: Timestamp,
    /// Name of the agent.
    pub agent: String,
    /// Model, as `provider/model`.
    pub model: String,
    /// Number of model calls.
    pub calls: u64,
    /// Tokens used by the calls.
    pub usage: UsageView,
    /// Cost of the calls with a known price, in US dollars.
    pub cost_usd: f64,
    /// Number of calls whose price is unknown.
    pub unpriced: u64,
}

impl From<UsageSum> for UsageSumView {
    fn from(sum: UsageSum) -> Self {
        Self {
            day: sum.day,
            agent: sum.agent.to_string(),
            model: sum.model,
            calls: sum.calls,
            usage: sum.usage.into(),
            cost_usd: micro_usd_to_usd(sum.cost),
            unpriced: sum.unpriced,
        }
    }
}

/// A spend cap (limit on money, tokens or runs per day, week or month), with what it has counted in
/// its current window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = SpendCap)]
pub struct SpendCapView {
    /// Id of the cap, such as `day-usd-key`.
    pub id: String,
    /// Length of the cap's time window: `day`, `week` or `month`.
    pub window: String,
    /// Time zone in which the cap's days, weeks or months begin.
    pub tz: String,
    /// For what usage is counted separately: for each submitter of tasks, such as an API key
    /// (`key`), or for each `actor`, `agent` or `model`. `all` means that all usage is counted
    /// together.
    pub per: String,
    /// Pattern of the names of subjects (keys, actors, agents or models) that the cap applies to.
    /// `None` means all subjects.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// What is counted: `usd`, `tokens` or `runs`.
    pub unit: String,
    /// Configured limit of the cap for each subject (key, actor, agent or model).
    #[schema(value_type = f64)]
    pub limit: SpendCapAmount,
    /// What happens when the limit is reached: `wait` lets runs wait, `refuse` refuses new tasks.
    pub at_cap: String,
    /// Time at which the next window begins.
    pub resets_at: Timestamp,
    /// Usage of each subject (key, actor, agent or model) in the current window. Subjects with
    /// waiting runs and with the highest usage come first.
    pub counts: Vec<SpendCapUsageView>,
}

/// What a spend cap has counted for one subject (key, actor, agent or model) in its current window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = SpendCount)]
pub struct SpendCapUsageView {
    /// Submitter, actor, agent or model whose usage is counted. Empty if all usage is counted
    /// together.
    pub subject: String,
    /// Current limit: the configured one, or a higher one to which a person has raised it.
    #[schema(value_type = f64)]
    pub limit: SpendCapAmount,
    /// Amount that was used in the window, including what counts as used because the real usage is
    /// unknown.
    #[schema(value_type = f64)]
    pub used: SpendCapAmount,
    /// Amount held (reserved) for model calls in progress.
    #[schema(value_type = f64)]
    pub held: SpendCapAmount,
    /// Amount that can still be used in the window: the limit less `used` and `held`.
    #[schema(value_type = f64)]
    pub left: SpendCapAmount,
    /// Number of runs that wait because the cap does not cover what they need.
    pub waiting: u64,
}

/// Amount in the unit of a spend cap: dollars, or a number of tokens or runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SpendCapAmount {
    /// Number of tokens or runs.
    Count(u64),
    /// Amount in US dollars.
    Usd(f64),
}

impl SpendCapAmount {
    /// Converts an amount from the unit of the store: micro-dollars, tokens or runs.
    pub fn new(unit: CapUnit, amount_in_store_unit: u64) -> Self {
        match unit {
            CapUnit::Usd => Self::Usd(micro_usd_to_usd(MicroUsd(amount_in_store_unit))),
            CapUnit::Tokens | CapUnit::Runs => Self::Count(amount_in_store_unit),
        }
    }
}

impl fmt::Display for SpendCapAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Amounts are counted in micro-dollars, and a small one must not look like none.
            Self::Usd(dollars) if *dollars > 0.0 && *dollars < 0.01 => {
                let digits = format!("{dollars:.6}");
                write!(f, "${}", digits.trim_end_matches('0'))
            }
            Self::Usd(dollars) => write!(f, "${dollars:.2}"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}

/// Body of a request that raises a spend cap until its current window ends. Exactly one limit is
/// given, in the unit of the cap.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RaiseCapBody {
    /// New limit of the spend cap in US dollars.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000)]
    pub usd: Option<f64>,
    /// New limit of the spend cap in tokens.
    #[schema(minimum = 1, maximum = 1_125_899_906_842_624_u64)]
    pub tokens: Option<u64>,
    /// New limit of the spend cap in runs.
    #[schema(minimum = 1, maximum = 1_125_899_906_842_624_u64)]
    pub runs: Option<u64>,
    /// Submitter, actor, agent or model whose limit is raised. Required unless the cap counts all
    /// runs together.
    #[schema(max_length = 200)]
    pub subject: Option<String>,
}

impl RaiseCapBody {
    /// Returns the new limit in the unit of the store: micro-dollars, tokens or runs. The error
    /// says what is wrong.
    pub fn limit_in_store_unit(&self, unit: CapUnit) -> Result<u64, String> {
        let unit_name = unit.as_str();
        let (limit, max) = match (unit, self.usd, self.tokens, self.runs) {
            (CapUnit::Usd, Some(dollars), None, None) => {
                let is_valid = dollars > 0.0 && dollars <= USD_MAX;
                (is_valid.then(|| (dollars * 1e6).round() as u64), USD_MAX.to_string())
            }
            (CapUnit::Tokens, None, Some(count), None)
            | (CapUnit::Runs, None, None, Some(count)) => {
                let limit = Some(count).filter(|count| (1..=COUNT_MAX).contains(count));
                (limit, COUNT_MAX.to_string())
            }
            (CapUnit::Usd | CapUnit::Tokens | CapUnit::Runs, ..) => {
                return Err(format!("give the new limit in {unit_name}, and in no other unit"));
            }
        };
        limit.ok_or_else(|| {
            format!("the new limit in {unit_name} must be above 0 and at most {max}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_needs_one_limit_in_the_unit_of_the_cap() {
        let body = |usd, tokens, runs| RaiseCapBody { usd, tokens, runs, subject: None };
        for (unit, raise, limit) in [
            (CapUnit::Usd, body(Some(0.5), None, None), Ok(500_000)),
            (CapUnit::Tokens, body(None, Some(7), None), Ok(7)),
            (CapUnit::Runs, body(None, None, Some(7)), Ok(7)),
            (CapUnit::Usd, body(Some(0.0), None, None), Err("above 0")),
            (CapUnit::Usd, body(Some(-1.0), None, None), Err("above 0")),
            (CapUnit::Usd, body(Some(f64::NAN), None, None), Err("above 0")),
            (CapUnit::Usd, body(Some(f64::INFINITY), None, None), Err("at most 1000000000")),
            (CapUnit::Runs, body(None, None, Some(0)), Err("above 0")),
            (CapUnit::Tokens, body(None, Some(u64::MAX), None), Err("at most 1125899906842624")),
            (CapUnit::Usd, body(None, Some(7), None), Err("in usd")),
            (CapUnit::Usd, body(Some(1.0), Some(7), None), Err("no other")),
            (CapUnit::Tokens, RaiseCapBody::default(), Err("in tokens")),
        ] {
            match (raise.limit_in_store_unit(unit), limit) {
                (Ok(parsed), limit) => assert_eq!(Ok(parsed), limit, "{raise:?}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{raise:?}: {error}"),
                (Err(error), Ok(limit)) => panic!("{raise:?}: {error} instead of {limit}"),
            }
        }
    }

    #[test]
    fn a_small_amount_is_not_shown_as_zero() {
        for (micros, text) in [
            (0, "$0.00"),
            (1, "$0.000001"),
            (4_000, "$0.004"),
            (10_000, "$0.01"),
            (1_500_000, "$1.50"),
        ] {
            assert_eq!(SpendCapAmount::new(CapUnit::Usd, micros).to_string(), text);
        }
    }
}
