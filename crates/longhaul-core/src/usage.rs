//! Token usage, prices, and worst-case costs of model requests.
//!
//! The prices of providers are passed in as [`ModelPricing`].

use serde::{Deserialize, Serialize};

use crate::raw::is_default;

/// Money in millionths of a US dollar.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// Amount of zero dollars.
    pub const ZERO: Self = Self(0);

    /// Returns the sum of both amounts.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference of both amounts, or zero if `other` is larger.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Tokens used by a request, as counted by the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Number of input tokens that were neither read from nor written to a prompt cache.
    #[serde(skip_serializing_if = "is_default")]
    pub input_tokens: u64,
    /// Number of output tokens, including reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub output_tokens: u64,
    /// Number of input tokens read from a prompt cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cached_tokens: u64,
    /// Number of input tokens written to a prompt cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache_write_tokens: u64,
    /// Number of the `output_tokens` that were used for reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub reasoning_tokens: u64,
    /// Whether the numbers are estimated because the provider did not report them.
    #[serde(skip_serializing_if = "is_default")]
    pub estimated: bool,
}

impl Usage {
    /// Returns the sum of both token usages.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            estimated: self.estimated || other.estimated,
        }
    }

    /// Returns the total number of input and output tokens.
    pub const fn total_tokens(self) -> u64 {
        self.sent_tokens().saturating_add(self.output_tokens)
    }

    /// Returns the total number of input tokens, including cached tokens.
    pub const fn sent_tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.cached_tokens).saturating_add(self.cache_write_tokens)
    }
}

/// Price of a model in micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Price per million input tokens, in micro-dollars.
    pub input: u64,
    /// Price per million output tokens, in micro-dollars.
    pub output: u64,
    /// Price per million tokens read from a cache, in micro-dollars.
    pub cached: u64,
    /// Price per million tokens written to a cache, in micro-dollars.
    pub cache_write: u64,
}

impl Price {
    /// Price of a model that costs nothing.
    pub const FREE: Self = Self { input: 0, output: 0, cached: 0, cache_write: 0 };

    /// Returns the cost of the given token usage at this price, rounded up.
    pub const fn cost(self, usage: Usage) -> MicroUsd {
        let total = usage.input_tokens as u128 * self.input as u128
            + usage.output_tokens as u128 * self.output as u128
            + usage.cached_tokens as u128 * self.cached as u128
            + usage.cache_write_tokens as u128 * self.cache_write as u128;
        let micros = total.div_ceil(1_000_000);
        MicroUsd(if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 })
    }
}

/// Price and limits of a model, used to compute the worst-case cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPricing {
    /// List price of the model. `None` means that it is unknown; a money cap can then not be
    /// enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Maximum length of a reply in tokens.
    pub max_output_tokens: u64,
    /// Size of the model's context window in tokens.
    pub window_tokens: u64,
    /// Assumed number of request bytes per token. The number is low, so that cost estimates are
    /// high enough.
    pub bytes_per_token: u64,
    /// Number of tokens of the system prompt and the tool definitions, which are part of every
    /// request.
    pub fixed_tokens: u64,
}

impl Default for ModelPricing {
    fn default() -> Self {
        Self {
            price: None,
            max_output_tokens: 8_192,
            window_tokens: 200_000,
            bytes_per_token: 3,
            fixed_tokens: 0,
        }
    }
}

impl ModelPricing {
    /// Combines the pricing of two models of which either may be used: the higher price and the
    /// lower limits. If one price is unknown, the other price is used.
    #[must_use]
    pub fn merge_most_restrictive_pricing(self, other: Self) -> Self {
        let price = match (self.price, other.price) {
            (Some(first), Some(second)) => Some(Price {
                input: first.input.max(second.input),
                output: first.output.max(second.output),
                cached: first.cached.max(second.cached),
                cache_write: first.cache_write.max(second.cache_write),
            }),
            (first, second) => first.or(second),
        };
        Self {
            price,
            max_output_tokens: self.max_output_tokens.min(other.max_output_tokens),
            window_tokens: self.window_tokens.min(other.window_tokens),
            bytes_per_token: self.bytes_per_token.min(other.bytes_per_token),
            fixed_tokens: self.fixed_tokens.max(other.fixed_tokens),
        }
    }

    /// Estimates the number of input tokens for this many bytes of conversation, rounded up.
    pub const fn estimate_input_tokens(&self, conversation_bytes: u64) -> u64 {
        let per_token = if self.bytes_per_token == 0 { 1 } else { self.bytes_per_token };
        self.fixed_tokens.saturating_add(conversation_bytes.div_ceil(per_token))
    }

    /// Estimates the token usage of a request from the lengths of its conversation and its reply in
    /// bytes.
    pub fn estimate_usage(&self, conversation_bytes: u64, reply_bytes: u64) -> Usage {
        Usage {
            input_tokens: self.estimate_input_tokens(conversation_bytes),
            output_tokens: reply_bytes.div_ceil(self.bytes_per_token.max(1)),
            estimated: true,
            ..Usage::default()
        }
    }

    /// Returns the amount to hold (reserve) for a request: its worst-case cost and tokens, given
    /// the length of its conversation in bytes and the maximum length of its reply in tokens.
    pub fn worst_case_hold(&self, conversation_bytes: u64, max_tokens: u64) -> BudgetAmount {
        let input = self.estimate_input_tokens(conversation_bytes);
        let usage = Usage { input_tokens: input, output_tokens: max_tokens, ..Usage::default() };
        let micro_usd = self.price.map_or(MicroUsd::ZERO, |price| {
            // Input that is written to the cache may cost more than other input.
            Price { input: price.input.max(price.cache_write), ..price }.cost(usage)
        });
        BudgetAmount { micro_usd, tokens: input.saturating_add(max_tokens) }
    }
}

/// Amount of money and tokens, such as the amount held (reserved) for a model request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetAmount {
    /// Amount of money.
    pub micro_usd: MicroUsd,
    /// Number of input and output tokens.
    pub tokens: u64,
}

impl BudgetAmount {
    /// Returns the sum of both amounts.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            micro_usd: self.micro_usd.plus(other.micro_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// Returns the difference of both amounts, or zero where `other` is larger.
    pub const fn minus(self, other: Self) -> Self {
        Self {
            micro_usd: self.micro_usd.minus(other.micro_usd),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }
}

/// Remaining money and tokens of a run's budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemainingBudget {
    /// Remaining money. `None` means no cap on money.
    pub micro_usd: Option<MicroUsd>,
    /// Remaining tokens. `None` means no cap on tokens.
    pub tokens: Option<u64>,
}

impl RemainingBudget {
    /// Returns whether the remaining budget covers the amount to be held (reserved).
    pub fn covers(self, needed_amount: BudgetAmount) -> bool {
        self.micro_usd.is_none_or(|left| needed_amount.micro_usd <= left)
            && self.tokens.is_none_or(|left| needed_amount.tokens <= left)
    }

    /// Returns the lower of both remaining amounts, separately for money and tokens.
    #[must_use]
    pub fn min_of_each(self, other: Self) -> Self {
        Self {
            micro_usd: self.micro_usd.into_iter().chain(other.micro_usd).min(),
            tokens: self.tokens.into_iter().chain(other.tokens).min(),
        }
    }
}
