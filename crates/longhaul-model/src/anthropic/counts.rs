//! The tokens of an exchange, as the provider counts them on the way.
//!
//! Never: takes a missing count for a zero that was said before it.

use longhaul_core::usage::Usage;
use serde_json::Value;

/// The counts so far: each is the newest that was said.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
    /// The count of the output is that of the whole.
    is_final: bool,
}

impl Counts {
    /// Hears the `usage` at the end of a message.
    pub(super) fn hear_last(&mut self, usage: &str) {
        let before = self.output.take();
        self.hear(usage);
        self.is_final = self.is_final || self.output.is_some();
        self.output = self.output.or(before);
    }

    /// Hears the `usage` of an event. Counts are of the whole message, so a
    /// newer one takes the place of an older.
    pub(super) fn hear(&mut self, usage: &str) {
        let Ok(usage) = serde_json::from_str::<Value>(usage) else {
            return;
        };
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        let details = usage.get("output_tokens_details");
        let thought = details.and_then(|details| details.get("thinking_tokens"));
        self.input = count("input_tokens").or(self.input);
        self.output = count("output_tokens").or(self.output);
        self.cached = count("cache_read_input_tokens").or(self.cached);
        self.cache_write = count("cache_creation_input_tokens").or(self.cache_write);
        self.reasoning = thought.and_then(Value::as_u64).or(self.reasoning);
    }

    /// The usage of a whole reply; what the provider never said is guessed.
    pub(super) fn settle(&self, guess: Usage) -> Usage {
        let output = self.output.filter(|_| self.is_final);
        Usage {
            input_tokens: self.input.unwrap_or(guess.input_tokens),
            // What is said at the beginning is only the count of the beginning.
            output_tokens: output
                .unwrap_or_else(|| guess.output_tokens.max(self.output.unwrap_or(0))),
            cached_tokens: self.cached.unwrap_or(0),
            cache_write_tokens: self.cache_write.unwrap_or(0),
            reasoning_tokens: self.reasoning.unwrap_or(0),
            estimated: self.input.is_none() || output.is_none(),
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
