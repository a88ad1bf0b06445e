//! The tokens of an exchange, as providers count them on the way.
//!
//! Never: takes a missing count for a zero that was said before it.

use longhaul_core::usage::Usage;
use serde_json::Value;

/// Where the counts stand in the `usage` of a wire, as JSON pointers.
#[derive(Debug)]
pub(crate) struct UsagePaths {
    pub(crate) input: &'static str,
    pub(crate) output: &'static str,
    /// Input and output together; none: the output is whole by itself. Some servers leave
    /// thoughts out of the output, but never out of the sum, and they are paid for.
    pub(crate) total: Option<&'static str>,
    /// Of several the largest counts.
    pub(crate) cached: &'static [&'static str],
    pub(crate) cache_write: &'static str,
    pub(crate) reasoning: &'static str,
    /// Whether the tokens of a cache are among the input.
    pub(crate) input_includes_cache: bool,
}

/// The counts so far: each is the newest that was said.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenCounts {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
    /// The count of the output is that of the whole.
    is_output_final: bool,
}

impl TokenCounts {
    /// Hears the `usage` of a reply that has only begun.
    pub(crate) fn update_initial(&mut self, paths: &UsagePaths, usage: &str) {
        let is_final = self.is_output_final;
        self.update(paths, usage);
        self.is_output_final = is_final;
    }

    /// Hears a `usage`. Counts are of the whole exchange so far, so a newer one takes the
    /// place of an older.
    pub(crate) fn update(&mut self, paths: &UsagePaths, usage: &str) {
        let Ok(usage) = serde_json::from_str::<Value>(usage) else {
            return;
        };
        let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
        let (input, output) = (count(paths.input), count(paths.output));
        let total = paths.total.and_then(count).zip(input);
        let rest = total.map_or(0, |(total, input)| total.saturating_sub(input));
        let output = output.map(|output| output.max(rest));
        let cached = paths.cached.iter().filter_map(|path| count(path)).max();
        self.is_output_final |= output.is_some();
        self.input = input.or(self.input);
        self.output = output.or(self.output);
        self.cached = cached.or(self.cached);
        self.cache_write = count(paths.cache_write).or(self.cache_write);
        self.reasoning = count(paths.reasoning).or(self.reasoning);
    }

    /// The usage of a whole reply; what the provider never said is guessed.
    pub(crate) fn final_usage(&self, paths: &UsagePaths, guess: Usage) -> Usage {
        let (mut cached, mut cache_write) =
            (self.cached.unwrap_or(0), self.cache_write.unwrap_or(0));
        let mut input = self.input;
        if paths.input_includes_cache {
            // Both are parts of the input, whatever is said of them.
            let all = input.unwrap_or(0);
            cached = cached.min(all);
            cache_write = cache_write.min(all - cached);
            input = input.map(|all| all - cached - cache_write);
        }
        let output = self.output.filter(|_| self.is_output_final);
        // What is said at the beginning is only the count of the beginning.
        let so_far = guess.output_tokens.max(self.output.unwrap_or(0));
        Usage {
            input_tokens: input.unwrap_or(guess.input_tokens),
            output_tokens: output.unwrap_or(so_far),
            cached_tokens: cached,
            cache_write_tokens: cache_write,
            reasoning_tokens: self.reasoning.unwrap_or(0),
            estimated: self.input.is_none() || output.is_none(),
        }
    }

    /// The usage of a reply that broke off.
    pub(crate) fn partial_usage(&self, paths: &UsagePaths, guess: Usage) -> Usage {
        Usage { estimated: true, ..self.final_usage(paths, guess) }
    }
}
