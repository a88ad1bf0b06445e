//! What is held back of a reply while it comes: it may be the beginning of a secret
//! that goes on.
//!
//! Never: hands out words that follow a hole.

use std::borrow::Cow;

use longhaul_core::port::redact::Redact;

/// What is held back of one reply, and how much of it was shown.
#[derive(Debug, Default)]
pub(super) struct HoldbackBuffer {
    text: String,
    released_bytes: usize,
    /// Not all of it could be kept: what comes now would follow a hole.
    has_gap: bool,
}

impl HoldbackBuffer {
    /// Takes words in, and gives those that are known to be no part of a secret.
    /// Of one reply no more than `most` bytes are shown.
    pub(super) fn push(&mut self, text: &str, redact: &dyn Redact, most: usize) -> String {
        self.has_gap |= self.released_bytes + self.text.len() + text.len() > most;
        if self.has_gap {
            return String::new();
        }
        self.text.push_str(text);
        let (shown, held) = self.split(redact);
        self.text = held;
        self.released_bytes += shown.len();
        shown
    }

    /// What can be shown, and what must still be held back.
    fn split(&self, redact: &dyn Redact) -> (String, String) {
        let end = self.text.len().saturating_sub(redact.partial_match_len(&self.text));
        let (said, rest) = self.text.split_at(self.text.floor_char_boundary(end));
        let whole = redact.redact(&self.text);
        if rest.is_empty() {
            return (whole.into_owned(), String::new());
        }
        let clean = redact.redact(said);
        // A secret may end where another seems to begin.
        let is_torn =
            matches!(whole, Cow::Owned(_)) && *whole != format!("{clean}{}", redact.redact(rest));
        match is_torn {
            true => (whole.into_owned(), String::new()),
            false => (clean.into_owned(), rest.to_owned()),
        }
    }

    /// Nothing follows: what was held back is all there is of it.
    pub(super) fn drain(&mut self, redact: &dyn Redact) -> String {
        let held = std::mem::take(&mut self.text);
        let shown = redact.redact(&held).into_owned();
        self.released_bytes += shown.len();
        shown
    }
}
