//! Checks which page a request comes from: no other site may speak for its
//! visitors.
//!
//! Never: an answer that lets another site read. There is no CORS here.

use axum::extract::Request;
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::problem::Problem;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Lets a request pass that no other site has made.
pub(crate) async fn check_origin(request: Request, next: Next) -> Response {
    let links = request.uri().path().starts_with("/a/");
    match is_cross_site(request.method(), request.headers(), links) {
        false => next.run(request).await,
        true => Problem::forbidden("this request comes from another site's page")
            .hint("open Longhaul's own page, or call the API from a program with a key")
            .into_response(),
    }
}

/// Whether another site has made a request. A link's own page is told from a
/// stranger's by the nonce in its form, also where the browser says nothing.
fn is_cross_site(method: &Method, headers: &HeaderMap, links: bool) -> bool {
    let word = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = headers.get_all(ORIGIN).iter();
    let host = word(&HOST).unwrap_or_default();
    // Our pages say `Referrer-Policy: no-referrer`, and a browser then hides the
    // origin of their forms; it still says that they are ours, which no page can.
    // To plain http on a named host it does not even say that.
    let own_form = match word(&FETCH_SITE) {
        Some(site) => site == "same-origin",
        None => links,
    };
    let ours = |origin: &str| is_same_host(origin, host) || (own_form && origin == "null");
    let stranger = origin.map(|origin| origin.to_str().unwrap_or("?")).any(|origin| !ours(origin));
    if stranger {
        return true;
    }
    // A link in a mail or a chat leads here from elsewhere, and only shows.
    let looks = method == Method::GET || method == Method::HEAD;
    let follows_link = looks && word(&FETCH_MODE) == Some("navigate");
    word(&FETCH_SITE).is_some_and(|site| site == "cross-site" || site == "?") && !follows_link
}

/// Whether an origin is the host that the request names. The scheme is left
/// out: a proxy may speak TLS for us.
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
        for (method, said, foreign) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost:4180".parse().unwrap());
            for (name, value) in said {
                let name: HeaderName = name.parse().unwrap();
                headers.insert(name, value.parse().unwrap());
            }
            let method: Method = method.parse().unwrap();
            assert_eq!(is_cross_site(&method, &headers, false), foreign, "{method} {said:?}");
            let hidden = said == [("origin", "null")];
            assert_eq!(
                is_cross_site(&method, &headers, true),
                foreign && !hidden,
                "{method} {said:?}"
            );
        }
    }
}
