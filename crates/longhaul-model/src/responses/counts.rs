//! The tokens of an exchange, as the provider counts them at its end.
//!
//! Never: counts a token twice. Here the tokens of a cache are among the input.

use longhaul_core::usage::Usage;
use serde_json::Value;

/// The counts, as far as they were said.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// All that went in, from a cache or not.
    input: Option<u64>,
    output: Option<u64>,
    cached: u64,
    cache_write: u64,
    reasoning: u64,
}

impl Counts {
    /// Hears the `usage` of a response.
    pub(super) fn hear(&mut self, usage: &str) {
        let Ok(usage) = serde_json::from_str::<Value>(usage) else {
            return;
        };
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        let detail = |of: &str, name: &str| {
            let found = usage.get(of).and_then(|details| details.get(name));
            found.and_then(Value::as_u64).unwrap_or(0)
        };
        self.input = count("input_tokens").or(self.input);
        self.output = count("output_tokens").or(self.output);
        self.cached = detail("input_tokens_details", "cached_tokens");
        self.cache_write = detail("input_tokens_details", "cache_write_tokens");
        self.reasoning = detail("output_tokens_details", "reasoning_tokens");
    }

    /// The usage of a whole reply; what the provider never said is guessed.
    pub(super) fn settle(&self, guess: Usage) -> Usage {
        let from_cache = self.cached.saturating_add(self.cache_write);
        let input = self.input.map(|all| all.saturating_sub(from_cache));
        Usage {
            input_tokens: input.unwrap_or(guess.input_tokens),
            output_tokens: self.output.unwrap_or(guess.output_tokens),
            cached_tokens: self.cached,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
            estimated: self.input.is_none() || self.output.is_none(),
        }
    }

    /// The usage of a reply that broke off.
    pub(super) fn so_far(&self, guess: Usage) -> Usage {
        Usage {
            estimated: true,
            ..self.settle(guess)
        }
    }
}
