//! Checks of every request before its caller is known, and the timeout of its response.
//!
//! The `Host` header protects against DNS rebinding: a request through a foreign domain name that
//! resolves to this machine is rejected. The headers of browsers protect against requests made by
//! pages of other sites (CSRF). There are no CORS headers, so other sites can't read responses either.

use axum::extract::{Request, State};
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::limits::RESPONSE_TIMEOUT;
use crate::problem::Problem;

/// Names of this machine that the `Host` header may always contain.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Middleware that rejects requests whose `Host` header is not a name of this server.
pub(crate) async fn check_host(State(app): State<App>, request: Request, next: Next) -> Response {
    match validate_request_host(&request, &app.state.options.hosts) {
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

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Middleware that rejects requests made by a page of another site.
pub(crate) async fn reject_cross_site_requests(request: Request, next: Next) -> Response {
    let is_link_page = request.uri().path().starts_with("/a/");
    match is_cross_site(request.method(), request.headers(), is_link_page) {
        false => next.run(request).await,
        true => Problem::forbidden("this request comes from a page of another site")
            .with_hint("open Longhaul's own page, or call the API from a program with a key")
            .into_response(),
    }
}

/// Returns whether a page of another site has made the request. If the browser sends no usable
/// header with a form on a link page, the request is let through, because the nonce in the form
/// proves later that the form is from this server.
fn is_cross_site(method: &Method, headers: &HeaderMap, is_link_page: bool) -> bool {
    let header = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = headers.get_all(ORIGIN).iter();
    let host = header(&HOST).unwrap_or_default();
    // Our pages set `Referrer-Policy: no-referrer`, so browsers send `Origin: null` with their
    // forms. `Sec-Fetch-Site` still identifies them, and no page can fake it. Browsers do not
    // send it over plain http to a host other than localhost.
    let own_form = match header(&FETCH_SITE) {
        Some(site) => site == "same-origin",
        None => is_link_page,
    };
    let is_own_origin = |origin: &str| is_same_host(origin, host) || (own_form && origin == "null");
    let is_foreign_origin =
        origin.map(|origin| origin.to_str().unwrap_or("?")).any(|origin| !is_own_origin(origin));
    if is_foreign_origin {
        return true;
    }
    // Following a link from a mail or chat is allowed, because GET changes nothing.
    let is_read = method == Method::GET || method == Method::HEAD;
    let follows_link = is_read && header(&FETCH_MODE) == Some("navigate");
    header(&FETCH_SITE).is_some_and(|site| site == "cross-site" || site == "?") && !follows_link
}

/// Returns whether the host of an `Origin` header is the requested host. The scheme is ignored,
/// because a proxy may terminate TLS.
fn is_same_host(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

/// Middleware that returns 503 if the response does not begin in time. It does not end streams.
pub(crate) async fn limit_time(State(app): State<App>, request: Request, next: Next) -> Response {
    // A command in a sandbox has the timeout of its request.
    let path = request.uri().path();
    let is_exec = path.starts_with("/v1/sandboxes/") && path.ends_with("/exec");
    let clock = &app.longhaul().services().clock;
    tokio::select! {
        biased;
        response = next.run(request) => response,
        () = clock.sleep(RESPONSE_TIMEOUT.into()), if !is_exec => {
            let message = "the request timed out; everything acknowledged before is still stored";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
                .with_hint("try again with the same Idempotency-Key")
                .with_retry_after(1)
                .into_response()
        }
    }
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

    #[test]
    fn cross_site_requests_are_detected() {
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], bool);
        let cases: [Case<'_>; 10] = [
            ("GET", &[], false),
            ("POST", &[("origin", "http://localhost:4180")], false),
            ("POST", &[("origin", "https://LOCALHOST:4180")], false),
            ("POST", &[("origin", "http://localhost:9999")], true),
            ("POST", &[("origin", "http://evil.example")], true),
            ("POST", &[("origin", "null")], true),
            ("GET", &[("sec-fetch-site", "same-origin")], false),
            ("GET", &[("sec-fetch-site", "cross-site")], true),
            ("GET", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], false),
            ("POST", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], true),
        ];
        for (method, header_pairs, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost:4180".parse().unwrap());
            for (name, value) in header_pairs {
                let name: HeaderName = name.parse().unwrap();
                headers.insert(name, value.parse().unwrap());
            }
            let method: Method = method.parse().unwrap();
            assert_eq!(
                is_cross_site(&method, &headers, false),
                expected,
                "{method} {header_pairs:?}"
            );
            let is_null_origin = header_pairs == [("origin", "null")];
            assert_eq!(
                is_cross_site(&method, &headers, true),
                expected && !is_null_origin,
                "{method} {header_pairs:?}"
            );
        }
    }
}
