//! Answers that are kept, so that a request which is sent twice counts once.
//!
//! Never: one caller's answer to another. A key belongs to whoever sent it.

use std::borrow::Cow;

use longhaul_core::port::auth::{
    IdempotencyKey, IdempotencyRequest, IdempotencyState, StoredResponse,
};
use longhaul_core::port::redact::Redact;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;

/// How long an answer is kept.
const RETENTION: Millis = Millis::from_secs(24 * 60 * 60);

/// A request that is not answered after this span has lost its server.
const LEASE: Millis = Millis::from_secs(60);

/// A body without secrets, which is JSON afterwards if it was before; none: it has
/// none.
fn redact_body(redact: &dyn Redact, body: &str) -> Option<String> {
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
    pub async fn begin_request(
        &self,
        of: IdempotencyKey,
        body: Hash,
    ) -> Result<IdempotencyState, Error> {
        self.check_no_secret("the idempotency key", &of.key)?;
        let ask = IdempotencyRequest { key: of, body_hash: body, ttl: RETENTION, lease: LEASE };
        Ok(self.services.auth.begin_request(ask).await?)
    }

    /// Keeps the answer of a request that was begun.
    pub async fn complete_request(
        &self,
        of: IdempotencyKey,
        mut reply: StoredResponse,
    ) -> Result<(), Error> {
        // An answer may repeat what was asked.
        if let Ok(body) = std::str::from_utf8(&reply.body)
            && let Some(clean) = redact_body(&*self.services.redact, body)
        {
            reply.body = clean.into_bytes();
        }
        Ok(self.services.auth.complete_request(of, reply).await?)
    }

    /// Forgets a request that came to nothing.
    pub async fn abort_request(&self, of: IdempotencyKey) -> Result<(), Error> {
        Ok(self.services.auth.abort_request(of).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows a number.
    #[derive(Debug)]
    struct PinRedactor;

    impl Redact for PinRedactor {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            match text.contains("48151623") {
                true => text.replace("48151623", "{{secret:PIN}}").into(),
                false => text.into(),
            }
        }
    }

    #[test]
    fn redaction_keeps_a_stored_response_valid_json() {
        for (body, clean) in [
            (r#"{"pin":48151623}"#, Some(r#"{"pin":"{{secret:PIN}}"}"#)),
            ("no JSON: 48151623", Some("no JSON: {{secret:PIN}}")),
            (r#"{"pin":1}"#, None),
            ("none", None),
        ] {
            assert_eq!(redact_body(&PinRedactor, body).as_deref(), clean, "{body}");
        }
    }
}
