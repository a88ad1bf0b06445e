//! Options of a server. The program that starts the server passes them in; nothing is read from
//! files or the environment here.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use longhaul_engine::secret::Secret;

use crate::limits::{CONNECTIONS_MAX, HEAD_TIMEOUT, WRITE_TIMEOUT};

/// Default value of `ServerOptions::rate`: the maximum number of requests per second with one API
/// key.
pub const DEFAULT_RATE: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Names that the `Host` header may contain, in addition to the loopback names.
    pub hosts: Vec<String>,
    /// Whether callers on this machine need no key, except to answer gates and to create keys.
    pub open_loopback: bool,
    /// Maximum number of requests per second with one API key. The local machine key is not
    /// limited.
    pub rate: NonZeroU32,
    /// Default agent of each inbox, for tasks that name no agent.
    pub inboxes: BTreeMap<String, String>,
    /// API key of the local machine, with all rights.
    pub local_key: Secret,
    /// Timeout for reading a request head, on a new or a kept-alive connection.
    pub head_timeout: Duration,
    /// Timeout for writing to a client that does not read the response.
    pub write_timeout: Duration,
    /// Maximum number of open connections. Half of the process's file limit applies if that is
    /// lower.
    pub connections_max: usize,
    /// Version of this build, shown by `/version` and on pages.
    pub version: String,
}

impl ServerOptions {
    /// Creates the default options: only the holder of `local_key` has access.
    pub fn new(local_key: Secret) -> Self {
        Self {
            hosts: Vec::new(),
            open_loopback: false,
            rate: DEFAULT_RATE,
            inboxes: BTreeMap::new(),
            local_key,
            head_timeout: HEAD_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            connections_max: CONNECTIONS_MAX,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}
