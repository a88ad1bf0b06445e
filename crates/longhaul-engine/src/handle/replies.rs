//! Answers that are kept, so that a request which is sent twice counts once.
//!
//! Never: one caller's answer to another. A key belongs to whoever sent it.

use std::borrow::Cow;

use longhaul_core::port::keyring::{Begun, Reply, ReplyAsk, ReplyKey};
use longhaul_core::port::redact::Redact;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;

/// How long an answer is kept.
const KEEP: Millis = Millis::from_secs(24 * 60 * 60);

/// A request that is not answered after this span has lost its server.
const LEASE: Millis = Millis::from_secs(60);

/// A body without secrets, which is JSON afterwards if it was before; none: it has
/// none.
fn without_secrets(redact: &dyn Redact, body: &str) -> Option<String> {
    if let Ok(json) = RawJson::parse(body) {
        let clean = redact.redact_json(&json);
        return (clean != json).then(|| clean.as_str().to_owned());
    }
    match redact.redact(body) {
        Cow::Owned(clean) => Some(clean),
        Cow::Borrowed(_) => None,
    }
}

impl Longhaul {
    /// Begins a request that must count once.
    pub async fn begin_reply(&self, of: ReplyKey, body: Hash) -> Result<Begun, Error> {
        self.is_no_secret("the idempotency key", &of.key)?;
        let ask = ReplyAsk {
            of,
            body,
            keep: KEEP,
            lease: LEASE,
        };
        Ok(self.ports.keyring.begin_reply(ask).await?)
    }

    /// Keeps the answer of a request that was begun.
    pub async fn keep_reply(&self, of: ReplyKey, mut reply: Reply) -> Result<(), Error> {
        // An answer may repeat what was asked.
        if let Ok(body) = std::str::from_utf8(&reply.body)
            && let Some(clean) = without_secrets(&*self.ports.redact, body)
        {
            reply.body = clean.into_bytes();
        }
        Ok(self.ports.keyring.keep_reply(of, reply).await?)
    }

    /// Forgets a request that came to nothing.
    pub async fn drop_reply(&self, of: ReplyKey) -> Result<(), Error> {
        Ok(self.ports.keyring.drop_reply(of).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows a number.
    #[derive(Debug)]
    struct Pin;

    impl Redact for Pin {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            match text.contains("48151623") {
                true => text.replace("48151623", "{{secret:PIN}}").into(),
                false => text.into(),
            }
        }
    }

    #[test]
    fn an_answer_that_was_json_stays_json() {
        for (body, clean) in [
            (r#"{"pin":48151623}"#, Some(r#"{"pin":"{{secret:PIN}}"}"#)),
            ("no JSON: 48151623", Some("no JSON: {{secret:PIN}}")),
            (r#"{"pin":1}"#, None),
            ("none", None),
        ] {
            assert_eq!(without_secrets(&Pin, body).as_deref(), clean, "{body}");
        }
    }
}
