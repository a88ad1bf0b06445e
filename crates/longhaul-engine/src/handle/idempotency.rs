//! Stored HTTP responses, so that a request that is sent twice with one idempotency key is applied
//! once.
//!
//! Invariant: a response is only returned to the caller who sent the request.

use std::borrow::Cow;

use longhaul_core::port::auth::{
    IdempotencyKey, IdempotencyRequest, IdempotentRequestState, StoredHttpResponse,
};
use longhaul_core::port::redact::Redact;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Millis;

use crate::error::Result;
use crate::handle::Longhaul;

/// How long stored HTTP responses are kept.
const RETENTION: Millis = Millis::from_secs(24 * 60 * 60);

/// Time after which a request without a response counts as abandoned by the server that handled it.
const LEASE: Millis = Millis::from_secs(60);

/// Returns the response body with secrets redacted; JSON stays valid JSON. `None` if the body
/// contains no secrets.
fn redact_response_body(redact: &dyn Redact, body: &str) -> Option<String> {
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
    /// Starts a request under an idempotency key, or returns the stored response of an earlier
    /// request with the same key.
    pub async fn begin_idempotent_request(
        &self,
        key: IdempotencyKey,
        body: Hash,
    ) -> Result<IdempotentRequestState> {
        self.check_no_secret_in_name("the idempotency key", &key.key)?;
        let request = IdempotencyRequest { key, body_hash: body, ttl: RETENTION, lease: LEASE };
        Ok(self.services.auth.begin_idempotent_request(request).await?)
    }

    /// Stores the response to a request that was started under an idempotency key.
    pub async fn complete_idempotent_request(
        &self,
        key: IdempotencyKey,
        mut reply: StoredHttpResponse,
    ) -> Result<()> {
        // A response may repeat parts of the request.
        if let Ok(body) = std::str::from_utf8(&reply.body)
            && let Some(clean) = redact_response_body(&*self.services.redact, body)
        {
            reply.body = clean.into_bytes();
        }
        Ok(self.services.auth.complete_idempotent_request(key, reply).await?)
    }

    /// Discards a request that was started under an idempotency key and had no effect, so that the
    /// caller can send the request again.
    pub async fn abort_idempotent_request(&self, key: IdempotencyKey) -> Result<()> {
        Ok(self.services.auth.abort_idempotent_request(key).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test redactor that redacts one number.
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
            assert_eq!(redact_response_body(&PinRedactor, body).as_deref(), clean, "{body}");
        }
    }
}
