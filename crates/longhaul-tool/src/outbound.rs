//! The guarded way out: every request that an agent, a message or a webhook causes.
//!
//! Never: a proxy, an address inside the house that nobody opened, more than was
//! asked for, longer than was said, or a redirect that was not checked like the
//! first address.

pub(crate) mod allowlist;
pub(crate) mod hop;
mod resolver;

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap};
use reqwest::{Client, ClientBuilder, Method};
use url::{Host, Url};

use longhaul_core::net::{self, Zone};
use longhaul_core::port::outbound::{NetworkScope, Outbound, OutboundError, Request, Response};
use longhaul_core::time::{Clock, Millis};

use crate::outbound::allowlist::Grant;
use crate::outbound::hop::{Hop, forbidden, parse_url, redacted_url};
use crate::outbound::resolver::{FilteringResolver, ResolveError, SystemResolver};
use crate::tls::ensure_provider;

pub use crate::outbound::allowlist::{Allowlist, AllowlistError};
pub use crate::outbound::resolver::Resolver;

/// The longest that any request takes, with all its redirects.
pub const REQUEST_TIMEOUT_MAX: Millis = Millis::from_secs(30);
/// The longest answer that is read.
pub const RESPONSE_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// So many redirects are followed.
const REDIRECTS_MAX: usize = 5;
/// A connection that does not come about in this time does not come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The guarded client.
#[derive(Debug, Clone)]
pub struct GuardedClient {
    clients: Arc<Clients>,
    allowlist: Allowlist,
    clock: Arc<dyn Clock>,
}

/// The clients, each made when it is first used: reading the machine's certificates takes
/// longer than a whole run that needs none.
#[derive(Debug)]
struct Clients {
    resolver: Arc<dyn Resolver>,
    /// By whether names may mean private addresses, then by whether TLS is spoken.
    clients: [[OnceLock<Client>; 2]; 2],
}

impl Clients {
    fn client(&self, private: bool, is_secure: bool) -> Result<&Client, String> {
        let made = &self.clients[usize::from(private)][usize::from(is_secure)];
        get_or_try(made, || {
            ensure_provider();
            let names = Arc::clone(&self.resolver);
            let builder = builder(FilteringResolver { resolver: names, allow_private: private });
            let built = match is_secure {
                true => builder.build(),
                // A machine without certificates can still talk without TLS.
                false => builder.tls_certs_only([]).build(),
            };
            built.map_err(|why| {
                format!(
                    "no secure connection can be made here: {}; mostly the machine's certificates \
                     are missing: install ca-certificates, or name a file of them in SSL_CERT_FILE",
                    root_cause(&why)
                )
            })
        })
    }
}

/// What is made once. A failure is not kept: the next call may find what this one lacked.
fn get_or_try<T>(
    made: &OnceLock<T>,
    make: impl FnOnce() -> Result<T, String>,
) -> Result<&T, String> {
    if let Some(made) = made.get() {
        return Ok(made);
    }
    let new = make()?;
    Ok(made.get_or_init(|| new))
}

/// What came of a request, and from where in the end.
#[derive(Debug)]
pub(crate) struct FinalResponse {
    pub(crate) url: Url,
    /// A redirect may have changed it.
    pub(crate) method: String,
    pub(crate) response: Response,
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) error: OutboundError,
    /// Somebody may have heard it, so what it asks for may have happened.
    pub(crate) may_have_been_sent: bool,
}

impl GuardedClient {
    /// The way out through these doors.
    pub fn new(doors: Allowlist, clock: Arc<dyn Clock>) -> Self {
        Self::with_resolver(doors, clock, Arc::new(SystemResolver))
    }

    /// The same with another resolver of names.
    pub fn with_resolver(
        doors: Allowlist,
        clock: Arc<dyn Clock>,
        names: Arc<dyn Resolver>,
    ) -> Self {
        let made = Default::default();
        Self {
            clients: Arc::new(Clients { resolver: names, clients: made }),
            allowlist: doors,
            clock,
        }
    }

    /// Sends a request and says where it ended.
    pub(crate) async fn send_request(&self, request: &Request) -> Result<FinalResponse, SendError> {
        let sent = AtomicBool::new(false);
        let time = request.timeout.min(REQUEST_TIMEOUT_MAX);
        let late = self.clock.sleep(time);
        let landed = tokio::select! {
            biased;
            landed = self.follow_redirects(request, &sent) => landed,
            () = late => Err(OutboundError::Failed {
                url: parse_url(&request.url).map_or_else(|_| "the address".into(), |url| redacted_url(&url)),
                why: format!("no whole answer came in {}", format_duration(time)),
            }),
        };
        landed.map_err(|why| SendError { error: why, may_have_been_sent: sent.into_inner() })
    }

    async fn follow_redirects(
        &self,
        request: &Request,
        sent: &AtomicBool,
    ) -> Result<FinalResponse, OutboundError> {
        let mut hop = Hop::first(request)?;
        let first = hop.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.send_hop(&hop, request.network_scope, sent).await?;
            let status = answer.status().as_u16();
            if let Some(next) = hop.next(status, answer.headers())? {
                hop = next;
                continue;
            }
            let bytes_max = request.bytes_max.min(RESPONSE_BYTES_MAX);
            let response = read_response(&hop, answer, bytes_max).await?;
            return Ok(FinalResponse { url: hop.url, method: hop.method.to_string(), response });
        }
        let why = format!("it was redirected more than {REDIRECTS_MAX} times");
        Err(request_failed(&first, why))
    }

    /// Asks at one station, through the client that the address is open to.
    async fn send_hop(
        &self,
        hop: &Hop,
        reach: NetworkScope,
        sent: &AtomicBool,
    ) -> Result<reqwest::Response, OutboundError> {
        let url = &hop.url;
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(forbidden(url, "it names no host"));
        };
        let pass = self.allowlist.grant(&host, port, reach == NetworkScope::Private);
        let pass = pass.map_err(|why| forbidden(url, &why))?;
        if !is_allowed(&host, pass) {
            return Err(forbidden(url, PRIVATE_ADDRESS));
        }
        let private = match pass {
            Grant::Public => false,
            Grant::Private | Grant::Listed => true,
        };
        let client = self.clients.client(private, url.scheme() == "https");
        let client = client.map_err(|why| request_failed(url, why))?;
        let request = client
            .request(hop.method.clone(), url.clone())
            .headers(hop.headers.clone())
            .header(ACCEPT_ENCODING, "identity");
        let request = match hop.body.is_empty() {
            true => request,
            false => request.body(hop.body.clone()),
        };
        let before = sent.swap(true, Ordering::AcqRel);
        request.send().await.map_err(|why| {
            if why.is_connect() {
                // Without a connection nobody heard it here.
                sent.store(before, Ordering::Release);
            }
            map_error(url, why)
        })
    }
}

#[async_trait]
impl Outbound for GuardedClient {
    async fn send(&self, request: Request) -> Result<Response, OutboundError> {
        let landed = self.send_request(&request).await;
        landed.map(|landed| landed.response).map_err(|lost| lost.error)
    }
}

/// Why an address inside the house is not asked.
const PRIVATE_ADDRESS: &str = "its address is private or reserved; the owner of the project can open it \
                      with `allow` under [outbound] in longhaul.toml, such as \
                      allow = [\"127.0.0.1:8080\"], and `longhaul trust`";

fn builder(sieve: FilteringResolver) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        // Every request has its own connection, to an address that was just checked.
        .pool_max_idle_per_host(0)
        .dns_resolver(sieve)
}

/// Whether a host that is spelled as an address is open; names are for the sieve,
/// but for the one that means this machine whoever is asked.
fn is_allowed(host: &Host<&str>, pass: Grant) -> bool {
    let zone = match host {
        Host::Domain(name) => net::host_zone(name).unwrap_or(Zone::Public),
        Host::Ipv4(ip) => net::zone((*ip).into()),
        Host::Ipv6(ip) => net::zone((*ip).into()),
    };
    match (zone, pass) {
        (_, Grant::Listed) | (Zone::Public, _) => true,
        (Zone::Loopback | Zone::Private, Grant::Private) => true,
        (Zone::Loopback | Zone::Private, Grant::Public) => false,
        (Zone::Reserved, Grant::Public | Grant::Private) => false,
    }
}

/// Reads an answer to its end, or to the bound.
async fn read_response(
    hop: &Hop,
    mut answer: reqwest::Response,
    bytes_max: u64,
) -> Result<Response, OutboundError> {
    let status = answer.status().as_u16();
    let headers = answer.headers().clone();
    let is_bare = hop.method == Method::HEAD || matches!(status, 204 | 304);
    if let (Some(packing), false) = (content_encoding(&headers), is_bare) {
        let url = redacted_url(&hop.url);
        return Err(OutboundError::UnexpectedEncoding { url, encoding: packing });
    }
    let too_long = || OutboundError::TooLong { url: redacted_url(&hop.url), bytes_max };
    if !is_bare && answer.content_length().is_some_and(|length| length > bytes_max) {
        return Err(too_long());
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|why| map_error(&hop.url, why))? {
        if (body.len() + piece.len()) as u64 > bytes_max {
            return Err(too_long());
        }
        body.extend_from_slice(&piece);
    }
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = headers.iter();
    Ok(Response {
        status,
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect(),
        body,
    })
}

/// How an answer is packed, if it is.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let said = headers.get_all(CONTENT_ENCODING).iter();
    let said = said.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let mut said = said.flat_map(|value| {
        let words = value.split(',').map(|word| word.trim().to_ascii_lowercase());
        words.collect::<Vec<_>>()
    });
    said.find(|word| !word.is_empty() && word != "identity")
        .map(|word| word.chars().take(40).collect())
}

/// What the client says of a request that came to nothing.
fn map_error(url: &Url, why: reqwest::Error) -> OutboundError {
    let why = why.without_url();
    let mut deeper = why.source();
    while let Some(found) = deeper {
        if let Some(ResolveError::PrivateAddress) = found.downcast_ref::<ResolveError>() {
            return forbidden(url, PRIVATE_ADDRESS);
        }
        deeper = found.source();
    }
    let what = match (why.is_connect(), why.is_timeout()) {
        (true, true) => "no connection in 10 s".to_owned(),
        (true, false) => format!("no connection: {}", root_cause(&why)),
        (false, _) => root_cause(&why),
    };
    request_failed(url, what)
}

fn request_failed(url: &Url, why: String) -> OutboundError {
    OutboundError::Failed { url: redacted_url(url), why }
}

/// What lies behind an error: the rest only says how deep it came from.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    deepest.to_string().chars().take(300).collect()
}

fn format_duration(time: Millis) -> String {
    match time.0 % 1_000 {
        0 => format!("{} s", time.0 / 1_000),
        _ => format!("{} ms", time.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_client_build_is_retried() {
        let made = OnceLock::new();
        let missing = get_or_try(&made, || Err("no certificates".to_owned()));
        assert_eq!(missing, Err("no certificates".to_owned()));
        assert_eq!(get_or_try(&made, || Ok(1)), Ok(&1));
        assert_eq!(get_or_try(&made, || Ok(2)), Ok(&1));
    }
}
