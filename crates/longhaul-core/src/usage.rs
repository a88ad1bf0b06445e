//! Tokens and money: what was used, what it costs, what a call may cost at worst.
//!
//! Never: knows a provider's prices. They are handed in as a tariff.

use serde::{Deserialize, Serialize};

/// Money in millionths of a dollar.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Both together.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left when `other` is gone, never below nothing.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Tokens that a call used, as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens read at the full price.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// Tokens written, reasoning included.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
    /// Tokens read from a prompt cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Tokens written to a prompt cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// How many of the output tokens were reasoning.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
    /// The provider did not say; we guessed.
    #[serde(skip_serializing_if = "is_false")]
    pub estimated: bool,
}

impl Usage {
    /// Both together.
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

    /// All tokens that went in and out.
    pub const fn tokens(self) -> u64 {
        self.sent_tokens().saturating_add(self.output_tokens)
    }

    /// The tokens of the question, cached ones too.
    pub const fn sent_tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.cached_tokens).saturating_add(self.cache_write_tokens)
    }
}

const fn is_zero(count: &u64) -> bool {
    *count == 0
}

const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// What a model charges, in micro-dollars for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// For a million tokens read.
    pub input: u64,
    /// For a million tokens written.
    pub output: u64,
    /// For a million tokens read from a cache.
    pub cached: u64,
    /// For a million tokens written to a cache.
    pub cache_write: u64,
}

impl Price {
    /// The price of what costs nothing.
    pub const FREE: Self = Self { input: 0, output: 0, cached: 0, cache_write: 0 };

    /// What this usage costs, rounded up.
    pub const fn cost(self, usage: Usage) -> MicroUsd {
        let total = usage.input_tokens as u128 * self.input as u128
            + usage.output_tokens as u128 * self.output as u128
            + usage.cached_tokens as u128 * self.cached as u128
            + usage.cache_write_tokens as u128 * self.cache_write as u128;
        let micros = total.div_ceil(1_000_000);
        MicroUsd(if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 })
    }

    /// The dearest way to read a token: a call may miss every cache, or fill one.
    pub const fn max_input(self) -> u64 {
        if self.cache_write > self.input { self.cache_write } else { self.input }
    }
}

/// What the heart must know of a model to hold a call's worst case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPricing {
    /// The list price; none where it is not known, and then money can't bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The most tokens one reply may have.
    pub max_output_tokens: u64,
    /// How many tokens fit into the model's window.
    pub window_tokens: u64,
    /// Bytes of request for one token, a low guess so that holds are high enough.
    pub bytes_per_token: u64,
    /// Tokens of system prompt and tools, sent with every call.
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
    /// What binds when either of two models may be asked: the dearer price and the
    /// narrower limits. Where one price is not known, the other counts.
    #[must_use]
    pub fn most_restrictive(self, other: Self) -> Self {
        let price = match (self.price, other.price) {
            (Some(one), Some(two)) => Some(Price {
                input: one.input.max(two.input),
                output: one.output.max(two.output),
                cached: one.cached.max(two.cached),
                cache_write: one.cache_write.max(two.cache_write),
            }),
            (one, two) => one.or(two),
        };
        Self {
            price,
            max_output_tokens: self.max_output_tokens.min(other.max_output_tokens),
            window_tokens: self.window_tokens.min(other.window_tokens),
            bytes_per_token: self.bytes_per_token.min(other.bytes_per_token),
            fixed_tokens: self.fixed_tokens.max(other.fixed_tokens),
        }
    }

    /// The tokens that a call sends with so many bytes of conversation, a high guess.
    pub const fn input_tokens(&self, bytes: u64) -> u64 {
        let per_token = if self.bytes_per_token == 0 { 1 } else { self.bytes_per_token };
        self.fixed_tokens.saturating_add(bytes.div_ceil(per_token))
    }

    /// What a call has used, about, that sent `bytes` of conversation and got `reply` bytes.
    pub fn estimate(&self, bytes: u64, reply: u64) -> Usage {
        Usage {
            input_tokens: self.input_tokens(bytes),
            output_tokens: reply.div_ceil(self.bytes_per_token.max(1)),
            estimated: true,
            ..Usage::default()
        }
    }

    /// The worst case of a call that sends `bytes` of conversation.
    pub const fn hold(&self, bytes: u64, max_tokens: u64) -> Hold {
        let input = self.input_tokens(bytes);
        let micros = match self.price {
            None => MicroUsd::ZERO,
            Some(price) => {
                let worst = Price { input: price.max_input(), ..price };
                worst.cost(Usage {
                    input_tokens: input,
                    output_tokens: max_tokens,
                    cached_tokens: 0,
                    cache_write_tokens: 0,
                    reasoning_tokens: 0,
                    estimated: true,
                })
            }
        };
        Hold { micro_usd: micros, tokens: input.saturating_add(max_tokens) }
    }
}

/// What is set aside for a call before it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Money.
    pub micro_usd: MicroUsd,
    /// Tokens, in and out.
    pub tokens: u64,
}

/// What is left of an account for the next hold. None: no cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemainingBudget {
    /// Money.
    pub micro_usd: Option<MicroUsd>,
    /// Tokens.
    pub tokens: Option<u64>,
}

impl RemainingBudget {
    /// Whether this hold still fits.
    pub fn covers(self, hold: Hold) -> bool {
        self.micro_usd.is_none_or(|left| hold.micro_usd <= left)
            && self.tokens.is_none_or(|left| hold.tokens <= left)
    }
}
