//! What it means that a server refused, in words that say what helps.
//!
//! Never: a word of a server that a shell could read as more than a name.

use reqwest::StatusCode;
use rmcp::transport::auth::WWWAuthenticateParams;

use crate::auth::error::sanitize;
use crate::auth::refresh::AccessToken;

/// So many scopes are named in a message.
const SCOPES_MAX: usize = 10;

/// The command that helps.
pub(crate) fn login_command(server: &str) -> String {
    format!("longhaul mcp login {server}")
}

/// Why a server refused who came with this; none: a login has nothing to do with it.
pub(super) fn rejection_message(
    server: &str,
    status: StatusCode,
    params: &WWWAuthenticateParams,
    pass: &AccessToken,
) -> Option<String> {
    let command = login_command(server);
    if status == StatusCode::FORBIDDEN && !params.is_insufficient_scope() {
        return pass.token.as_ref().map(|_| {
            format!(
                "it knows our login, and does not allow this; \
                 run `{command}` as somebody who may"
            )
        });
    }
    if status == StatusCode::FORBIDDEN {
        let scopes = shell_safe_scopes(params.scope.as_deref().unwrap_or_default());
        return Some(match scopes.is_empty() {
            true => format!("it wants more than its login allows; run `{command}`"),
            false => format!(
                "it wants more than its login allows: {scopes}; \
                 run `{command} --scope \"{scopes}\"`"
            ),
        });
    }
    Some(match (&pass.missing_reason, &pass.token) {
        (Some(over), _) => format!("{over}; run `{command}`"),
        (None, Some(_)) => format!("it takes its login no more; run `{command}`"),
        (None, None) => format!(
            "it wants a login; run `{command}`, or give it an Authorization header in .mcp.json"
        ),
    })
}

/// Scopes that can stand in a command which somebody copies: a server's word is
/// none that a shell should read.
fn shell_safe_scopes(scopes: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || ":._/-".contains(letter);
    let fits =
        |scope: &&str| scope.len() <= 100 && !scope.starts_with('-') && scope.chars().all(plain);
    let scopes: Vec<&str> = scopes.split_whitespace().take(SCOPES_MAX).collect();
    match scopes.iter().all(fits) {
        true => sanitize(&scopes.join(" "), &[]),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_messages_name_the_command_and_quote_untrusted_text() {
        let (unauthorized, forbidden) = (StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN);
        let scoped =
            |scope: &str| format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        let plain = Some("run `longhaul mcp login far`");
        for (status, challenge, token, expect) in [
            (unauthorized, String::new(), None, plain),
            (unauthorized, String::new(), Some("t"), plain),
            (forbidden, String::new(), None, None),
            (
                forbidden,
                String::new(),
                Some("t"),
                Some("run `longhaul mcp login far` as somebody who may"),
            ),
            (
                forbidden,
                scoped("a:b c"),
                Some("t"),
                Some("`longhaul mcp login far --scope \"a:b c\"`"),
            ),
            (forbidden, scoped("$(reboot)"), Some("t"), plain),
            (forbidden, scoped("--json"), Some("t"), plain),
        ] {
            let url = "https://a.example/mcp".parse().unwrap();
            let params = WWWAuthenticateParams::parse(&challenge, &url);
            let pass = AccessToken { token: token.map(str::to_owned), missing_reason: None };
            let said = rejection_message("far", status, &params, &pass);
            match (&said, expect) {
                (Some(said), Some(expect)) => assert!(said.contains(expect), "{said}"),
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => panic!("{said:?} {expect:?}"),
            }
        }
    }
}
