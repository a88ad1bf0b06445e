//! Checks whom a request thinks it talks to: a page of a stranger that points
//! its own name at this machine is sent away.
//!
//! Never: guesses. A name that is not on the list is wrong.

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::problem::Problem;

/// Names of this machine that need no word.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Lets a request pass that is meant for us.
pub(crate) async fn check_host(State(app): State<App>, request: Request, next: Next) -> Response {
    match validate(&request, &app.options().hosts) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn validate(request: &Request, further: &[String]) -> Result<(), Problem> {
    let mut said = request.headers().get_all(HOST).iter();
    let (Some(only), None) = (said.next(), said.next()) else {
        let words = "a request names its host once, in the `Host` header";
        return Err(Problem::bad_request("bad_host", words));
    };
    let only = only.to_str().unwrap_or_default();
    // A request line may name a host as well: the two must not disagree.
    let line = request.uri().authority().map(|line| line.as_str());
    for said in [Some(only), line].into_iter().flatten() {
        if !is_allowed_host(said, further) {
            let shown: String = said.chars().filter(|c| !c.is_control()).take(80).collect();
            let words = format!("`{shown}` is no name of this server");
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", words)
                .hint("use localhost, or add the name to `[server] hosts`"));
        }
    }
    Ok(())
}

/// Whether an authority, with or without a port, is one of ours.
pub(crate) fn is_allowed_host(authority: &str, further: &[String]) -> bool {
    let Ok(uri) = authority.parse::<Uri>() else {
        return false;
    };
    let Some(parsed) = uri.authority() else {
        return false;
    };
    // `user@host` is nothing that a client of ours would say.
    if parsed.as_str().contains('@') || parsed.as_str() != authority {
        return false;
    }
    let name = parsed.host();
    let own = LOCAL_HOSTS.iter().any(|own| own.eq_ignore_ascii_case(name));
    own || further.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_hosts_are_accepted() {
        let further = ["agents.example.com".to_owned()];
        for (authority, ours) in [
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
            assert_eq!(is_allowed_host(authority, &further), ours, "{authority}");
        }
    }
}
