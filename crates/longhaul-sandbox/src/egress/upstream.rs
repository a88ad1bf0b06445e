//! How the egress proxy reaches hosts: lookups of names, connections and trusted certificates.

use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;

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

/// The network of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemUpstream;

#[async_trait]
impl Upstream for SystemUpstream {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = tokio::net::lookup_host((name, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
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
