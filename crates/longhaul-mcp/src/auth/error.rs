//! Why a login came to nothing, in words that say what helps.
//!
//! Never: a token, a code, the secret of a client, or the query of an address.

use reqwest::Url;
use rmcp::transport::auth::AuthError;

use crate::auth::credential_file::CredentialFileError;
use crate::auth::redaction::redact_tokens;
use crate::error::McpError;

/// So much of what a stranger says is passed on.
const REMOTE_TEXT_CHARS_MAX: usize = 300;

/// Why there is no login.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server can't be asked at all.
    #[error(transparent)]
    Server(#[from] McpError),
    /// There is nothing to log in at.
    #[error("There is no login at the MCP server `{server}`: {reason}.")]
    Unsupported {
        /// Which server.
        server: String,
        /// Why not.
        reason: String,
    },
    /// It was tried.
    #[error("The login at the MCP server `{server}` came to nothing: {reason}. {hint}")]
    Failed {
        /// Which server.
        server: String,
        /// What happened.
        reason: String,
        /// What helps.
        hint: String,
    },
    /// The place where logins are kept can't be used.
    #[error(transparent)]
    CredentialFile(#[from] CredentialFileError),
}

/// What a stranger said, on one line and not too long, without these secrets.
pub(super) fn sanitize(words: &str, secrets: &[&str]) -> String {
    let mut words = redact_tokens(words).into_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= 4) {
        words = words.replace(secret, "***");
    }
    let plain = words.chars().map(|letter| match letter.is_control() {
        true => ' ',
        false => letter,
    });
    let plain: String = plain.take(REMOTE_TEXT_CHARS_MAX).collect();
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    plain.trim_end_matches('.').to_owned()
}

/// What an address holds that nobody else is to read.
pub(super) fn url_secrets(url: &Url) -> Vec<&str> {
    let secrets = [url.query(), url.password()];
    secrets.into_iter().flatten().collect()
}

/// What is wrong, and what helps, as the SDK tells it.
pub(super) fn describe(error: &AuthError, secrets: &[&str]) -> (String, &'static str) {
    let words = sanitize(&error.to_string(), secrets);
    if let AuthError::AuthorizationServerMismatch { .. }
    | AuthError::AuthorizationServerMissingIssuer { .. } = error
    {
        let helps = "Somebody else may have answered in its place: nothing was sent to them.";
        return (words, helps);
    }
    if let AuthError::RegistrationFailed(_) = error {
        return (words, REGISTER_CLIENT_HINT);
    }
    (words, "Try it again, or ask whoever runs that server.")
}

/// Whether what went wrong may be otherwise the next time. What an authorization
/// server has answered it means, unless it says that it can't just now.
pub(super) fn is_transient(error: &AuthError) -> bool {
    if let AuthError::TokenRefreshFailed(words) = error {
        let answered = words.strip_prefix(ERROR_RESPONSE_PREFIX);
        return answered.is_none_or(|code| TRANSIENT_CODES.iter().any(|now| code.starts_with(now)));
    }
    matches!(
        error,
        AuthError::MetadataError(_) | AuthError::HttpError(_) | AuthError::InternalError(_)
    )
}

/// How the SDK begins when it tells of an answer; nothing of a stranger's comes before.
const ERROR_RESPONSE_PREFIX: &str = "Server returned error response: ";

/// Answers that mean no more than that.
const TRANSIENT_CODES: [&str; 2] = ["temporarily_unavailable", "server_error"];

/// What helps where a server takes no clients by itself.
pub(super) const REGISTER_CLIENT_HINT: &str = "Register a client there by hand, and write its id as \
     `\"oauth\": { \"clientId\": \"...\" }` in .mcp.json.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_authorization_servers_are_truncated_and_redacted() {
        for (words, expect) in [
            ("plain words.", "plain words"),
            ("two\nlines \u{1b}[2J of s3cret", "two lines [2J of ***"),
            ("", ""),
        ] {
            assert_eq!(sanitize(words, &["s3cret", ""]), expect);
        }
        assert_eq!(sanitize(&"x".repeat(9_000), &[]).len(), REMOTE_TEXT_CHARS_MAX);
    }

    #[test]
    fn error_responses_are_permanent_and_outages_transient() {
        let refresh = |words: &str| AuthError::TokenRefreshFailed(words.to_owned());
        for (error, expect) in [
            (refresh("Server returned error response: invalid_client"), false),
            (refresh("Server returned error response: temporarily_unavailable"), true),
            (refresh("Server returned error response: server_error: later"), true),
            (refresh("Request failed"), true),
            (refresh("Failed to parse server response"), true),
            (AuthError::MetadataError("HTTP 503".to_owned()), true),
            (AuthError::PkceUnsupported, false),
        ] {
            assert_eq!(is_transient(&error), expect, "{error}");
        }
    }
}
