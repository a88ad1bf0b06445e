//! Takes a login back where it came from, as RFC 7009 has it.
//!
//! Never: sends a token to anybody but who gave it, and never repeats what they say
//! to it.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::auth::credential_file::{StoredLogin, TokenInfo};
use crate::auth::error::{describe, url_secrets};
use crate::auth::issuer::{Issuer, IssuerError};
use crate::auth::oauth_http::INVALID_URL;

/// So long it may take, with all its questions.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(20);

/// What became of a login that is to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogoutOutcome {
    /// There was none.
    NotLoggedIn,
    /// It is forgotten, and no longer good where it came from.
    Revoked,
    /// It is forgotten here; where it came from, there is no way to take it back.
    RevocationUnsupported,
    /// It is forgotten here; nobody was asked to take it back.
    RevocationSkipped,
    /// It is forgotten here; it could not be taken back.
    RevocationFailed {
        /// Why not.
        reason: String,
    },
}

impl LogoutOutcome {
    pub(super) fn revocation_failed(why: &str) -> Self {
        let why = why.to_owned();
        Self::RevocationFailed { reason: why }
    }
}

/// Asks who gave a login to take it back.
pub(super) async fn revoke(
    server: &Url,
    record: &StoredLogin,
    secret: Option<&str>,
) -> LogoutOutcome {
    let Some(facts) = record.token_info() else {
        return LogoutOutcome::Revoked;
    };
    record.register_secrets();
    // The SDK tells its log more than is anybody's business.
    let asked = Box::pin(request_revocation(server, (record, &facts), secret));
    let asked = asked.with_subscriber(NoSubscriber::default());
    match timeout(REVOKE_TIMEOUT, asked).await {
        Ok(Ok(forgotten)) => forgotten,
        Ok(Err(IssuerError::Unusable(why, _))) => LogoutOutcome::revocation_failed(why),
        Ok(Err(IssuerError::Sdk(error))) => {
            let mut secrets = url_secrets(server);
            secrets.extend(secret);
            LogoutOutcome::revocation_failed(&describe(&error, &secrets).0)
        }
        Err(_) => LogoutOutcome::revocation_failed("nobody answered in time"),
    }
}

async fn request_revocation(
    server: &Url,
    (record, facts): (&StoredLogin, &TokenInfo),
    secret: Option<&str>,
) -> Result<LogoutOutcome, IssuerError> {
    let issuer = Issuer::discover(server, &record.credentials).await?;
    let fields = &issuer.metadata.additional_fields;
    let Some(address) = fields.get("revocation_endpoint").and_then(Value::as_str) else {
        return Ok(LogoutOutcome::RevocationUnsupported);
    };
    let address = address.parse::<Url>();
    let address = address.map_err(|_| IssuerError::Unusable(INVALID_URL, false))?;
    let client = ClientAuth {
        id: &record.credentials.client_id,
        secret,
        is_secret_in_form: uses_form_auth(fields),
    };
    let mut why = None;
    // First what would bring more tokens.
    for (kind, token) in [
        ("refresh_token", facts.refresh_token.as_deref()),
        ("access_token", Some(facts.access_token.as_str())),
    ] {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            continue;
        };
        let (form, basic) = client.revocation_request(token, kind);
        let wrong = match issuer.http.post(&address, form, basic).await {
            Ok(status) if status.is_success() => continue,
            Ok(status) => {
                let kind = kind.replace('_', " ");
                format!("it answered with HTTP {} for its {kind}", status.as_u16())
            }
            Err(wrong) => wrong,
        };
        why.get_or_insert(wrong);
    }
    Ok(match why {
        None => LogoutOutcome::Revoked,
        Some(why) => LogoutOutcome::RevocationFailed { reason: why },
    })
}

/// Whether it takes the secret of a client only in a form. Who does not say so for
/// this says it for tokens.
fn uses_form_auth(fields: &HashMap<String, Value>) -> bool {
    let said =
        ["revocation_endpoint_auth_methods_supported", "token_endpoint_auth_methods_supported"];
    let said = said.into_iter().find_map(|name| fields.get(name)?.as_array());
    let has = |method: &str| said.is_some_and(|said| said.iter().any(|one| one == method));
    has("client_secret_post") && !has("client_secret_basic")
}

/// Who we are to whoever is asked.
struct ClientAuth<'a> {
    id: &'a str,
    secret: Option<&'a str>,
    is_secret_in_form: bool,
}

impl ClientAuth<'_> {
    /// The form that asks to take a token back, and what goes before it.
    fn revocation_request(&self, token: &str, kind: &str) -> (String, Option<(String, String)>) {
        let mut form = Serializer::new(String::new());
        form.append_pair("token", token);
        form.append_pair("token_type_hint", kind);
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        match self.secret {
            Some(secret) if !self.is_secret_in_form => {
                let basic = (encoded(self.id), encoded(secret));
                (form.finish(), Some(basic))
            }
            Some(secret) => {
                form.append_pair("client_id", self.id);
                form.append_pair("client_secret", secret);
                (form.finish(), None)
            }
            None => {
                form.append_pair("client_id", self.id);
                (form.finish(), None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supported_client_authentication_method_is_used() {
        let id = "https://us.example/a b";
        let asked = "token=t%2F1&token_type_hint=access_token";
        let us = "client_id=https%3A%2F%2Fus.example%2Fa+b";
        for (secret, in_form, form, basic) in [
            (None, false, format!("{asked}&{us}"), None),
            (None, true, format!("{asked}&{us}"), None),
            (
                Some("s:1"),
                false,
                asked.to_owned(),
                Some(("https%3A%2F%2Fus.example%2Fa+b".into(), "s%3A1".into())),
            ),
            (Some("s:1"), true, format!("{asked}&{us}&client_secret=s%3A1"), None),
        ] {
            let client = ClientAuth { id, secret, is_secret_in_form: in_form };
            assert_eq!(client.revocation_request("t/1", "access_token"), (form, basic));
        }
    }

    #[test]
    fn a_secret_is_sent_in_the_form_only_if_nothing_else_is_supported() {
        let (for_this, for_tokens) =
            ("revocation_endpoint_auth_methods_supported", "token_endpoint_auth_methods_supported");
        for (fields, expect) in [
            (serde_json::json!({}), false),
            (serde_json::json!({ for_this: ["client_secret_post"] }), true),
            (serde_json::json!({ for_this: ["client_secret_post", "client_secret_basic"] }), false),
            (serde_json::json!({ for_this: ["none"] }), false),
            (serde_json::json!({ for_tokens: ["client_secret_post"] }), true),
            (
                serde_json::json!({
                    for_this: ["client_secret_basic"], for_tokens: ["client_secret_post"],
                }),
                false,
            ),
            (serde_json::json!({ for_this: "client_secret_post" }), false),
        ] {
            let said = fields.to_string();
            let fields = serde_json::from_value(fields).unwrap();
            assert_eq!(uses_form_auth(&fields), expect, "{said}");
        }
    }
}
