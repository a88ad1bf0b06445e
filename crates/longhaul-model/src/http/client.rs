//! Makes the client for one address: which certificates it needs, and whether a
//! proxy may stand between.
//!
//! Never: sends what is meant for this machine or this house to a proxy.

use std::sync::Once;
use std::time::Duration;

use longhaul_core::net;
use reqwest::{Client, Url};

use crate::http::conn_counter::ConnCounter;
use crate::http::error::{HttpError, root_cause};

/// A connection that nobody used for so long is closed: most servers close
/// theirs after a minute, and the one who closes first loses no question.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Reads an address; a key or a query in it is refused, because addresses are shown.
pub(super) fn parse_base_url(base: &str) -> Result<Url, HttpError> {
    let bad = |why: &str| HttpError::InvalidBaseUrl(why.to_owned());
    let url: Url = base.trim().parse().map_err(|_| bad("it is no URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("only http:// and https:// are spoken"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(bad("a name, a password or a query has no place in it"));
    }
    if url.host().is_none() {
        return Err(bad("it names no host"));
    }
    Ok(url)
}

/// A client whose connections are counted.
pub(super) fn build(
    base: &Url,
    connect: Duration,
    made: &ConnCounter,
) -> Result<Client, HttpError> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error says that there is one already, which is as good.
        _ = rustls::crypto::ring::default_provider().install_default();
    });
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .tcp_nodelay(true)
        .connect_timeout(connect)
        .connector_layer(made.clone());
    let client = match net::may_use_proxy(base.host_str().unwrap_or_default()) {
        true => client,
        false => client.no_proxy(),
    };
    let client = match base.scheme() {
        // A machine without certificates can still talk without TLS.
        "http" => client.tls_certs_only([]).build(),
        _ => client.build(),
    };
    client.map_err(|error| HttpError::ClientSetup(root_cause(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_requests_bypass_the_proxy() {
        for (base, near) in [
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
            assert_eq!(may_use_proxy, !near, "{base}");
        }
    }
}
