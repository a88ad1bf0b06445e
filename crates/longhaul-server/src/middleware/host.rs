//! Checks the `Host` header, which protects against DNS rebinding: a request through a foreign
//! domain name that resolves to this machine is rejected. Only the local host names and the host
//! names in the options are accepted.

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::problem::Problem;

/// Names of this machine that the `Host` header may always contain.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Middleware that rejects requests whose `Host` header is not a name of this server.
pub(crate) async fn reject_unknown_hosts(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    match validate_request_host(&request, &app.options().hosts) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn validate_request_host(request: &Request, extra_hosts: &[String]) -> Result<(), Problem> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        let message = "a request must have exactly one `Host` header";
        return Err(Problem::bad_request("invalid_host", message));
    };
    let host = host.to_str().unwrap_or_default();
    // The request line may contain a host too, and it must be valid as well.
    let line = request.uri().authority().map(|line| line.as_str());
    for hosts in [Some(host), line].into_iter().flatten() {
        if !is_allowed_host(hosts, extra_hosts) {
            let display_host: String = hosts.chars().filter(|c| !c.is_control()).take(80).collect();
            let message = format!("the host `{display_host}` is not a name of this server");
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message)
                .with_hint("use localhost, or add the name to `[server] hosts`"));
        }
    }
    Ok(())
}

/// Returns whether the host in a `Host` header, with or without a port, is a name of this server.
pub(crate) fn is_allowed_host(authority: &str, extra_hosts: &[String]) -> bool {
    let Ok(uri) = authority.parse::<Uri>() else {
        return false;
    };
    let Some(parsed) = uri.authority() else {
        return false;
    };
    // No client of this server sends `user@host`.
    if parsed.as_str().contains('@') || parsed.as_str() != authority {
        return false;
    }
    let name = parsed.host();
    let is_local = LOCAL_HOSTS.iter().any(|host| host.eq_ignore_ascii_case(name));
    is_local || extra_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_hosts_are_accepted() {
        let extra_hosts = ["agents.example.com".to_owned()];
        for (authority, expected) in [
            ("localhost", true),
            ("LOCALHOST:4180", true),
            ("127.0.0.1:4180", true),
            ("[::1]:4180", true),
            ("agents.example.com", true),
            ("Agents.Example.com:443", true),
            ("evil.example.com", false),
            ("localhost.evil.com", false),
            ("127.0.0.1.evil.com:4180", false),
            ("localhost@evil.com", false),
            ("evil.com@localhost", false),
            ("localhost/x", false),
            ("0.0.0.0:4180", false),
            ("", false),
            (" localhost", false),
        ] {
            assert_eq!(is_allowed_host(authority, &extra_hosts), expected, "{authority}");
        }
    }
}
