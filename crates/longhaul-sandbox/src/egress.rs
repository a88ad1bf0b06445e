//! The proxy through which programs in a sandbox reach the hosts that they may reach.
//!
//! The proxy speaks HTTP/1.1 and SOCKS5 at a Unix socket. It resolves names itself, connects only to
//! listed hosts at public addresses, and puts secrets in the place of their placeholders in HTTPS
//! requests to the hosts of the secrets. For these requests alone it decrypts TLS, with certificates
//! of an authority whose key exists only in memory.
//!
//! What the proxy can't see: in TLS connections that it does not decrypt, the host of a request may
//! differ from the name in the TLS handshake if one server serves both; and a host that a secret may
//! be sent to can return the secret in the body of a response, which is passed on unchanged.
//! Decrypted connections support HTTP/1.1 without WebSockets.
//!
//! Invariant: a name that is not listed is never resolved, and a secret is sent only through
//! verified TLS to a host of the secret.

mod connection;
mod context;
mod forward;
mod hosts;
mod secrets;
mod socks;
mod tls;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::port::sandbox::{SandboxError, SandboxSecret};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::egress::context::Context;
use crate::egress::secrets::Secrets;

pub use crate::egress::context::EgressTimeouts;
pub use crate::egress::hosts::HostList;
pub use crate::egress::upstream::{SystemUpstream, Upstream};

/// Path in the sandbox of the file with [`EgressProxy::ca_bundle_pem`].
pub const CA_BUNDLE_PATH: &str = "/etc/longhaul/ca-bundle.pem";

/// Maximum number of concurrent connections from one sandbox. Further connections wait.
const CONNECTIONS_MAX: usize = 256;
/// Delay after a failure to accept a connection, such as a lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Environment variables whose value is [`CA_BUNDLE_PATH`].
const CA_VARS: [&str; 7] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
];
/// Hosts that programs connect to without the proxy, because they are in the sandbox itself.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Options of an [`EgressProxy`].
#[derive(Debug, Clone)]
pub struct EgressOptions {
    /// Path of the Unix socket. Its directory must be accessible only to the worker.
    pub socket: PathBuf,
    pub hosts: HostList,
    pub secrets: Vec<SandboxSecret>,
    /// Network that the proxy connects to.
    pub upstream: Arc<dyn Upstream>,
    pub timeouts: EgressTimeouts,
}

impl EgressOptions {
    /// Creates options without secrets, for the network of this machine.
    pub fn new(socket: PathBuf, hosts: HostList) -> Self {
        let upstream = Arc::new(SystemUpstream::default());
        Self { socket, hosts, secrets: Vec::new(), upstream, timeouts: EgressTimeouts::default() }
    }
}

/// The egress proxy of one sandbox. When the value is dropped, the proxy stops, closes all
/// connections and removes its socket.
#[derive(Debug)]
pub struct EgressProxy {
    context: Arc<Context>,
    socket: PathBuf,
    /// The task that accepts connections and owns the tasks that serve them.
    _task: JoinSet<()>,
}

impl EgressProxy {
    /// Starts the proxy in the current Tokio runtime. A socket that exists at the path is replaced.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Refused`] if a secret is invalid, and [`SandboxError::Unavailable`] if the
    /// socket can't be created or the certificates can't be loaded.
    pub fn start(options: EgressOptions) -> Result<Self, SandboxError> {
        let EgressOptions { socket, hosts, secrets, upstream, timeouts } = options;
        let secrets = Secrets::new(secrets).map_err(SandboxError::Refused)?;
        let context = Context::new((hosts, secrets), upstream, timeouts);
        let context = Arc::new(context.map_err(SandboxError::Unavailable)?);
        let listener = bind(&socket).map_err(|error| {
            let path = socket.display();
            SandboxError::Unavailable(format!(
                "can't create the socket `{path}` of the egress proxy: {error}; check that its \
                 folder exists and is writable and that the path has at most 107 bytes"
            ))
        })?;
        let mut task = JoinSet::new();
        task.spawn(accept_connections(listener, Arc::clone(&context)));
        Ok(Self { context, socket, _task: task })
    }

    /// Returns the environment variables of programs in the sandbox, where the proxy is reached at
    /// this port of the loopback interface.
    pub fn env(&self, port: u16) -> BTreeMap<String, String> {
        let http = format!("http://127.0.0.1:{port}");
        let is_inside = |host: &&str| !self.context.hosts.mentions(host);
        let no_proxy: Vec<_> = LOOPBACK_HOSTS.into_iter().filter(is_inside).collect();
        let proxy_vars = [
            ("HTTP_PROXY", http.clone()),
            ("HTTPS_PROXY", http),
            ("ALL_PROXY", format!("socks5h://127.0.0.1:{port}")),
            ("NO_PROXY", no_proxy.join(",")),
        ];
        let mut env = BTreeMap::new();
        for (name, value) in proxy_vars {
            env.insert(name.to_ascii_lowercase(), value.clone());
            env.insert(name.to_owned(), value);
        }
        // Otherwise `fetch` of Node.js does not use a proxy.
        env.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
        if self.context.interception.is_some() {
            env.extend(CA_VARS.map(|name| (name.to_owned(), CA_BUNDLE_PATH.to_owned())));
        }
        env
    }

    /// Returns the certificates that programs in the sandbox must trust: those that this machine
    /// trusts, and that of the proxy. `None` if the proxy has no secrets and decrypts nothing.
    pub fn ca_bundle_pem(&self) -> Option<String> {
        self.context.interception.as_ref().map(|interception| interception.ca_bundle_pem.clone())
    }

    /// Returns what the proxy has refused since the last call, each a sentence for the model.
    /// Bounded.
    pub fn take_refusals(&self) -> BTreeSet<String> {
        self.context.take_refusals()
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        // An error means that the socket is gone already.
        _ = std::fs::remove_file(&self.socket);
    }
}

/// Creates the socket, accessible only to the user of the worker.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    // A socket may be left from a worker that was killed.
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn accept_connections(listener: UnixListener, context: Arc<Context>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let context = Arc::clone(&context);
                connections.spawn(async move {
                    connection::serve(context, stream).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the egress proxy can't accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}
