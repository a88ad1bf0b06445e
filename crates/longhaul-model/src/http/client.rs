//! Builds the HTTP client for a base URL: TLS certificates and proxy.
//!
//! Invariant: requests to this machine or to a private network never go through a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_core::failure::FailureClass;
use longhaul_core::net;
use reqwest::{Client, Url};
use tower_layer::Layer;
use tower_service::Service;

use crate::http::error::HttpError;

/// Idle time after which a pooled connection is closed. Most servers close idle connections after a
/// minute. If the client closes them first, no request is lost.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Parses the base URL of a server. A URL with credentials or a query is rejected, because base
/// URLs are shown to people.
pub(super) fn parse_base_url(base_url: &str) -> Result<Url, HttpError> {
    let invalid_url_error = |reason: &str| {
        let message = format!("the base URL can't be used: {reason}");
        HttpError::new(FailureClass::InvalidRequest, message)
    };
    let url: Url = base_url.trim().parse().map_err(|_| invalid_url_error("invalid URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid_url_error("only http:// and https:// are supported"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(invalid_url_error("it must not contain a user name, password or query"));
    }
    if url.host().is_none() {
        return Err(invalid_url_error("it has no host"));
    }
    Ok(url)
}

/// Builds an HTTP client that counts the connections it opens.
pub(super) fn build_client(
    base: &Url,
    connect: Duration,
    conn_counter: &ConnectionCounter,
) -> Result<Client, HttpError> {
    // An error means that a provider is already installed.
    _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .tcp_nodelay(true)
        .connect_timeout(connect)
        .connector_layer(conn_counter.clone());
    let client = match net::may_use_proxy(base.host_str().unwrap_or_default()) {
        true => client,
        false => client.no_proxy(),
    };
    let client = match base.scheme() {
        // Without TLS no certificates are needed, and the machine may have none.
        "http" => client.tls_certs_only([]).build(),
        _ => client.build(),
    };
    client.map_err(|error| HttpError::client_setup(&error))
}

/// Counter of the connections that a client has opened, to detect whether a request was sent on a
/// reused connection. Cheap to clone; clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionCounter(Arc<AtomicU64>);

impl ConnectionCounter {
    pub(super) fn total_connections(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<S> Layer<S> for ConnectionCounter {
    type Service = CountingConnector<S>;

    fn layer(&self, inner: S) -> CountingConnector<S> {
        CountingConnector { inner, counter: self.clone() }
    }
}

/// A connector that counts the connections it opens.
#[derive(Debug, Clone)]
pub(super) struct CountingConnector<S> {
    inner: S,
    counter: ConnectionCounter,
}

impl<S: Service<R>, R> Service<R> for CountingConnector<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, destination: R) -> S::Future {
        self.counter.0.fetch_add(1, Ordering::SeqCst);
        self.inner.call(destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_requests_bypass_the_proxy() {
        for (base, is_local) in [
            ("http://localhost:11434", true),
            ("http://a.localhost/", true),
            ("http://127.0.0.2:1/v1", true),
            ("http://[::1]:8000", true),
            ("https://192.168.3.4", true),
            ("http://10.0.0.9:8000", true),
            ("http://[fd00::1]/", true),
            ("https://api.anthropic.com", false),
            ("https://8.8.8.8", false),
            ("https://localhost.example.com", false),
        ] {
            let url = parse_base_url(base).unwrap();
            let may_use_proxy = net::may_use_proxy(url.host_str().unwrap());
            assert_eq!(may_use_proxy, !is_local, "{base}");
        }
    }
}
