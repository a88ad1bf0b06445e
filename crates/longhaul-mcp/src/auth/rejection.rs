//! Messages about requests that a server rejected for lack of a login, each with the command that
//! helps.
//!
//! Invariant: a text of the server is put into a command only if a shell reads it as a plain word.

use reqwest::StatusCode;
use rmcp::transport::auth::WWWAuthenticateParams;

use crate::auth::error::sanitize_untrusted_text;
use crate::auth::refresh::AccessToken;

/// Maximum number of OAuth scopes in a message.
const SCOPES_MAX: usize = 10;

/// Returns the CLI command with which the user logs in at a server.
pub(crate) fn login_command(server: &str) -> String {
    format!("longhaul mcp login {server}")
}

/// Returns the message about a request that a server rejected. `None` if the rejection has nothing
/// to do with the login.
pub(super) fn rejection_message(
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
