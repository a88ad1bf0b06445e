//! What all connections of one egress proxy share: its hosts, secrets, upstream and refusals.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use longhaul_core::net::{NetworkZone, zone};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::egress::hosts::{AllowedAddresses, HostList, Target};
use crate::egress::secrets::Secrets;
use crate::egress::tls::Interception;
use crate::egress::upstream::Upstream;

/// Maximum number of different sentences about refusals that are kept until they are taken.
const REFUSALS_MAX: usize = 32;
/// Maximum number of addresses of one host that are tried.
const ADDRESSES_MAX: usize = 4;

/// Maximum number of request bodies that are held in memory at a time.
const BODIES_MAX: usize = 32;

/// Timeouts of an egress proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressTimeouts {
    /// Maximum time to connect to a host, for all its addresses together, and again for TLS.
    pub connect: Duration,
    /// Maximum time in which a program sends the header of a request or its TLS handshake.
    pub handshake: Duration,
    /// Time without data in either direction after which a connection is closed. At most twice this
    /// time passes until then.
    pub idle: Duration,
}

impl Default for EgressTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(30),
            idle: Duration::from_secs(300),
        }
    }
}

/// Why the proxy does not do what a program asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProxyError {
    /// The sandbox does not allow it.
    #[error("{0}")]
    Refused(String),
    /// The host can't be reached or does not answer.
    #[error("{0}")]
    Failed(String),
    /// The request makes no sense to a proxy.
    #[error("{0}")]
    Invalid(String),
}

impl ProxyError {
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::Refused(_) => StatusCode::FORBIDDEN,
            Self::Failed(_) => StatusCode::BAD_GATEWAY,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// The shared parts of one egress proxy.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) hosts: HostList,
    pub(super) secrets: Secrets,
    pub(super) timeouts: EgressTimeouts,
    /// `None` if there are no secrets.
    pub(super) interception: Option<Interception>,
    upstream: Arc<dyn Upstream>,
    /// Slots of request bodies that are held in memory.
    pub(super) body_slots: Semaphore,
    refusals: Mutex<BTreeSet<String>>,
}

impl Context {
    pub(super) fn new(
        (hosts, secrets): (HostList, Secrets),
        upstream: Arc<dyn Upstream>,
        timeouts: EgressTimeouts,
    ) -> Result<Self, String> {
        let interception = match secrets.is_empty() {
            true => None,
            false => Some(Interception::new(upstream.root_certificates())?),
        };
        let (body_slots, refusals) = (Semaphore::new(BODIES_MAX), Mutex::default());
        Ok(Self { hosts, secrets, timeouts, interception, upstream, body_slots, refusals })
    }

    /// Returns which addresses of this target the proxy may connect to.
    pub(super) fn check(&self, target: &Target) -> Result<AllowedAddresses, ProxyError> {
        self.hosts.access(target).map_err(|reason| {
            let entry = target.list_entry();
            self.refuse(format!(
                "The sandbox refused the connection to `{target}`: {reason}. The owner of the agent \
                 can allow it with `sandbox: {{ network: [\"{entry}\"] }}` in the agent's file."
            ))
        })
    }

    /// Connects to an allowed target at an allowed address.
    pub(super) async fn connect(&self, target: &Target) -> Result<TcpStream, ProxyError> {
        let allowed = self.check(target)?;
        let failed =
            |reason: &dyn std::fmt::Display| format!("can't connect to `{target}`: {reason}");
        let no_answer = format!("no answer within {} s", self.timeouts.connect.as_secs());
        let work = async {
            let addresses = self.addresses(target, allowed).await?;
            let mut last_error = "the host has no address".to_owned();
            let time_per_address = self.timeouts.connect / addresses.len().max(1) as u32;
            for ip in addresses {
                let address = SocketAddr::new(ip, target.port);
                match timeout(time_per_address, self.upstream.connect(address)).await {
                    Ok(Ok(stream)) => {
                        // An error means that the connection has ended, which is seen later.
                        _ = stream.set_nodelay(true);
                        return Ok(stream);
                    }
                    Ok(Err(error)) => last_error = error.to_string(),
                    Err(_) => last_error.clone_from(&no_answer),
                }
            }
            Err(ProxyError::Failed(failed(&last_error)))
        };
        let result = timeout(self.timeouts.connect, work).await;
        result.unwrap_or_else(|_| Err(ProxyError::Failed(failed(&no_answer))))
    }

    /// Returns the allowed addresses of a target. Only names are looked up, and `localhost` is not.
    async fn addresses(
        &self,
        target: &Target,
        allowed: AllowedAddresses,
    ) -> Result<Vec<IpAddr>, ProxyError> {
        if target.is_localhost() {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let mut addresses = match target.address() {
            Some(ip) => vec![ip],
            None => self.upstream.lookup(&target.host.to_string()).await.map_err(|error| {
                let host = &target.host;
                ProxyError::Failed(format!("can't find the address of `{host}`: {error}"))
            })?,
        };
        let count = addresses.len();
        if allowed == AllowedAddresses::Public {
            addresses.retain(|ip| zone(*ip) == NetworkZone::Public);
        }
        if addresses.is_empty() && count > 0 {
            return Err(self.refuse(format!(
                "The sandbox refused the connection to `{target}`: the address of the host is \
                 private or reserved. The owner of the agent can allow the address itself with its \
                 port, such as `sandbox: {{ network: [\"10.0.0.5:{}\"] }}` in the agent's file.",
                target.port
            )));
        }
        addresses.truncate(ADDRESSES_MAX);
        Ok(addresses)
    }

    /// Records a refusal, a sentence for the model, and returns it as an error.
    pub(super) fn refuse(&self, sentence: String) -> ProxyError {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.len() < REFUSALS_MAX {
            refusals.insert(sentence.clone());
        }
        ProxyError::Refused(sentence)
    }

    pub(super) fn take_refusals(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.refusals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
