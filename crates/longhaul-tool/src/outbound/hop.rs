//! One station of a request: where it goes, what it carries, and where the
//! answer sends it next.
//!
//! Never: an address with a name and password in it, another language than HTTP,
//! or what a caller gave for one server told to another.

use reqwest::Method;
use reqwest::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use url::{Host, Url};

use longhaul_core::port::outbound::{OutboundError, Request};

/// The longest address.
const URL_BYTES_MAX: usize = 16 * 1024;
/// The most headers that a caller gives.
const HEADERS_MAX: usize = 64;
/// The methods that are spoken.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// What only the client itself may say.
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
/// What another server may hear too.
const CROSS_ORIGIN_HEADERS: [HeaderName; 3] = [ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE];

/// A request on its way.
#[derive(Debug, Clone)]
pub(super) struct Hop {
    pub(super) url: Url,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Hop {
    /// The first station.
    pub(super) fn first(request: &Request) -> Result<Self, OutboundError> {
        let url = parse_url(&request.url)?;
        let no = |why: &str| forbidden(&url, why);
        let method = request.method.to_ascii_uppercase();
        if !METHODS.contains(&method.as_str()) {
            return Err(no("its method is none of those that are spoken"));
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| no("its method is none"))?;
        if request.headers.len() > HEADERS_MAX {
            return Err(no("it has more than 64 headers"));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let name = name.map_err(|_| no("one of its headers has no proper name"))?;
            if CLIENT_HEADERS.contains(&name.as_str()) {
                let why = format!("the header `{name}` is the client's own to set");
                return Err(no(&why));
            }
            let Ok(value) = HeaderValue::from_str(value) else {
                return Err(no(&format!("the header `{name}` has no proper value")));
            };
            headers.append(name, value);
        }
        Ok(Self { url, method, headers, body: request.body.clone() })
    }

    /// Where an answer with this status and head sends the request; none: it is
    /// the last one.
    pub(super) fn next(
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
        let no = |why: &str| forbidden(&self.url, why);
        let target = String::from_utf8_lossy(target.as_bytes());
        let target = self.url.join(&target);
        let target = target.map_err(|_| no("it leads to something that is no address"))?;
        let url = check_url(target)?;
        if self.url.scheme() == "https" && url.scheme() == "http" {
            return Err(no("it leads from https to http, where anybody can listen"));
        }
        let mut next = self.clone();
        // What browsers do: a form that was sent is not sent again.
        let gets = match status {
            301 | 302 => self.method == Method::POST,
            303 => self.method != Method::HEAD && self.method != Method::GET,
            _ => false,
        };
        if gets {
            next.method = Method::GET;
            next.body.clear();
            next.headers.remove(CONTENT_TYPE);
        }
        if url.host() != self.url.host() && !next.body.is_empty() {
            let why = "it would hand on what was sent to another server; ask that one yourself";
            return Err(no(why));
        }
        if url.origin() != self.url.origin() {
            let known = std::mem::take(&mut next.headers);
            let harmless = known.iter().filter(|(name, _)| CROSS_ORIGIN_HEADERS.contains(name));
            next.headers.extend(harmless.map(|(name, value)| (name.clone(), value.clone())));
        }
        next.url = url;
        Ok(Some(next))
    }
}

/// Reads an address that may be asked.
pub(crate) fn parse_url(text: &str) -> Result<Url, OutboundError> {
    let nameless =
        |why: &str| OutboundError::Forbidden { url: "this address".into(), why: why.into() };
    if text.len() > URL_BYTES_MAX {
        return Err(nameless("it is too long"));
    }
    let url = Url::parse(text.trim());
    let url = url.map_err(|why| nameless(&format!("it is no URL ({why})")))?;
    check_url(url)
}

fn check_url(mut url: Url) -> Result<Url, OutboundError> {
    if !matches!(url.scheme(), "http" | "https") {
        let why = "only http:// and https:// are spoken";
        return Err(forbidden(&url, why));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let why = "a name and a password have no place in an address; use a header";
        return Err(forbidden(&url, why));
    }
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(forbidden(&url, "its address is too long"));
    }
    match url.host() {
        Some(Host::Domain(name)) if name.trim_matches('.').is_empty() => {
            return Err(forbidden(&url, "it names no host"));
        }
        Some(_) => {}
        None => return Err(forbidden(&url, "it names no host")),
    }
    url.set_fragment(None);
    Ok(url)
}

/// What is said of an address: paths and queries may be secrets.
pub(crate) fn redacted_url(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

/// The guard says no.
pub(super) fn forbidden(url: &Url, why: &str) -> OutboundError {
    OutboundError::Forbidden { url: redacted_url(url), why: why.into() }
}

#[cfg(test)]
mod tests {
    use longhaul_core::port::outbound::NetworkScope;
    use longhaul_core::time::Millis;

    use super::*;

    fn request(method: &str, url: &str) -> Request {
        Request {
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

    /// Where a request is sent on to, as `METHOD url body-length header,header`.
    fn next(status: u16, method: &str, (from, to): (&str, &str)) -> Result<String, String> {
        let mut head = HeaderMap::new();
        head.insert(LOCATION, HeaderValue::from_str(to).unwrap());
        let hop = Hop::first(&request(method, from)).unwrap();
        let next = hop.next(status, &head).map_err(|why| why.to_string())?;
        let Some(next) = next else {
            return Ok("the last".into());
        };
        let names: Vec<&str> = next.headers.keys().map(HeaderName::as_str).collect();
        let (method, url, length) = (next.method, next.url, next.body.len());
        Ok(format!("{method} {url} {length} {}", names.join(",")))
    }

    #[test]
    fn redirects_change_method_and_body_as_browsers_do() {
        let all = "authorization,x-own,accept,content-type";
        let check = |status, method, way, expected: &str| {
            assert_eq!(next(status, method, way).as_deref(), Ok(expected), "{status} {method}");
        };
        let near = ("https://a.example/x/y?q", "../z#part");
        for status in [301, 302, 303, 307, 308] {
            check(status, "GET", near, &format!("GET https://a.example/z 0 {all}"));
            check(status, "HEAD", near, &format!("HEAD https://a.example/z 0 {all}"));
        }
        for status in [301, 302, 303] {
            let less = "authorization,x-own,accept";
            check(status, "POST", near, &format!("GET https://a.example/z 0 {less}"));
        }
        check(303, "PUT", near, "GET https://a.example/z 0 authorization,x-own,accept");
        check(301, "PUT", near, &format!("PUT https://a.example/z 5 {all}"));
        for status in [307, 308] {
            check(status, "POST", near, &format!("POST https://a.example/z 5 {all}"));
        }
        for status in [200, 201, 300, 304, 305, 306, 400] {
            check(status, "GET", near, "the last");
        }
    }

    #[test]
    fn sensitive_headers_are_dropped_for_another_origin() {
        // Another port, another scheme, another host: each is another origin.
        for to in ["https://a.example:444/", "https://b.example/", "//b.a.example/"] {
            let said = next(302, "GET", ("https://a.example/", to)).unwrap();
            assert!(said.ends_with(" 0 accept,content-type"), "{said}");
        }
        let up = ("http://a.example/", "https://a.example/");
        let said = next(308, "POST", up).unwrap();
        assert_eq!(said, "POST https://a.example/ 5 accept,content-type");
    }

    #[test]
    fn redirects_that_are_not_followed_say_why() {
        for (status, method, from, to, why) in [
            (302, "GET", "https://a.example/", "http://a.example/", "from https to http"),
            (302, "GET", "https://a.example/", "ftp://a.example/", "only http"),
            (302, "GET", "https://a.example/", "file:///etc/passwd", "only http"),
            (302, "GET", "https://a.example/", "https://me:pw@a.example/", "no place"),
            (302, "GET", "https://a.example/", "https://", "no address"),
            (307, "POST", "https://a.example/", "https://b.example/", "another server"),
        ] {
            let no = next(status, method, (from, to)).unwrap_err();
            assert!(no.contains(why) && !no.contains("pw"), "{to}: {no}");
        }
    }

    #[test]
    fn forbidden_request_headers_are_rejected() {
        for name in CLIENT_HEADERS {
            let mut request = request("GET", "https://a.example/secret?key=hush");
            request.headers = vec![(name.to_uppercase(), "x".into())];
            let no = Hop::first(&request).unwrap_err().to_string();
            assert!(no.contains(name) && !no.contains("hush") && !no.contains("secret"), "{no}");
        }
        for (name, value) in [("a b", "x"), ("", "x"), ("a", "x\r\nhost: y"), ("a\n", "x")] {
            let mut request = request("GET", "https://a.example/");
            request.headers = vec![(name.into(), value.into())];
            assert!(Hop::first(&request).is_err(), "{name:?} {value:?}");
        }
        for method in ["CONNECT", "TRACE", "GET ", "", "G\r\nX"] {
            assert!(Hop::first(&request(method, "https://a.example/")).is_err(), "{method:?}");
        }
    }
}
