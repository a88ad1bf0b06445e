//! How the egress proxy reaches hosts: lookups of names, connections and trusted certificates.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// The network that the egress proxy connects to.
#[async_trait]
pub trait Upstream: Send + Sync + std::fmt::Debug {
    /// Returns all IP addresses of a name.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;

    /// Connects to an address, which has passed the address policy.
    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream>;

    /// Returns the root certificates that the certificates of hosts must be signed by.
    fn root_certificates(&self) -> Vec<CertificateDer<'static>>;
}

/// Maximum number of concurrent lookups for one sandbox. A lookup occupies a thread of the worker
/// even after nobody waits for it any more.
const LOOKUPS_MAX: usize = 8;

/// The network of this machine.
#[derive(Debug)]
pub struct SystemUpstream {
    lookup_slots: Arc<Semaphore>,
}

impl Default for SystemUpstream {
    fn default() -> Self {
        Self { lookup_slots: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

#[async_trait]
impl Upstream for SystemUpstream {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let slot = Arc::clone(&self.lookup_slots).acquire_owned().await;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            let addresses = (name.as_str(), 0).to_socket_addrs();
            drop(slot);
            addresses.map(|addresses| addresses.map(|address| address.ip()).collect())
        });
        lookup.await?
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }

    fn root_certificates(&self) -> Vec<CertificateDer<'static>> {
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::warn!(%error, "can't load a certificate that this machine trusts");
        }
        loaded.certs
    }
}
