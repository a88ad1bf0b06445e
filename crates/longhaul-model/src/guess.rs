//! Tokens where nobody counts them: a guess from bytes.
//!
//! Never: passes for a count. What comes from here is marked as a guess.

use longhaul_core::usage::Usage;

/// What an exchange weighs, as far as one can guess.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Guess {
    /// The tokens of the question.
    pub(crate) input_tokens: u64,
    /// Bytes for a token.
    pub(crate) bytes_per_token: u64,
}

impl Guess {
    /// The usage of this question and so many bytes of reply.
    pub(crate) fn usage(self, reply_bytes: u64) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            output_tokens: reply_bytes.div_ceil(self.bytes_per_token.max(1)),
            estimated: true,
            ..Usage::default()
        }
    }
}
