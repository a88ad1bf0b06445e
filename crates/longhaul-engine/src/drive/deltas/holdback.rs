//! Holds back the end of a streamed reply while it may be the beginning of a secret.
//!
//! Invariant: when a part of the reply was skipped, no text after it is published.

use std::borrow::Cow;

use longhaul_core::port::redact::Redact;

/// Buffer of streamed text that is not published yet because it may be the beginning of a secret,
/// with the number of bytes published so far.
#[derive(Debug, Default)]
pub(super) struct HoldbackBuffer {
    text: String,
    released_bytes: usize,
    /// Whether text was skipped because the reply exceeded the size limit. Nothing is published
    /// after a gap.
    has_gap: bool,
}

impl HoldbackBuffer {
    /// Adds streamed text to the buffer. Returns the redacted text that can be published, without
    /// an end that may be the beginning of a secret. Returns nothing once the reply exceeds
    /// `bytes_max`.
    pub(super) fn push(&mut self, text: &str, redact: &dyn Redact, bytes_max: usize) -> String {
        self.has_gap |= self.released_bytes + self.text.len() + text.len() > bytes_max;
        if self.has_gap {
            return String::new();
        }
        self.text.push_str(text);
        let (clean, held) = self.split_at_possible_secret(redact);
        self.text = held;
        self.released_bytes += clean.len();
        clean
    }

    /// Splits the buffered text into a part that can be published and a part that must be held
    /// back.
    fn split_at_possible_secret(&self, redact: &dyn Redact) -> (String, String) {
        let end = self.text.len().saturating_sub(redact.partial_secret_suffix_len(&self.text));
        let (complete, rest) = self.text.split_at(self.text.floor_char_boundary(end));
        let redacted = redact.redact(&self.text);
        if rest.is_empty() {
            return (redacted.into_owned(), String::new());
        }
        let clean = redact.redact(complete);
        // A secret may end where another one seems to begin.
        let is_secret_split = matches!(redacted, Cow::Owned(_))
            && *redacted != format!("{clean}{}", redact.redact(rest));
        match is_secret_split {
            true => (redacted.into_owned(), String::new()),
            false => (clean.into_owned(), rest.to_owned()),
        }
    }

    /// Returns the text that was still held back, redacted. Called when no more text will follow.
    pub(super) fn drain_redacted(&mut self, redact: &dyn Redact) -> String {
        let held = std::mem::take(&mut self.text);
        let clean = redact.redact(&held).into_owned();
        self.released_bytes += clean.len();
        clean
    }
}
