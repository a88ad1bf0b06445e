//! The guarded client for all outbound requests of agents, messages and webhooks.
//!
//! Invariant: no proxy is used. Private addresses need permission, responses and durations are
//! limited, and every redirect is checked like the first URL.

pub(crate) mod allowlist;
pub(crate) mod hop;
mod resolver;

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap};
use reqwest::{Client, ClientBuilder, Method};
use tokio::sync::OnceCell;
use url::{Host, Url};

use longhaul_core::duration::format_duration;
use longhaul_core::net::{self, NetworkZone};
use longhaul_core::port::outbound::{
    NetworkScope, OutboundError, OutboundHttpClient, OutboundRequest, OutboundResponse,
};
use longhaul_core::time::{Clock, Millis};

use crate::outbound::allowlist::AllowedAddresses;
use crate::outbound::hop::{RequestHop, forbidden, parse_url, redacted_url};
use crate::outbound::resolver::{FilteringResolver, HostLookupError, SystemDnsResolver};

pub use crate::outbound::allowlist::{Allowlist, AllowlistError};
pub use crate::outbound::resolver::DnsResolver;

/// Maximum duration of a request with all its redirects.
pub const REQUEST_TIMEOUT_MAX: Millis = Millis::from_secs(30);
/// Maximum length of a response body in bytes.
pub const RESPONSE_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Maximum number of redirects followed for one request.
const REDIRECTS_MAX: usize = 5;
/// Timeout for connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The guarded client for outbound requests: it checks every URL and address.
#[derive(Debug, Clone)]
pub struct GuardedHttpClient {
    clients: Arc<HttpClients>,
    allowlist: Allowlist,
    clock: Arc<dyn Clock>,
}

/// The HTTP clients, each built on first use, because loading the machine's certificates takes long
/// and many runs send no request.
#[derive(Debug)]
struct HttpClients {
    resolver: Arc<dyn DnsResolver>,
    /// Clients by whether host names may resolve to private addresses, then by whether TLS is used.
    clients: [[OnceCell<Client>; 2]; 2],
}

impl HttpClients {
    async fn get(&self, allow_private: bool, is_secure: bool) -> Result<&Client, String> {
        let client = &self.clients[usize::from(allow_private)][usize::from(is_secure)];
        // An error is not cached, so the next call tries again.
        let built = client.get_or_try_init(|| async {
            ensure_crypto_provider();
            let names = Arc::clone(&self.resolver);
            let builder = client_builder(FilteringResolver { resolver: names, allow_private });
            match is_secure {
                true => builder.build(),
                // Plain HTTP also works on a machine without certificates.
                false => builder.tls_certs_only([]).build(),
            }
        });
        built.await.map_err(|error| {
            format!(
                "TLS is not available: {}; usually the machine's certificates \
                 are missing: install ca-certificates, or set SSL_CERT_FILE to a certificate file",
                root_cause_message(&error)
            )
        })
    }
}

/// The response of a request after all redirects.
#[derive(Debug)]
pub(crate) struct ResponseAfterRedirects {
    pub(crate) url: Url,
    /// Method of the last request. A redirect may have changed it.
    pub(crate) method: String,
    /// Target of the redirect that was not followed, because the check of the request forbids it.
    pub(crate) unfollowed_redirect: Option<Url>,
    pub(crate) response: OutboundResponse,
}

/// Whether a redirect to a request with this method and URL may be followed.
pub(crate) type RedirectCheck<'a> = &'a (dyn Fn(&str, &Url) -> bool + Sync);

/// The check of requests that no approval rules match.
pub(crate) const FOLLOW_ALL: RedirectCheck<'static> = &|_, _| true;

/// Why a request has no response.
#[derive(Debug)]
pub(crate) struct OutboundSendError {
    pub(crate) error: OutboundError,
    /// Whether the request may have reached a server and taken effect.
    pub(crate) may_have_been_sent: bool,
}

impl GuardedHttpClient {
    /// Creates a guarded client with this allowlist of hosts and ports.
    pub fn new(allowlist: Allowlist, clock: Arc<dyn Clock>) -> Self {
        Self::with_resolver(allowlist, clock, Arc::new(SystemDnsResolver))
    }

    /// Creates a guarded client with this allowlist and another DNS resolver.
    pub fn with_resolver(
        allowlist: Allowlist,
        clock: Arc<dyn Clock>,
        names: Arc<dyn DnsResolver>,
    ) -> Self {
        let clients = Default::default();
        Self { clients: Arc::new(HttpClients { resolver: names, clients }), allowlist, clock }
    }

    /// Sends a request and follows its redirects, as far as `may_follow` allows their methods and
    /// targets.
    pub(crate) async fn send_request(
        &self,
        request: &OutboundRequest,
        may_follow: RedirectCheck<'_>,
    ) -> Result<ResponseAfterRedirects, OutboundSendError> {
        let was_sent = AtomicBool::new(false);
        let timeout = request.timeout.min(REQUEST_TIMEOUT_MAX);
        let deadline = self.clock.sleep(timeout);
        let result = tokio::select! {
            biased;
            result = self.follow_redirects((request, may_follow), &was_sent) => result,
            () = deadline => Err(OutboundError::Failed {
                url: parse_url(&request.url).map_or_else(|_| "the URL".into(), |url| redacted_url(&url)),
                reason: format!("there was no complete response within {}", format_duration(timeout)),
            }),
        };
        result
            .map_err(|error| OutboundSendError { error, may_have_been_sent: was_sent.into_inner() })
    }

    async fn follow_redirects(
        &self,
        (request, may_follow): (&OutboundRequest, RedirectCheck<'_>),
        was_sent: &AtomicBool,
    ) -> Result<ResponseAfterRedirects, OutboundError> {
        let mut hop = RequestHop::first(request)?;
        let first = hop.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let http_response = self.send_hop(&hop, request.network_scope, was_sent).await?;
            let status = http_response.status().as_u16();
            let mut unfollowed_redirect = None;
            if let Some(next) = hop.next_hop(status, http_response.headers())? {
                if may_follow(next.method.as_str(), &next.url) {
                    hop = next;
                    continue;
                }
                unfollowed_redirect = Some(next.url);
            }
            let bytes_max = request.bytes_max.min(RESPONSE_BYTES_MAX);
            let response = read_bounded_response(&hop, http_response, bytes_max).await?;
            return Ok(ResponseAfterRedirects {
                url: hop.url,
                method: hop.method.to_string(),
                unfollowed_redirect,
                response,
            });
        }
        let reason = format!("the request was redirected more than {REDIRECTS_MAX} times");
        Err(failed(&first, reason))
    }

    /// Sends one request of a redirect chain, after checking whether its host is allowed.
    async fn send_hop(
        &self,
        hop: &RequestHop,
        network_scope: NetworkScope,
        was_sent: &AtomicBool,
    ) -> Result<reqwest::Response, OutboundError> {
        let url = &hop.url;
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(forbidden(url, "the URL has no host"));
        };
        let grant =
            self.allowlist.allowed_addresses(&host, port, network_scope == NetworkScope::Private);
        let grant = grant.map_err(|reason| forbidden(url, &reason))?;
        if !is_host_allowed(&host, grant) {
            return Err(forbidden(url, PRIVATE_ADDRESS));
        }
        let allow_private = match grant {
            AllowedAddresses::Public => false,
            AllowedAddresses::Private | AllowedAddresses::Listed => true,
        };
        let client = self.clients.get(allow_private, url.scheme() == "https").await;
        let client = client.map_err(|reason| failed(url, reason))?;
        let request = client
            .request(hop.method.clone(), url.clone())
            .headers(hop.headers.clone())
            .header(ACCEPT_ENCODING, "identity");
        let request = match hop.body.is_empty() {
            true => request,
            false => request.body(hop.body.clone()),
        };
        let was_sent_before = was_sent.swap(true, Ordering::AcqRel);
        request.send().await.map_err(|error| {
            if error.is_connect() {
                // Without a connection this hop reached nobody.
                was_sent.store(was_sent_before, Ordering::Release);
            }
            convert_client_error(url, error)
        })
    }
}

#[async_trait]
impl OutboundHttpClient for GuardedHttpClient {
    async fn send(&self, request: OutboundRequest) -> Result<OutboundResponse, OutboundError> {
        let result = self.send_request(&request, FOLLOW_ALL).await;
        result.map(|final_response| final_response.response).map_err(|error| error.error)
    }
}

/// Why a request to a private address is rejected.
const PRIVATE_ADDRESS: &str = "the address is private or reserved; the owner of the project can allow it \
                      with `allow` under [outbound] in longhaul.toml, such as \
                      allow = [\"127.0.0.1:8080\"], and `longhaul trust`";

/// Installs a TLS crypto provider for this process if none is installed yet.
pub fn ensure_crypto_provider() {
    // An error means that a provider is already installed, which is fine.
    _ = rustls::crypto::ring::default_provider().install_default();
}

fn client_builder(resolver: FilteringResolver) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        // Every request has its own connection, to an address that was just checked.
        .pool_max_idle_per_host(0)
        .dns_resolver(resolver)
}

/// Returns whether a request to this host is allowed. Only IP addresses and `localhost` are checked
/// here; the resolver checks other names.
fn is_host_allowed(host: &Host<&str>, allowed: AllowedAddresses) -> bool {
    let zone = match host {
        Host::Domain(name) => net::host_zone(name).unwrap_or(NetworkZone::Public),
        Host::Ipv4(ip) => net::zone((*ip).into()),
        Host::Ipv6(ip) => net::zone((*ip).into()),
    };
    match zone {
        NetworkZone::Public => true,
        NetworkZone::Loopback | NetworkZone::Private => allowed != AllowedAddresses::Public,
        NetworkZone::Reserved => allowed == AllowedAddresses::Listed,
    }
}

/// Reads a response up to the size limit of response bodies.
async fn read_bounded_response(
    hop: &RequestHop,
    mut response: reqwest::Response,
    bytes_max: u64,
) -> Result<OutboundResponse, OutboundError> {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let has_no_body = hop.method == Method::HEAD || matches!(status, 204 | 304);
    if let (Some(encoding), false) = (content_encoding(&headers), has_no_body) {
        let url = redacted_url(&hop.url);
        return Err(OutboundError::UnexpectedEncoding { url, encoding });
    }
    let too_long = || OutboundError::TooLong { url: redacted_url(&hop.url), bytes_max };
    if !has_no_body && response.content_length().is_some_and(|length| length > bytes_max) {
        return Err(too_long());
    }
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| convert_client_error(&hop.url, error))?
    {
        if (body.len() + chunk.len()) as u64 > bytes_max {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk);
    }
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = headers.iter();
    Ok(OutboundResponse {
        status,
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect(),
        body,
    })
}

/// Returns the content encoding of a response. `None` if the response is not encoded.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let names = values.collect::<Vec<_>>().join(",");
    let mut names = names.split(',').map(str::trim);
    let name = names.find(|name| !name.is_empty() && *name != "identity")?;
    Some(name.chars().take(40).collect())
}

/// Converts an error of the HTTP client into an [`OutboundError`].
fn convert_client_error(url: &Url, error: reqwest::Error) -> OutboundError {
    let error = error.without_url();
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(HostLookupError::PrivateAddress) = cause.downcast_ref::<HostLookupError>() {
            return forbidden(url, PRIVATE_ADDRESS);
        }
        source = cause.source();
    }
    let reason = match (error.is_connect(), error.is_timeout()) {
        (true, true) => "connect timeout after 10 s".to_owned(),
        (true, false) => format!("the connection failed: {}", root_cause_message(&error)),
        (false, _) => root_cause_message(&error),
    };
    failed(url, reason)
}

fn failed(url: &Url, reason: String) -> OutboundError {
    OutboundError::Failed { url: redacted_url(url), reason }
}

/// Returns the message of the innermost error; the outer ones only repeat the context.
fn root_cause_message(error: &dyn std::error::Error) -> String {
    let mut root_cause = error;
    while let Some(source) = root_cause.source() {
        root_cause = source;
    }
    root_cause.to_string().chars().take(300).collect()
}
