//! Rejects requests made by pages of other sites (CSRF protection). There are no CORS headers,
//! so other sites can't read responses either.

use axum::extract::Request;
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::problem::Problem;

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

#[cfg(test)]
mod tests {
    use super::*;

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
