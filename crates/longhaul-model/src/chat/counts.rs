//! The tokens of an exchange, in the ways that servers count them.
//!
//! Never: takes a missing count for a zero.

use longhaul_core::usage::Usage;
use serde_json::Value;

/// Where the tokens stand that came from a cache: as OpenAI, Moonshot and
/// DeepSeek say it.
const CACHED: &[&str] = &[
    "/prompt_tokens_details/cached_tokens",
    "/cached_tokens",
    "/prompt_cache_hit_tokens",
];

/// The counts so far: each is the newest that was said.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Cached and all.
    prompt: Option<u64>,
    /// Thoughts and all.
    completion: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
}

impl Counts {
    /// Hears a `usage`, which is always that of the whole exchange so far.
    pub(super) fn hear(&mut self, usage: &str) {
        let Ok(usage) = serde_json::from_str::<Value>(usage) else {
            return;
        };
        let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
        self.prompt = count("/prompt_tokens").or(self.prompt);
        self.completion = completion(&usage).or(self.completion);
        let cached = CACHED.iter().filter_map(|path| count(path)).max();
        self.cached = cached.or(self.cached);
        let written = count("/prompt_tokens_details/cache_write_tokens");
        self.cache_write = written.or(self.cache_write);
        let thought = count("/completion_tokens_details/reasoning_tokens");
        self.reasoning = thought.or(self.reasoning);
    }

    /// The usage of a whole reply; what the server never said is guessed.
    pub(super) fn settle(&self, guess: Usage) -> Usage {
        // Both are parts of the prompt, whatever is said of them.
        let prompt = self.prompt.unwrap_or(0);
        let cached = self.cached.unwrap_or(0).min(prompt);
        let cache_write = self.cache_write.unwrap_or(0).min(prompt - cached);
        Usage {
            input_tokens: match self.prompt {
                Some(prompt) => prompt - cached - cache_write,
                None => guess.input_tokens,
            },
            output_tokens: self.completion.unwrap_or(guess.output_tokens),
            cached_tokens: cached,
            cache_write_tokens: cache_write,
            reasoning_tokens: self.reasoning.unwrap_or(0),
            estimated: self.prompt.is_none() || self.completion.is_none(),
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

/// The tokens of the reply. Some servers leave thoughts out of this count, but
/// never out of the sum, and they are paid for.
fn completion(usage: &Value) -> Option<u64> {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let said = count("completion_tokens")?;
    let rest = count("total_tokens").zip(count("prompt_tokens"));
    let rest = rest.map_or(0, |(total, prompt)| total.saturating_sub(prompt));
    Some(said.max(rest))
}
