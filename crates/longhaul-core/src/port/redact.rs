//! Takes secrets out of a text before anybody reads it or writes it down.
//!
//! Never: knows where a text goes.

use std::borrow::Cow;

use crate::raw::RawJson;

/// Whoever knows the secrets.
pub trait Redact: Send + Sync + std::fmt::Debug {
    /// The text without them.
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// The JSON without them.
    fn redact_json(&self, json: &RawJson) -> RawJson {
        match self.redact(json.as_str()) {
            Cow::Borrowed(_) => json.clone(),
            // What stands for a secret is plain, so this is JSON still.
            Cow::Owned(text) => match RawJson::parse(text) {
                Ok(json) => json,
                Err(_) => RawJson::null(),
            },
        }
    }
}

/// Nobody knows any.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl Redact for NoSecrets {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(text)
    }
}
