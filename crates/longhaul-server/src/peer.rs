//! What is known of a request before anybody reads it: whence it came, and how it
//! calls us.
//!
//! Never: believed further than a socket can be.

use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName};

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Headers that a proxy sets: whoever came this way is not on this machine.
const FORWARDED_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("via"),
];

/// And all that begin so: proxies differ in which they set.
const FORWARDED_PREFIX: &str = "x-forwarded-";

impl Peer {
    /// Whether a process of this machine asks for itself.
    pub(crate) fn is_local(self, headers: &HeaderMap) -> bool {
        let by_proxy = |name: &HeaderName| {
            FORWARDED_HEADERS.contains(name) || name.as_str().starts_with(FORWARDED_PREFIX)
        };
        let forwarded = headers.keys().any(by_proxy);
        self.0.ip().to_canonical().is_loopback() && !forwarded
    }
}

/// The address that a caller used, which the guard has checked.
pub(crate) fn base_url(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let proxied = headers.get("x-forwarded-proto");
    let scheme = match proxied.is_some_and(|proto| proto == "https") {
        true => "https",
        false => "http",
    };
    format!("{scheme}://{}", host.unwrap_or("localhost"))
}
