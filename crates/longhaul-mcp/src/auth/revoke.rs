//! Revokes a login at its authorization server (RFC 7009).
//!
//! Invariant: a token is sent only to its issuer, and the response text is not shown.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::auth::credential_file::{LoginTokens, StoredLogin};
use crate::auth::error::{auth_error_reason_and_hint, secrets_in_url};
use crate::auth::issuer::{IssuerError, LoginIssuer};
use crate::auth::oauth_http::INVALID_URL;

/// Timeout for revoking a login, including all requests.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Result of a logout from an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogoutOutcome {
    /// No login was stored.
    NotLoggedIn,
    /// The stored login was deleted here and revoked at the authorization server.
    Revoked,
    /// The stored login was deleted here; the authorization server does not support revocation.
    RevocationUnsupported,
    /// The stored login was deleted here; revocation was not requested.
    RevocationSkipped,
    /// The stored login was deleted here; the revocation at the authorization server failed.
    RevocationFailed {
        /// Why the revocation failed.
        reason: String,
    },
}

impl LogoutOutcome {
    pub(super) fn revocation_failed(reason: &str) -> Self {
        let reason = reason.to_owned();
        Self::RevocationFailed { reason }
    }
}

/// Revokes a login at the authorization server that issued it.
pub(super) async fn revoke_login(
    server: &Url,
    record: &StoredLogin,
    secret: Option<&str>,
) -> LogoutOutcome {
    let Some(tokens) = record.login_tokens() else {
        return LogoutOutcome::Revoked;
    };
    record.register_secrets_to_redact();
    // The SDK would log secrets.
    let revocation = Box::pin(request_revocation(server, (record, &tokens), secret));
    let revocation = revocation.with_subscriber(NoSubscriber::default());
    match timeout(REVOKE_TIMEOUT, revocation).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(IssuerError::Unusable(reason, _))) => LogoutOutcome::revocation_failed(reason),
        Ok(Err(IssuerError::Sdk(error))) => {
            let mut secrets = secrets_in_url(server);
            secrets.extend(secret);
            LogoutOutcome::revocation_failed(&auth_error_reason_and_hint(&error, &secrets).0)
        }
        Err(_) => LogoutOutcome::revocation_failed("the request timed out"),
    }
}

async fn request_revocation(
    server: &Url,
    (record, tokens): (&StoredLogin, &LoginTokens),
    secret: Option<&str>,
) -> Result<LogoutOutcome, IssuerError> {
    let issuer = LoginIssuer::discover(server, &record.credentials).await?;
    let fields = &issuer.metadata.additional_fields;
    let Some(address) = fields.get("revocation_endpoint").and_then(Value::as_str) else {
        return Ok(LogoutOutcome::RevocationUnsupported);
    };
    let address = address.parse::<Url>();
    let address = address.map_err(|_| IssuerError::Unusable(INVALID_URL, false))?;
    let client = RevocationCredentials {
        id: &record.credentials.client_id,
        secret,
        is_secret_in_form: must_send_secret_in_form(fields),
    };
    let mut first_error = None;
    // The refresh token first, because it can be used to get more tokens.
    for (kind, token) in [
        ("refresh_token", tokens.refresh_token.as_deref()),
        ("access_token", Some(tokens.access_token.as_str())),
    ] {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            continue;
        };
        let (form, basic) = client.revocation_form_and_auth(token, kind);
        let error = match issuer.http.post_form(&address, form, basic).await {
            Ok(status) if status.is_success() => continue,
            Ok(status) => {
                let kind = kind.replace('_', " ");
                format!("the server answered with HTTP {} for the {kind}", status.as_u16())
            }
            Err(error) => error,
        };
        first_error.get_or_insert(error);
    }
    Ok(match first_error {
        None => LogoutOutcome::Revoked,
        Some(first_error) => LogoutOutcome::RevocationFailed { reason: first_error },
    })
}

/// Returns whether the client secret must be sent in the form instead of an HTTP header. If the
/// metadata does not say so for revocation, the methods of the token endpoint apply.
fn must_send_secret_in_form(metadata_fields: &HashMap<String, Value>) -> bool {
    let methods =
        ["revocation_endpoint_auth_methods_supported", "token_endpoint_auth_methods_supported"];
    let methods = methods.into_iter().find_map(|name| metadata_fields.get(name)?.as_array());
    let supports =
        |method: &str| methods.is_some_and(|methods| methods.iter().any(|one| one == method));
    supports("client_secret_post") && !supports("client_secret_basic")
}

/// Client credentials for the revocation endpoint.
struct RevocationCredentials<'a> {
    id: &'a str,
    secret: Option<&'a str>,
    is_secret_in_form: bool,
}

impl RevocationCredentials<'_> {
    /// Returns the form that revokes a token, and the client credentials for HTTP basic
    /// authentication.
    fn revocation_form_and_auth(
        &self,
        token: &str,
        token_kind: &str,
    ) -> (String, Option<(String, String)>) {
        let mut form = Serializer::new(String::new());
        form.append_pair("token", token);
        form.append_pair("token_type_hint", token_kind);
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
        let token_form = "token=t%2F1&token_type_hint=access_token".to_owned();
        let form_with_id = format!("{token_form}&client_id=https%3A%2F%2Fus.example%2Fa+b");
        let form_with_id_and_secret = format!("{form_with_id}&client_secret=s%3A1");
        for (secret, is_secret_in_form, expected_form, expected_basic_auth) in [
            (None, false, &form_with_id, None),
            (None, true, &form_with_id, None),
            (
                Some("s:1"),
                false,
                &token_form,
                Some(("https%3A%2F%2Fus.example%2Fa+b".into(), "s%3A1".into())),
            ),
            (Some("s:1"), true, &form_with_id_and_secret, None),
        ] {
            let client = RevocationCredentials { id, secret, is_secret_in_form };
            assert_eq!(
                client.revocation_form_and_auth("t/1", "access_token"),
                (expected_form.clone(), expected_basic_auth)
            );
        }
    }

    #[test]
    fn a_secret_is_sent_in_the_form_only_if_nothing_else_is_supported() {
        let (revocation, token) =
            ("revocation_endpoint_auth_methods_supported", "token_endpoint_auth_methods_supported");
        for (fields, expected) in [
            (serde_json::json!({}), false),
            (serde_json::json!({ revocation: ["client_secret_post"] }), true),
            (
                serde_json::json!({ revocation: ["client_secret_post", "client_secret_basic"] }),
                false,
            ),
            (serde_json::json!({ revocation: ["none"] }), false),
            (serde_json::json!({ token: ["client_secret_post"] }), true),
            (
                serde_json::json!({
                    revocation: ["client_secret_basic"], token: ["client_secret_post"],
                }),
                false,
            ),
            (serde_json::json!({ revocation: "client_secret_post" }), false),
        ] {
            let text = fields.to_string();
            let fields = serde_json::from_value(fields).unwrap();
            assert_eq!(must_send_secret_in_form(&fields), expected, "{text}");
        }
    }
}
