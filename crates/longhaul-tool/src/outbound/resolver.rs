//! Who knows the addresses of a name, and the filter between them and the client:
//! the addresses that are let through are the ones that are connected to.
//!
//! Never: asked for a literal address, or asked twice for one connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::net::{Zone, zone};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Somebody who knows the addresses of a name.
#[async_trait]
pub trait Resolver: Send + Sync + std::fmt::Debug {
    /// All addresses of this name.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The names as the machine knows them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Lets only some addresses of a name through.
#[derive(Debug, Clone)]
pub(super) struct FilteringResolver {
    pub(super) resolver: Arc<dyn Resolver>,
    /// Those inside the house too.
    pub(super) allow_private: bool,
}

impl FilteringResolver {
    async fn allowed_addresses(self, name: String) -> Result<Vec<SocketAddr>, ResolveError> {
        let found = self.resolver.lookup(&name).await.map_err(ResolveError::LookupFailed)?;
        let count = found.len();
        let may = |ip: &IpAddr| match zone(*ip) {
            Zone::Public => true,
            Zone::Loopback | Zone::Private => self.allow_private,
            Zone::Reserved => false,
        };
        let good = found.into_iter().filter(may);
        let good: Vec<SocketAddr> = good.map(|ip| SocketAddr::new(ip, 0)).collect();
        match (good.is_empty(), count) {
            (false, _) => Ok(good),
            (true, 0) => Err(ResolveError::NoAddress),
            (true, _) => Err(ResolveError::PrivateAddress),
        }
    }
}

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let looked = self.clone().allowed_addresses(name.as_str().to_owned());
        Box::pin(async move {
            let addresses: Addrs = Box::new(looked.await?.into_iter());
            Ok(addresses)
        })
    }
}

/// A name that leads nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// Nobody knows it.
    #[error("nobody knows this name ({0})")]
    LookupFailed(#[source] io::Error),
    /// It has no address.
    #[error("this name has no address")]
    NoAddress,
    /// All its addresses are private or reserved.
    #[error("its address is private or reserved")]
    PrivateAddress,
}
