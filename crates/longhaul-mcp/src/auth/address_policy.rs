//! The address policy for OAuth logins: which addresses an MCP server may name in its OAuth
//! metadata.
//!
//! Invariant: a public server can't direct requests to a private address. The only exception is a
//! host name that only this machine's proxy can resolve.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::timeout;
use url::Host;

use longhaul_core::net::{NetworkZone, zone};

/// Result of checking an address. The error says why it is not allowed.
pub(super) type AddressCheck = Result<(), &'static str>;

/// Network zone of an MCP server. It decides which addresses the server may name in its OAuth
/// metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerNetworkZone {
    /// The server is on the public internet.
    Public,
    Private,
    /// The server is on this machine.
    Loopback,
}

impl ServerNetworkZone {
    /// Returns the network zone of the server at this URL, resolving its host name.
    pub(super) async fn zone_of_url(url: &Url) -> Self {
        match url.host() {
            Some(Host::Ipv4(ip)) => Self::zone_of_ip(ip.into()),
            Some(Host::Ipv6(ip)) => Self::zone_of_ip(ip.into()),
            Some(Host::Domain(name)) if is_localhost(name) => Self::Loopback,
            Some(Host::Domain(name)) => {
                let addresses = tokio::net::lookup_host((name, 0)).await.into_iter().flatten();
                // All addresses count: one public address makes the server public.
                let zone = addresses.map(|address| Self::zone_of_ip(address.ip())).min();
                // A name that resolves to loopback now may resolve to another address later.
                zone.unwrap_or(Self::Public).min(Self::Private)
            }
            None => Self::Public,
        }
    }

    fn zone_of_ip(ip: IpAddr) -> Self {
        match zone(ip) {
            NetworkZone::Loopback => Self::Loopback,
            NetworkZone::Private => Self::Private,
            NetworkZone::Public | NetworkZone::Reserved => Self::Public,
        }
    }

    /// Returns whether a server in this zone may name this IP address in its OAuth metadata.
    fn allows_ip(self, ip: IpAddr) -> bool {
        match zone(ip) {
            NetworkZone::Public => true,
            NetworkZone::Loopback | NetworkZone::Private => self >= Self::zone_of_ip(ip),
            NetworkZone::Reserved => false,
        }
    }

    /// Checks whether a server in this zone may have tokens and codes sent to this URL. The error
    /// says why not.
    pub(super) fn check_url_allowed(self, url: &Url) -> AddressCheck {
        let (is_loopback, is_allowed) = match url.host() {
            Some(Host::Ipv4(ip)) => (ip.is_loopback(), self.allows_ip(ip.into())),
            Some(Host::Ipv6(ip)) => (ip.is_loopback(), self.allows_ip(ip.into())),
            Some(Host::Domain(name)) if is_localhost(name) => (true, self == Self::Loopback),
            // The addresses of a name are checked when it is resolved.
            Some(Host::Domain(_)) => (false, true),
            None => return Err("an OAuth endpoint has no host"),
        };
        match url.scheme() {
            _ if !is_allowed => Err(PRIVATE_ADDRESS),
            "https" => Ok(()),
            "http" if is_loopback => Ok(()),
            _ => Err("an OAuth endpoint is not https://"),
        }
    }
}

/// Returns whether a host name always means this machine, such as `localhost`.
fn is_localhost(name: &str) -> bool {
    let last = name.trim_end_matches('.').rsplit('.').next();
    last.is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

/// A DNS resolver that returns only addresses that the address policy allows, and those of this
/// machine's proxies.
#[derive(Debug, Clone)]
pub(super) struct OAuthHostResolver {
    zone: ServerNetworkZone,
    /// Host name of the MCP server, if it resolves to a private address. Otherwise `None`.
    private_host: Option<String>,
    proxies: BTreeSet<String>,
}

impl OAuthHostResolver {
    /// Creates the resolver for OAuth requests on behalf of a server in this zone.
    pub(super) fn new(server: &Url, zone: ServerNetworkZone) -> Self {
        let private_host =
            server.domain().filter(|_| zone == ServerNetworkZone::Private).map(normalized_host);
        Self { zone, private_host, proxies: proxy_hosts() }
    }

    /// Returns whether OAuth requests go through a proxy of this machine: the server is public and
    /// a proxy is set.
    pub(super) fn uses_proxy(&self) -> bool {
        self.zone == ServerNetworkZone::Public && !self.proxies.is_empty()
    }

    /// Returns whether a host name may resolve to this address. A server whose name resolves to a
    /// private address may name other private addresses in its OAuth metadata. In return, its own
    /// name must resolve to private addresses only. Otherwise an attacker could point the name to a
    /// private address for the check and to their own server afterwards (DNS rebinding).
    fn allows_address(&self, host_name: &str, ip: IpAddr) -> bool {
        let is_own = self.private_host == Some(normalized_host(host_name));
        let is_private = matches!(zone(ip), NetworkZone::Loopback | NetworkZone::Private);
        self.zone.allows_ip(ip) && (!is_own || is_private)
    }

    /// Checks whether a URL may be requested through a proxy. A host name that only the proxy can
    /// resolve is allowed. The error says why not.
    pub(super) async fn check_proxied_url(&self, url: &Url) -> AddressCheck {
        if let Some(name) = url.domain()
            && let lookup = tokio::net::lookup_host((name, 0))
            && let Ok(Ok(mut addresses)) = timeout(LOOKUP_TIMEOUT, lookup).await
            && !addresses.all(|address| self.allows_address(name, address.ip()))
        {
            return Err(PRIVATE_ADDRESS);
        }
        Ok(())
    }
}

/// Timeout for resolving a host name here before the proxy resolves it again.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

const PRIVATE_ADDRESS: &str = "an address that the server names is private or reserved";

/// Returns a host name in lower case and without a trailing dot, for comparison.
fn normalized_host(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Environment variables that hold the URLs of proxies.
const PROXY_VARS: [&str; 6] =
    ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// Returns the host names of this machine's proxies. They are trusted because the owner of the
/// machine sets them.
fn proxy_hosts() -> BTreeSet<String> {
    let value = PROXY_VARS.iter().filter_map(|name| std::env::var(name).ok());
    let hosts = value.filter_map(|value| {
        let url = value.parse::<Url>().or_else(|_| format!("http://{value}").parse());
        url.ok()?.host_str().map(str::to_ascii_lowercase)
    });
    hosts.collect()
}

impl Resolve for OAuthHostResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        let is_proxy = self.proxies.contains(&name.as_str().to_ascii_lowercase());
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await;
            let addresses = addresses.map_err(|_| "the host was not found")?;
            let is_allowed = |address: &SocketAddr| {
                is_proxy || resolver.allows_address(name.as_str(), address.ip())
            };
            let allowed: Vec<SocketAddr> = addresses.filter(is_allowed).collect();
            match allowed.is_empty() {
                true => Err(PRIVATE_ADDRESS.into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_url_allowed(zone: ServerNetworkZone, url: &str, expected: bool) {
        let url: Url = url.parse().unwrap();
        assert_eq!(zone.check_url_allowed(&url).is_ok(), expected, "{zone:?} {url}");
    }

    #[test]
    fn a_public_server_can_not_refer_to_private_addresses() {
        for (url, public, private, loopback) in [
            ("https://auth.example/x", true, true, true),
            ("http://auth.example/x", false, false, false),
            ("https://8.8.8.8/", true, true, true),
            ("http://8.8.8.8/", false, false, false),
            ("https://10.0.0.9/", false, true, true),
            ("http://10.0.0.9/", false, false, false),
            ("https://127.0.0.1/", false, false, true),
            ("http://127.0.0.1:8080/", false, false, true),
            ("http://[::1]:8080/", false, false, true),
            ("http://localhost:8080/", false, false, true),
            ("http://a.localhost/", false, false, true),
            // Metadata service of cloud providers.
            ("https://169.254.169.254/", false, false, false),
            ("file:///etc/passwd", false, false, false),
        ] {
            assert_url_allowed(ServerNetworkZone::Public, url, public);
            assert_url_allowed(ServerNetworkZone::Private, url, private);
            assert_url_allowed(ServerNetworkZone::Loopback, url, loopback);
        }
    }

    fn resolver(url: &str, zone: ServerNetworkZone) -> OAuthHostResolver {
        let proxies = BTreeSet::new();
        OAuthHostResolver { proxies, ..OAuthHostResolver::new(&url.parse().unwrap(), zone) }
    }

    #[test]
    fn the_name_of_a_private_server_must_resolve_to_a_private_address() {
        let by_name = resolver("https://Wiki.example/mcp", ServerNetworkZone::Private);
        let by_ip = resolver("https://10.0.0.9/mcp", ServerNetworkZone::Private);
        let public = resolver("https://wiki.example/mcp", ServerNetworkZone::Public);
        for (filter, name, ip, expected) in [
            (&by_name, "wiki.example", "10.0.0.9", true),
            (&by_name, "wiki.example", "8.8.8.8", false),
            (&by_name, "WIKI.example.", "8.8.8.8", false),
            (&by_name, "wiki.example", "127.0.0.1", false),
            // Hosts that the server names may be public.
            (&by_name, "auth.example", "8.8.8.8", true),
            (&by_name, "auth.example", "10.0.0.8", true),
            (&by_ip, "auth.example", "8.8.8.8", true),
            (&public, "wiki.example", "8.8.8.8", true),
            (&public, "wiki.example", "10.0.0.9", false),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(filter.allows_address(name, ip), expected, "{filter:?} {name} {ip}");
        }
    }

    #[tokio::test]
    async fn a_proxied_name_that_resolves_to_a_private_address_is_rejected() {
        let public = resolver("https://wiki.example/mcp", ServerNetworkZone::Public);
        for (url, expected) in [
            ("https://localhost/token", false),
            ("https://nobody-knows.invalid/token", true),
            // IP addresses are checked elsewhere.
            ("https://8.8.8.8/token", true),
        ] {
            let url: Url = url.parse().unwrap();
            assert_eq!(public.check_proxied_url(&url).await.is_ok(), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn the_network_zone_of_a_server_follows_its_address() {
        for (url, zone) in [
            ("http://localhost:1/mcp", ServerNetworkZone::Loopback),
            ("http://127.0.0.1:1/mcp", ServerNetworkZone::Loopback),
            ("https://192.168.1.2/mcp", ServerNetworkZone::Private),
            ("https://8.8.8.8/mcp", ServerNetworkZone::Public),
            ("https://169.254.169.254/mcp", ServerNetworkZone::Public),
        ] {
            assert_eq!(ServerNetworkZone::zone_of_url(&url.parse().unwrap()).await, zone, "{url}");
        }
    }
}
