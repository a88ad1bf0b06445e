//! API key of a provider.
//!
//! Invariant: the key never appears in debug output.

use std::fmt;

/// API key of an account at a provider.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Creates an API key. Whitespace around the text is removed.
    pub fn new(key_text: &str) -> Self {
        Self(key_text.trim().to_owned())
    }

    /// Returns the text of the key, for the request header and for redaction.
    pub(crate) fn reveal_key_text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}
