//! Takes the secrets of a project out of what models read and journals keep.
//!
//! Never: shows them.

use std::borrow::Cow;

use longhaul_core::port::redact::Redact;
use longhaul_model::cassette::Mask;
use longhaul_tool::mcp::{self, without_tokens};

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
        self.0.unfinished(text).max(mcp::unfinished(text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_engine::clock::SystemClock;

    use super::*;

    #[test]
    fn what_has_begun_may_be_a_secret_or_a_token() {
        let redactor = Redactor(Mask::new([("KEY", "s3cret-of-a-project")]));
        let oauth = mcp::OAuth {
            client_secret: Some("t0ken-of-a-login".to_owned()),
            ..mcp::OAuth::default()
        };
        _ = mcp::Login::new("/nowhere".into(), oauth, Arc::new(SystemClock));
        for (text, begun) in [
            ("it is s3cret-of", "s3cret-of"),
            ("it is t0ken-of-a", "t0ken-of-a"),
            ("it is nothing", ""),
        ] {
            assert_eq!(redactor.unfinished(text), begun.len(), "{text}");
        }
        let clean = redactor.redact("t0ken-of-a-login, s3cret-of-a-project");
        assert!(!clean.contains("of-a"), "{clean}");
    }
}
