//! DNS resolution with a filter: connections are made only to addresses that passed the filter.
//!
//! Invariant: a host name is resolved once per connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::net::{NetworkZone, zone};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

#[async_trait]
pub trait DnsResolver: Send + Sync + std::fmt::Debug {
    /// Returns all IP addresses of this host name.
    async fn lookup(&self, host_name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The DNS resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SystemDnsResolver;

#[async_trait]
impl DnsResolver for SystemDnsResolver {
    async fn lookup(&self, host_name: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = tokio::net::lookup_host((host_name, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }
}

/// A DNS resolver that returns only allowed addresses.
#[derive(Debug, Clone)]
pub(super) struct FilteringResolver {
    pub(super) resolver: Arc<dyn DnsResolver>,
    /// Whether host names may resolve to private addresses.
    pub(super) allow_private: bool,
}

impl FilteringResolver {
    async fn lookup(self, name: String) -> Result<Vec<SocketAddr>, HostLookupError> {
        let addresses = self.resolver.lookup(&name).await.map_err(HostLookupError::LookupFailed)?;
        let count = addresses.len();
        let is_allowed = |ip: &IpAddr| match zone(*ip) {
            NetworkZone::Public => true,
            NetworkZone::Loopback | NetworkZone::Private => self.allow_private,
            NetworkZone::Reserved => false,
        };
        let allowed = addresses.into_iter().filter(is_allowed);
        let allowed: Vec<SocketAddr> = allowed.map(|ip| SocketAddr::new(ip, 0)).collect();
        match (allowed.is_empty(), count) {
            (false, _) => Ok(allowed),
            (true, 0) => Err(HostLookupError::NoAddress),
            (true, _) => Err(HostLookupError::PrivateAddress),
        }
    }
}

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = self.clone().lookup(name.as_str().to_owned());
        Box::pin(async move {
            let addresses: Addrs = Box::new(lookup.await?.into_iter());
            Ok(addresses)
        })
    }
}

/// Why a host name can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostLookupError {
    /// The DNS lookup of the host failed.
    #[error("the host was not found ({0})")]
    LookupFailed(#[source] io::Error),
    /// The host has no IP address.
    #[error("the host has no address")]
    NoAddress,
    /// All addresses of the host are private or reserved.
    #[error("the address of the host is private or reserved")]
    PrivateAddress,
}
