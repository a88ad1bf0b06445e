//! Peer address and base URL of a request. Both are only as reliable as the socket and the headers
//! that they are read from.

use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName};

/// Remote address of a request's connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// Headers that proxies set. A request with one of these headers does not come directly from this
/// machine.
const FORWARDED_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("via"),
];

/// Prefix of further headers that proxies set; proxies differ in which ones they use.
const FORWARDED_PREFIX: &str = "x-forwarded-";

impl PeerAddress {
    /// Returns whether the request comes directly from a process on this machine.
    pub(crate) fn is_direct_loopback(self, headers: &HeaderMap) -> bool {
        let is_proxy_header = |name: &HeaderName| {
            FORWARDED_HEADERS.contains(name) || name.as_str().starts_with(FORWARDED_PREFIX)
        };
        let is_forwarded = headers.keys().any(is_proxy_header);
        self.0.ip().to_canonical().is_loopback() && !is_forwarded
    }
}

/// Returns the base URL that the caller used. The host in it was checked by the host middleware.
pub(crate) fn request_base_url(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let proxied = headers.get("x-forwarded-proto");
    let scheme = match proxied.is_some_and(|proto| proto == "https") {
        true => "https",
        false => "http",
    };
    format!("{scheme}://{}", host.unwrap_or("localhost"))
}
