//! Errors of logins, and messages about requests that a server rejected for lack of a login. Each
//! message includes what the user can do about it.
//!
//! Invariant: an error contains no token, code, client secret or query string. A text of the server
//! is put into a command only if a shell reads it as a plain word.

use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{AuthError, WWWAuthenticateParams};

use crate::auth::context::AccessToken;
use crate::auth::credential_file::CredentialFileError;
use crate::auth::redaction::redact_tokens;
use crate::error::McpError;

/// Maximum length of a text from the authorization server in messages, in characters.
const REMOTE_TEXT_CHARS_MAX: usize = 300;

/// Why a login at an MCP server failed or can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server is not configured or can't be reached.
    #[error(transparent)]
    Server(#[from] McpError),
    /// The server does not use OAuth logins, or the login failed, for the reason that the message
    /// gives.
    #[error("{0}")]
    Failed(String),
    /// The file that stores the login can't be used.
    #[error(transparent)]
    CredentialFile(#[from] CredentialFileError),
}

/// Returns an untrusted text on one line, truncated, and with these secrets redacted.
pub(super) fn sanitize_untrusted_text(text: &str, secrets: &[&str]) -> String {
    let mut text = redact_tokens(text).into_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= 4) {
        text = text.replace(secret, "***");
    }
    let printable = text.chars().map(|c| match c.is_control() {
        true => ' ',
        false => c,
    });
    let printable: String = printable.take(REMOTE_TEXT_CHARS_MAX).collect();
    let printable = printable.split_whitespace().collect::<Vec<_>>().join(" ");
    printable.trim_end_matches('.').to_owned()
}

/// Returns the query and the password of a URL, which must not appear in messages.
pub(super) fn secrets_in_url(url: &Url) -> Vec<&str> {
    let secrets = [url.query(), url.password()];
    secrets.into_iter().flatten().collect()
}

/// Returns the message of an SDK error, with these secrets redacted, and a hint for the user.
pub(super) fn reason_and_hint(error: &AuthError, secrets: &[&str]) -> (String, &'static str) {
    let text = sanitize_untrusted_text(&error.to_string(), secrets);
    let hint = if let AuthError::AuthorizationServerMismatch { .. }
    | AuthError::AuthorizationServerMissingIssuer { .. } = error
    {
        "Another server may have answered in its place; nothing was sent to it."
    } else if let AuthError::RegistrationFailed(_) = error {
        REGISTER_CLIENT_HINT
    } else {
        "Try again, or ask the operator of that server."
    };
    (text, hint)
}

/// Returns whether an OAuth error is transient. An error response of the authorization server is
/// permanent, unless its code says that the server is temporarily unavailable.
pub(super) fn is_transient_auth_error(error: &AuthError) -> bool {
    if let AuthError::TokenRefreshFailed(message) = error {
        let error_code = message.strip_prefix(ERROR_RESPONSE_PREFIX);
        return error_code
            .is_none_or(|code| TRANSIENT_CODES.iter().any(|prefix| code.starts_with(prefix)));
    }
    matches!(
        error,
        AuthError::MetadataError(_) | AuthError::HttpError(_) | AuthError::InternalError(_)
    )
}

/// Start of the SDK's message about an error response. Text of the server comes only after this.
const ERROR_RESPONSE_PREFIX: &str = "Server returned error response: ";

/// OAuth error codes that mean a temporary outage of the authorization server.
const TRANSIENT_CODES: [&str; 2] = ["temporarily_unavailable", "server_error"];

/// Hint for a server without dynamic client registration.
pub(super) const REGISTER_CLIENT_HINT: &str = "Register a client there manually, and write its id as \
     `\"oauth\": { \"clientId\": \"...\" }` in .mcp.json.";

/// Maximum number of OAuth scopes in a message.
const SCOPES_MAX: usize = 10;

/// Returns the CLI command with which the user logs in at a server.
pub(crate) fn login_command(server: &str) -> String {
    format!("longhaul mcp login {server}")
}

/// Returns the message about a request that a server rejected. `None` if the rejection has nothing
/// to do with the login.
pub(crate) fn rejection_message(
    server: &str,
    status: StatusCode,
    params: &WWWAuthenticateParams,
    access_token: &AccessToken,
) -> Option<String> {
    let command = login_command(server);
    if status == StatusCode::FORBIDDEN && !params.is_insufficient_scope() {
        return access_token.token.as_ref().map(|_| {
            format!(
                "the login does not allow this request; \
                 run `{command}` with an account that is allowed to"
            )
        });
    }
    if status == StatusCode::FORBIDDEN {
        let scopes = shell_safe_scopes(params.scope.as_deref().unwrap_or_default());
        return Some(match scopes.is_empty() {
            true => format!("the server requires more scopes than the login has; run `{command}`"),
            false => format!(
                "the server requires more scopes than the login has: {scopes}; \
                 run `{command} --scope \"{scopes}\"`"
            ),
        });
    }
    Some(match (&access_token.missing_reason, &access_token.token) {
        (Some(reason), _) => format!("{reason}; run `{command}`"),
        (None, Some(_)) => format!("the server no longer accepts the login; run `{command}`"),
        (None, None) => format!(
            "a login is required; run `{command}`, or set an Authorization header in .mcp.json"
        ),
    })
}

/// Returns the OAuth scopes if they are safe in a shell command that the user copies, else an empty
/// string.
fn shell_safe_scopes(scopes: &str) -> String {
    let is_safe_char = |c: char| c.is_ascii_alphanumeric() || ":._/-".contains(c);
    let is_safe_scope = |scope: &&str| {
        scope.len() <= 100 && !scope.starts_with('-') && scope.chars().all(is_safe_char)
    };
    let scopes: Vec<&str> = scopes.split_whitespace().take(SCOPES_MAX).collect();
    match scopes.iter().all(is_safe_scope) {
        true => sanitize_untrusted_text(&scopes.join(" "), &[]),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_authorization_servers_are_truncated_and_redacted() {
        for (text, expected) in [
            ("plain words.", "plain words"),
            ("two\nlines \u{1b}[2J of s3cret", "two lines [2J of ***"),
            ("", ""),
        ] {
            assert_eq!(sanitize_untrusted_text(text, &["s3cret", ""]), expected);
        }
        assert_eq!(sanitize_untrusted_text(&"x".repeat(9_000), &[]).len(), REMOTE_TEXT_CHARS_MAX);
    }

    #[test]
    fn error_responses_are_permanent_and_outages_transient() {
        let refresh = |text: &str| AuthError::TokenRefreshFailed(text.to_owned());
        for (error, expected) in [
            (refresh("Server returned error response: invalid_client"), false),
            (refresh("Server returned error response: temporarily_unavailable"), true),
            (refresh("Server returned error response: server_error: later"), true),
            (refresh("Request failed"), true),
            (refresh("Failed to parse server response"), true),
            (AuthError::MetadataError("HTTP 503".to_owned()), true),
            (AuthError::PkceUnsupported, false),
        ] {
            assert_eq!(is_transient_auth_error(&error), expected, "{error}");
        }
    }

    #[test]
    fn login_messages_name_the_command_and_quote_untrusted_text() {
        let (unauthorized, forbidden) = (StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN);
        let scope_challenge =
            |scope: &str| format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        let login_hint = Some("run `longhaul mcp login far`");
        for (status, challenge, token, expected) in [
            (unauthorized, String::new(), None, login_hint),
            (unauthorized, String::new(), Some("t"), login_hint),
            (forbidden, String::new(), None, None),
            (
                forbidden,
                String::new(),
                Some("t"),
                Some("run `longhaul mcp login far` with an account that is allowed to"),
            ),
            (
                forbidden,
                scope_challenge("a:b c"),
                Some("t"),
                Some("`longhaul mcp login far --scope \"a:b c\"`"),
            ),
            (forbidden, scope_challenge("$(reboot)"), Some("t"), login_hint),
            (forbidden, scope_challenge("--json"), Some("t"), login_hint),
        ] {
            let url = "https://a.example/mcp".parse().unwrap();
            let params = WWWAuthenticateParams::parse(&challenge, &url);
            let access_token =
                AccessToken { token: token.map(str::to_owned), missing_reason: None };
            let message = rejection_message("far", status, &params, &access_token);
            match (&message, expected) {
                (Some(message), Some(expected)) => assert!(message.contains(expected), "{message}"),
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => panic!("{message:?} {expected:?}"),
            }
        }
    }
}
