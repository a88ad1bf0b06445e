//! Token counts of one model call, as the provider reports them during the stream.
//!
//! Invariant: a count that is missing in a later report does not overwrite an earlier one.

use longhaul_core::usage::Usage;
use serde_json::Value;

/// JSON pointers to the token counts in the `usage` object of an API's responses.
#[derive(Debug)]
pub(crate) struct UsageJsonPaths {
    pub(crate) input: &'static str,
    pub(crate) output: &'static str,
    /// Pointer to the sum of input and output tokens. `None` means that the output count is
    /// complete. Some servers leave billed reasoning tokens out of the output count, but not out of
    /// the sum.
    pub(crate) total: Option<&'static str>,
    /// Pointers to the count of cached input tokens. If several counts are present, the largest is
    /// used.
    pub(crate) cached: &'static [&'static str],
    pub(crate) cache_write: &'static str,
    pub(crate) reasoning: &'static str,
    /// Whether the count of input tokens includes cached tokens.
    pub(crate) input_includes_cache: bool,
}

/// Newest token counts that the provider has reported for one model call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenCounts {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
    /// Whether the output count is that of the complete reply.
    is_output_final: bool,
}

impl TokenCounts {
    /// Applies the `usage` object of a reply that has just started, whose output count is not
    /// final.
    pub(crate) fn update_from_initial_usage(&mut self, paths: &UsageJsonPaths, usage_json: &str) {
        let is_final = self.is_output_final;
        self.update_from_usage(paths, usage_json);
        self.is_output_final = is_final;
    }

    /// Applies a `usage` object. Its counts are totals for the model call, so they replace older
    /// counts.
    pub(crate) fn update_from_usage(&mut self, paths: &UsageJsonPaths, usage_json: &str) {
        let Ok(usage_json) = serde_json::from_str::<Value>(usage_json) else {
            return;
        };
        let count = |path: &str| usage_json.pointer(path).and_then(Value::as_u64);
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

    /// Returns the usage of a complete reply. Counts that the provider never reported are taken
    /// from `estimate`.
    pub(crate) fn complete_usage(&self, paths: &UsageJsonPaths, estimate: Usage) -> Usage {
        let (mut cached, mut cache_write) =
            (self.cached.unwrap_or(0), self.cache_write.unwrap_or(0));
        let mut input = self.input;
        if paths.input_includes_cache {
            // Both are parts of the input, even if the reported counts are larger.
            let all = input.unwrap_or(0);
            cached = cached.min(all);
            cache_write = cache_write.min(all - cached);
            input = input.map(|all| all - cached - cache_write);
        }
        let output = self.output.filter(|_| self.is_output_final);
        // A count from the start of the reply does not cover all of it.
        let output_so_far = estimate.output_tokens.max(self.output.unwrap_or(0));
        Usage {
            input_tokens: input.unwrap_or(estimate.input_tokens),
            output_tokens: output.unwrap_or(output_so_far),
            cached_tokens: cached,
            cache_write_tokens: cache_write,
            reasoning_tokens: self.reasoning.unwrap_or(0),
            estimated: self.input.is_none() || output.is_none(),
        }
    }
}
