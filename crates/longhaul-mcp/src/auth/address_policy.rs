//! Which addresses a server may send us to when we log in: its own kind, and those
//! that anybody can route to.
//!
//! Never: an address inside the house because a stranger outside named it, but by a
//! name that only this machine's proxy can look up.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::timeout;
use url::Host;

use longhaul_core::net::{Zone, zone};

/// Where a server stands, and how near an address may be that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerZone {
    /// Out there.
    Public,
    /// In the same house.
    Private,
    /// On this machine.
    Loopback,
}

impl ServerZone {
    /// Where this address stands, looked up where it is a name.
    pub(super) async fn from_url(url: &Url) -> Self {
        match url.host() {
            Some(Host::Ipv4(ip)) => Self::from_ip(ip.into()),
            Some(Host::Ipv6(ip)) => Self::from_ip(ip.into()),
            Some(Host::Domain(name)) if is_localhost(name) => Self::Loopback,
            Some(Host::Domain(name)) => {
                let found = tokio::net::lookup_host((name, 0)).await;
                // All of them: one that leads out makes it a server out there.
                let near = found.ok().and_then(|found| {
                    let near = found.map(|address| Self::from_ip(address.ip()));
                    near.min()
                });
                // A name that leads here may lead elsewhere the next time.
                near.unwrap_or(Self::Public).min(Self::Private)
            }
            None => Self::Public,
        }
    }

    fn from_ip(ip: IpAddr) -> Self {
        match zone(ip) {
            Zone::Loopback => Self::Loopback,
            Zone::Private => Self::Private,
            Zone::Public | Zone::Reserved => Self::Public,
        }
    }

    /// Whether an address may be asked.
    fn allows_ip(self, ip: IpAddr) -> bool {
        match zone(ip) {
            Zone::Public => true,
            Zone::Loopback | Zone::Private => self >= Self::from_ip(ip),
            Zone::Reserved => false,
        }
    }

    /// Whether tokens and codes may be sent to this address. The error says why not.
    pub(super) fn check_url(self, url: &Url) -> Result<(), &'static str> {
        let (is_here, may) = match url.host() {
            Some(Host::Ipv4(ip)) => (ip.is_loopback(), self.allows_ip(ip.into())),
            Some(Host::Ipv6(ip)) => (ip.is_loopback(), self.allows_ip(ip.into())),
            Some(Host::Domain(name)) if is_localhost(name) => (true, self == Self::Loopback),
            // What it leads to is looked at when it is asked.
            Some(Host::Domain(_)) => (false, true),
            None => return Err("it names an address without a host"),
        };
        match url.scheme() {
            _ if !may => Err(PRIVATE_ADDRESS),
            "https" => Ok(()),
            "http" if is_here => Ok(()),
            _ => Err("it names an address that is not https://"),
        }
    }
}

/// Whether a name means this machine whoever is asked.
fn is_localhost(name: &str) -> bool {
    let last = name.trim_end_matches('.').rsplit('.').next();
    last.is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

/// Lets only addresses through that may be asked, and the machine's own proxies.
#[derive(Debug, Clone)]
pub(super) struct FilteringResolver {
    zone: ServerZone,
    /// The server's own name, where that makes it one of the house.
    private_host: Option<String>,
    proxies: BTreeSet<String>,
}

impl FilteringResolver {
    /// The one for a server that stands so near.
    pub(super) fn new(server: &Url, near: ServerZone) -> Self {
        let own = match server.host() {
            Some(Host::Domain(name)) if near == ServerZone::Private => Some(normalized_host(name)),
            Some(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_)) | None => None,
        };
        Self { zone: near, private_host: own, proxies: proxy_hosts() }
    }

    /// Whether this machine asks those out there through a proxy.
    pub(super) fn has_proxy(&self) -> bool {
        self.zone == ServerZone::Public && !self.proxies.is_empty()
    }

    /// Whether a name may lead to this address. A server whose name leads into the
    /// house may name others there; so as long as it counts as one of the house, its
    /// own name leads nowhere else. Else a stranger could have a name lead into the
    /// house for as long as it is looked at, and out to themselves after that.
    fn allows(&self, name: &str, ip: IpAddr) -> bool {
        let is_own = self.private_host.as_ref().is_some_and(|own| *own == normalized_host(name));
        self.zone.allows_ip(ip) && (!is_own || matches!(zone(ip), Zone::Loopback | Zone::Private))
    }

    /// Whether a proxy may be asked for this address, as far as that is seen from
    /// here: a name that only the proxy knows is the proxy's to judge.
    pub(super) async fn check_host(&self, url: &Url) -> Result<(), &'static str> {
        let Some(Host::Domain(name)) = url.host() else {
            return Ok(());
        };
        let found = timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((name, 0))).await;
        let Ok(Ok(mut found)) = found else {
            return Ok(());
        };
        match found.all(|address| self.allows(name, address.ip())) {
            true => Ok(()),
            false => Err(PRIVATE_ADDRESS),
        }
    }
}

/// So long a name is looked up that the proxy looks up once more.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

const PRIVATE_ADDRESS: &str = "it names an address that is private or reserved";

/// A name as names are compared.
fn normalized_host(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// The variables in which a machine names its proxies.
const PROXY_VARS: [&str; 6] =
    ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// The hosts of this machine's proxies: they are its owner's word.
fn proxy_hosts() -> BTreeSet<String> {
    let said = PROXY_VARS.iter().filter_map(|name| std::env::var(name).ok());
    let hosts = said.filter_map(|said| {
        let url = said.parse::<Url>().or_else(|_| format!("http://{said}").parse());
        url.ok()?.host_str().map(str::to_ascii_lowercase)
    });
    hosts.collect()
}

/// Why a name leads nowhere.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ResolveError(&'static str);

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let sieve = self.clone();
        let is_proxy = self.proxies.contains(&name.as_str().to_ascii_lowercase());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            let found = found.map_err(|_| ResolveError("nobody knows the name it names"))?;
            let lets = |ip: IpAddr| is_proxy || sieve.allows(name.as_str(), ip);
            let good = found.filter(|address| lets(address.ip()));
            let good: Vec<SocketAddr> = good.collect();
            if good.is_empty() {
                return Err(ResolveError(PRIVATE_ADDRESS).into());
            }
            let good: Addrs = Box::new(good.into_iter());
            Ok(good)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(near: ServerZone, url: &str, expect: bool) {
        let url: Url = url.parse().unwrap();
        assert_eq!(near.check_url(&url).is_ok(), expect, "{near:?} {url}");
    }

    #[test]
    fn a_public_server_can_not_name_private_addresses() {
        for (url, far, house, here) in [
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
            // Where clouds keep their secrets.
            ("https://169.254.169.254/", false, false, false),
            ("file:///etc/passwd", false, false, false),
        ] {
            check(ServerZone::Public, url, far);
            check(ServerZone::Private, url, house);
            check(ServerZone::Loopback, url, here);
        }
    }

    fn resolver(url: &str, near: ServerZone) -> FilteringResolver {
        let proxies = BTreeSet::new();
        FilteringResolver { proxies, ..FilteringResolver::new(&url.parse().unwrap(), near) }
    }

    #[test]
    fn the_name_of_a_private_server_must_resolve_to_a_private_address() {
        let by_name = resolver("https://Wiki.example/mcp", ServerZone::Private);
        let by_ip = resolver("https://10.0.0.9/mcp", ServerZone::Private);
        let far = resolver("https://wiki.example/mcp", ServerZone::Public);
        for (sieve, name, ip, expect) in [
            (&by_name, "wiki.example", "10.0.0.9", true),
            (&by_name, "wiki.example", "8.8.8.8", false),
            (&by_name, "WIKI.example.", "8.8.8.8", false),
            (&by_name, "wiki.example", "127.0.0.1", false),
            // Whom it names may be out there.
            (&by_name, "auth.example", "8.8.8.8", true),
            (&by_name, "auth.example", "10.0.0.8", true),
            (&by_ip, "auth.example", "8.8.8.8", true),
            (&far, "wiki.example", "8.8.8.8", true),
            (&far, "wiki.example", "10.0.0.9", false),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(sieve.allows(name, ip), expect, "{sieve:?} {name} {ip}");
        }
    }

    #[tokio::test]
    async fn a_proxied_name_that_resolves_to_a_private_address_is_rejected() {
        let far = resolver("https://wiki.example/mcp", ServerZone::Public);
        for (url, expect) in [
            ("https://localhost/token", false),
            ("https://nobody-knows.invalid/token", true),
            // What is no name was judged before.
            ("https://8.8.8.8/token", true),
        ] {
            let url: Url = url.parse().unwrap();
            assert_eq!(far.check_host(&url).await.is_ok(), expect, "{url}");
        }
    }

    #[tokio::test]
    async fn the_network_zone_of_a_server_follows_its_address() {
        for (url, near) in [
            ("http://localhost:1/mcp", ServerZone::Loopback),
            ("http://127.0.0.1:1/mcp", ServerZone::Loopback),
            ("https://192.168.1.2/mcp", ServerZone::Private),
            ("https://8.8.8.8/mcp", ServerZone::Public),
            ("https://169.254.169.254/mcp", ServerZone::Public),
        ] {
            assert_eq!(ServerZone::from_url(&url.parse().unwrap()).await, near, "{url}");
        }
    }
}
