//! Errors of logins. Each message includes what the user can do about it.
//!
//! Invariant: an error contains no token, code, client secret or query string.

use reqwest::Url;
use rmcp::transport::auth::AuthError;

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
    /// The server does not use OAuth logins.
    #[error("The MCP server `{server}` does not use a login: {reason}.")]
    Unsupported {
        /// Name of the MCP server.
        server: String,
        /// Why the server does not use logins.
        reason: String,
    },
    /// The login at the server failed.
    #[error("The login at the MCP server `{server}` failed: {reason}. {hint}")]
    Failed {
        /// Name of the MCP server.
        server: String,
        /// Why the login failed.
        reason: String,
        /// What the user can do about the failure.
        hint: String,
    },
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
pub(super) fn auth_error_reason_and_hint(
    error: &AuthError,
    secrets: &[&str],
) -> (String, &'static str) {
    let text = sanitize_untrusted_text(&error.to_string(), secrets);
    if let AuthError::AuthorizationServerMismatch { .. }
    | AuthError::AuthorizationServerMissingIssuer { .. } = error
    {
        let hint = "Another server may have answered in its place; nothing was sent to it.";
        return (text, hint);
    }
    if let AuthError::RegistrationFailed(_) = error {
        return (text, REGISTER_CLIENT_HINT);
    }
    (text, "Try again, or ask the operator of that server.")
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
}
