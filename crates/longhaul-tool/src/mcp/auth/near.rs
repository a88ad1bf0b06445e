//! Which addresses a server may send us to when we log in: its own kind, and those
//! that anybody can route to.
//!
//! Never: an address inside the house because a stranger outside named it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use crate::outbound::address::{Kind, kind};

/// Where a server stands, and how near an address may be that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Near {
    /// Out there.
    Far,
    /// In the same house.
    House,
    /// On this machine.
    Here,
}

impl Near {
    /// Where this address stands, looked up where it is a name.
    pub(super) async fn of(url: &Url) -> Self {
        match url.host() {
            Some(Host::Ipv4(ip)) => Self::of_ip(ip.into()),
            Some(Host::Ipv6(ip)) => Self::of_ip(ip.into()),
            Some(Host::Domain(name)) if is_localhost(name) => Self::Here,
            Some(Host::Domain(name)) => {
                let found = tokio::net::lookup_host((name, 0)).await;
                // All of them: one that leads out makes it a server out there.
                let near = found.ok().and_then(|found| {
                    let near = found.map(|address| Self::of_ip(address.ip()));
                    near.min()
                });
                // A name that leads here may lead elsewhere the next time.
                near.unwrap_or(Self::Far).min(Self::House)
            }
            None => Self::Far,
        }
    }

    fn of_ip(ip: IpAddr) -> Self {
        match kind(ip) {
            Kind::Private if ip.is_loopback() => Self::Here,
            Kind::Private => Self::House,
            Kind::Public | Kind::Odd => Self::Far,
        }
    }

    /// Whether an address may be asked.
    fn lets(self, ip: IpAddr) -> bool {
        match kind(ip) {
            Kind::Public => true,
            Kind::Private => self >= Self::of_ip(ip),
            Kind::Odd => false,
        }
    }

    /// Whether tokens and codes may be sent to this address. The error says why not.
    pub(super) fn may(self, url: &Url) -> Result<(), &'static str> {
        let (is_here, may) = match url.host() {
            Some(Host::Ipv4(ip)) => (ip.is_loopback(), self.lets(ip.into())),
            Some(Host::Ipv6(ip)) => (ip.is_loopback(), self.lets(ip.into())),
            Some(Host::Domain(name)) if is_localhost(name) => (true, self == Self::Here),
            // What it leads to is looked at when it is asked.
            Some(Host::Domain(_)) => (false, true),
            None => return Err("it names an address without a host"),
        };
        match url.scheme() {
            _ if !may => Err("it names an address that is private or reserved"),
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
#[derive(Debug)]
pub(super) struct Sieve {
    pub(super) near: Near,
    pub(super) proxies: BTreeSet<String>,
}

/// The variables in which a machine names its proxies.
const PROXIES: [&str; 6] = [
    "https_proxy",
    "HTTPS_PROXY",
    "http_proxy",
    "HTTP_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// The hosts of this machine's proxies: they are its owner's word.
pub(super) fn proxies() -> BTreeSet<String> {
    let said = PROXIES.iter().filter_map(|name| std::env::var(name).ok());
    let hosts = said.filter_map(|said| {
        let url = said
            .parse::<Url>()
            .or_else(|_| format!("http://{said}").parse());
        url.ok()?.host_str().map(str::to_ascii_lowercase)
    });
    hosts.collect()
}

/// Why a name leads nowhere.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Nowhere(&'static str);

impl Resolve for Sieve {
    fn resolve(&self, name: Name) -> Resolving {
        let near = self.near;
        let is_proxy = self.proxies.contains(&name.as_str().to_ascii_lowercase());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            let found = found.map_err(|_| Nowhere("nobody knows the name it names"))?;
            let good = found.filter(|address| is_proxy || near.lets(address.ip()));
            let good: Vec<SocketAddr> = good.collect();
            if good.is_empty() {
                return Err(Nowhere("it names an address that is private or reserved").into());
            }
            let good: Addrs = Box::new(good.into_iter());
            Ok(good)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(near: Near, url: &str, expect: bool) {
        let url: Url = url.parse().unwrap();
        assert_eq!(near.may(&url).is_ok(), expect, "{near:?} {url}");
    }

    #[test]
    fn a_stranger_names_no_address_inside_the_house() {
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
            check(Near::Far, url, far);
            check(Near::House, url, house);
            check(Near::Here, url, here);
        }
    }

    #[tokio::test]
    async fn where_a_server_stands_is_seen_by_its_address() {
        for (url, near) in [
            ("http://localhost:1/mcp", Near::Here),
            ("http://127.0.0.1:1/mcp", Near::Here),
            ("https://192.168.1.2/mcp", Near::House),
            ("https://8.8.8.8/mcp", Near::Far),
            ("https://169.254.169.254/mcp", Near::Far),
        ] {
            assert_eq!(Near::of(&url.parse().unwrap()).await, near, "{url}");
        }
    }
}
