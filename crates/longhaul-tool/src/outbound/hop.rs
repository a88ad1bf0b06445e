//! One hop of an outbound request: its URL, headers and body, and the next hop after a redirect.
//!
//! Invariant: URLs have no credentials and are HTTP only, and headers for one server are not sent
//! to another.

use reqwest::Method;
use reqwest::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use url::Url;

use longhaul_core::port::outbound::{OutboundError, OutboundRequest};

/// Maximum length of a URL in bytes.
const URL_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Supported HTTP methods.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// Headers that only the HTTP client itself may set.
const CLIENT_HEADERS: [&str; 13] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
];
/// Headers that are still sent after a redirect to another origin.
const CROSS_ORIGIN_HEADERS: [HeaderName; 3] = [ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE];

/// One request in a chain of redirects.
#[derive(Debug, Clone)]
pub(super) struct RequestHop {
    pub(super) url: Url,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl RequestHop {
    pub(super) fn first(request: &OutboundRequest) -> Result<Self, OutboundError> {
        let url = parse_url(&request.url)?;
        let reject = |reason: &str| forbidden(&url, reason);
        let method = request.method.to_ascii_uppercase();
        if !METHODS.contains(&method.as_str()) {
            return Err(reject("unsupported method"));
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| reject("invalid method"))?;
        if request.headers.len() > HEADERS_MAX {
            return Err(reject("the request has more than 64 headers"));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let name = name.map_err(|_| reject("one of its headers has an invalid name"))?;
            if CLIENT_HEADERS.contains(&name.as_str()) {
                let reason = format!("the header `{name}` is set by the client itself");
                return Err(reject(&reason));
            }
            let Ok(value) = HeaderValue::from_str(value) else {
                return Err(reject(&format!("the header `{name}` has an invalid value")));
            };
            headers.append(name, value);
        }
        Ok(Self { url, method, headers, body: request.body.clone() })
    }

    /// Returns the hop that a response with this status and these headers redirects to. `None` if
    /// the response is not a redirect.
    pub(super) fn next_hop(
        &self,
        status: u16,
        head: &HeaderMap,
    ) -> Result<Option<Self>, OutboundError> {
        let (301..=303 | 307 | 308) = status else {
            return Ok(None);
        };
        let Some(target) = head.get(LOCATION) else {
            return Ok(None);
        };
        let reject = |reason: &str| forbidden(&self.url, reason);
        let target = String::from_utf8_lossy(target.as_bytes());
        let target = self.url.join(&target);
        let target = target.map_err(|_| reject("the redirect target is not a valid URL"))?;
        let url = check_url(target)?;
        if self.url.scheme() == "https" && url.scheme() == "http" {
            return Err(reject("the redirect leads from https to http, which is not encrypted"));
        }
        let mut next = self.clone();
        // As browsers do: a form is not sent again.
        let becomes_get = match status {
            301 | 302 => self.method == Method::POST,
            303 => self.method != Method::HEAD && self.method != Method::GET,
            _ => false,
        };
        if becomes_get {
            next.method = Method::GET;
            next.body.clear();
            next.headers.remove(CONTENT_TYPE);
        }
        if url.host() != self.url.host() && !next.body.is_empty() {
            let reason = "the redirect would forward the request body to another server; send the request there directly";
            return Err(reject(reason));
        }
        if url.origin() != self.url.origin() {
            let old_headers = std::mem::take(&mut next.headers);
            let safe_headers =
                old_headers.iter().filter(|(name, _)| CROSS_ORIGIN_HEADERS.contains(name));
            next.headers.extend(safe_headers.map(|(name, value)| (name.clone(), value.clone())));
        }
        next.url = url;
        Ok(Some(next))
    }
}

/// Parses and checks the URL of an outbound request.
pub(crate) fn parse_url(text: &str) -> Result<Url, OutboundError> {
    let reject =
        |reason: &str| OutboundError::Forbidden { url: "this URL".into(), reason: reason.into() };
    if text.len() > URL_BYTES_MAX {
        return Err(reject("the URL is too long"));
    }
    let url = Url::parse(text.trim());
    let url = url.map_err(|error| reject(&format!("the URL is invalid ({error})")))?;
    check_url(url)
}

fn check_url(mut url: Url) -> Result<Url, OutboundError> {
    if !matches!(url.scheme(), "http" | "https") {
        let reason = "only http:// and https:// are supported";
        return Err(forbidden(&url, reason));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let reason = "the URL must not contain a user name or password; use a header";
        return Err(forbidden(&url, reason));
    }
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(forbidden(&url, "the URL is too long"));
    }
    if url.host_str().unwrap_or_default().trim_matches('.').is_empty() {
        return Err(forbidden(&url, "the URL has no host"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Returns a URL for messages, without path and query, which may be secrets.
pub(crate) fn redacted_url(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

/// Creates the error of a request that the guarded client does not send.
pub(super) fn forbidden(url: &Url, reason: &str) -> OutboundError {
    OutboundError::Forbidden { url: redacted_url(url), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use longhaul_core::port::outbound::NetworkScope;
    use longhaul_core::time::Millis;

    use super::*;

    fn test_request(method: &str, url: &str) -> OutboundRequest {
        OutboundRequest {
            method: method.into(),
            url: url.into(),
            headers: vec![
                ("authorization".into(), "hush".into()),
                ("x-own".into(), "hush".into()),
                ("accept".into(), "text/html".into()),
                ("content-type".into(), "text/plain".into()),
            ],
            body: match method {
                "GET" | "HEAD" => Vec::new(),
                _ => b"words".to_vec(),
            },
            timeout: Millis(1),
            bytes_max: 1,
            network_scope: NetworkScope::Public,
        }
    }

    /// Returns the redirected request as `METHOD url, body BYTES, headers NAME,NAME`.
    fn redirected_request_summary(
        status: u16,
        method: &str,
        (from, to): (&str, &str),
    ) -> Result<String, String> {
        let mut head = HeaderMap::new();
        head.insert(LOCATION, HeaderValue::from_str(to).unwrap());
        let hop = RequestHop::first(&test_request(method, from)).unwrap();
        let next = hop.next_hop(status, &head).map_err(|error| error.to_string())?;
        let Some(next) = next else {
            return Ok("no redirect".into());
        };
        let names: Vec<&str> = next.headers.keys().map(HeaderName::as_str).collect();
        let (method, url, length) = (next.method, next.url, next.body.len());
        Ok(format!("{method} {url}, body {length}, headers {}", names.join(",")))
    }

    #[test]
    fn redirects_change_method_and_body_as_browsers_do() {
        let all_headers = "authorization,x-own,accept,content-type";
        let no_body_headers = "authorization,x-own,accept";
        let request_text = |method: &str, length: usize, names: &str| {
            format!("{method} https://a.example/z, body {length}, headers {names}")
        };
        let check = |status, method, redirect, expected: &str| {
            assert_eq!(
                redirected_request_summary(status, method, redirect).as_deref(),
                Ok(expected),
                "{status} {method}"
            );
        };
        let same_host = ("https://a.example/x/y?q", "../z#part");
        for status in [301, 302, 303, 307, 308] {
            check(status, "GET", same_host, &request_text("GET", 0, all_headers));
            check(status, "HEAD", same_host, &request_text("HEAD", 0, all_headers));
        }
        for status in [301, 302, 303] {
            check(status, "POST", same_host, &request_text("GET", 0, no_body_headers));
        }
        check(303, "PUT", same_host, &request_text("GET", 0, no_body_headers));
        check(301, "PUT", same_host, &request_text("PUT", 5, all_headers));
        for status in [307, 308] {
            check(status, "POST", same_host, &request_text("POST", 5, all_headers));
        }
        for status in [200, 201, 300, 304, 305, 306, 400] {
            check(status, "GET", same_host, "no redirect");
        }
    }

    #[test]
    fn sensitive_headers_are_dropped_for_another_origin() {
        // Another port, another scheme, another host: each is another origin.
        for to in ["https://a.example:444/", "https://b.example/", "//b.a.example/"] {
            let summary =
                redirected_request_summary(302, "GET", ("https://a.example/", to)).unwrap();
            assert!(summary.ends_with(", body 0, headers accept,content-type"), "{summary}");
        }
        let upgrade = ("http://a.example/", "https://a.example/");
        let summary = redirected_request_summary(308, "POST", upgrade).unwrap();
        assert_eq!(summary, "POST https://a.example/, body 5, headers accept,content-type");
    }

    #[test]
    fn redirects_that_are_not_followed_say_why() {
        for (status, method, from, to, expected) in [
            (302, "GET", "https://a.example/", "http://a.example/", "from https to http"),
            (302, "GET", "https://a.example/", "ftp://a.example/", "only http"),
            (302, "GET", "https://a.example/", "file:///etc/passwd", "only http"),
            (302, "GET", "https://a.example/", "https://me:pw@a.example/", "must not contain"),
            (302, "GET", "https://a.example/", "https://", "not a valid URL"),
            (307, "POST", "https://a.example/", "https://b.example/", "another server"),
        ] {
            let error = redirected_request_summary(status, method, (from, to)).unwrap_err();
            assert!(error.contains(expected) && !error.contains("pw"), "{to}: {error}");
        }
    }

    #[test]
    fn forbidden_request_headers_are_rejected() {
        for name in CLIENT_HEADERS {
            let mut request = test_request("GET", "https://a.example/secret?key=hush");
            request.headers = vec![(name.to_uppercase(), "x".into())];
            let error = RequestHop::first(&request).unwrap_err().to_string();
            assert!(
                error.contains(name) && !error.contains("hush") && !error.contains("secret"),
                "{error}"
            );
        }
        for (name, value) in [("a b", "x"), ("", "x"), ("a", "x\r\nhost: y"), ("a\n", "x")] {
            let mut request = test_request("GET", "https://a.example/");
            request.headers = vec![(name.into(), value.into())];
            assert!(RequestHop::first(&request).is_err(), "{name:?} {value:?}");
        }
        for method in ["CONNECT", "TRACE", "GET ", "", "G\r\nX"] {
            assert!(
                RequestHop::first(&test_request(method, "https://a.example/")).is_err(),
                "{method:?}"
            );
        }
    }
}
