//! Takes the secrets of a project out of what models read and journals keep.
//!
//! Never: shows them.

use std::borrow::Cow;

use longhaul_core::port::redact::Redact;
use longhaul_model::cassette::Mask;
use longhaul_tool::mcp::without_tokens;

/// Knows the secrets of a project in the ways they are spelled, and the tokens of
/// logins that were used.
#[derive(Debug)]
pub(crate) struct Redactor(pub(crate) Mask);

impl Redact for Redactor {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let text = without_tokens(text);
        match self.0.finds(&text) {
            true => Cow::Owned(self.0.hide(text.into_owned())),
            false => text,
        }
    }

    fn unfinished(&self, text: &str) -> usize {
        self.0.unfinished(text)
    }
}
