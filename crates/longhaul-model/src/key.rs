//! A provider's key, and the way to keep it out of every text.
//!
//! Never: shows itself, whoever prints what holds it.

use std::fmt;

/// What stands where a key stood.
const MASK: &str = "[key]";

/// So short a text is in every other text by chance, and is not looked for.
const HIDDEN_FROM: usize = 6;

/// The key of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// The key with this text; the blanks around it are a slip of the hand.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The text, for the one header that needs it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// A text without this key in it.
    pub(crate) fn hide(&self, text: String) -> String {
        match self.0.len() >= HIDDEN_FROM && text.contains(&self.0) {
            true => text.replace(&self.0, MASK),
            false => text,
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}
