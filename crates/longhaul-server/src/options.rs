//! What whoever starts a server decides about it.
//!
//! Never: read from a file or the environment here. They are handed in.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use longhaul_engine::secret::Secret;

use crate::limits::{CONNECTIONS_MAX, HEAD_TIMEOUT, WRITE_TIMEOUT};

/// So many requests a second a key may make, unless it is said otherwise.
pub const DEFAULT_RATE: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names in the `Host` header beside those of loopback.
    pub hosts: Vec<String>,
    /// Callers on loopback need no key, except to decide and to make keys.
    pub open_loopback: bool,
    /// So many requests a second for each key; the machine's own has no rate.
    pub rate: NonZeroU32,
    /// Who serves tasks that name no agent, by inbox.
    pub inboxes: BTreeMap<String, String>,
    /// The machine's own key.
    pub local_key: Secret,
    /// A head must have come after this time, on a new connection or a kept one.
    pub head_timeout: Duration,
    /// A client that reads nothing for so long is let go of.
    pub write_timeout: Duration,
    /// Maximum of open connections. Half of the process's file limit counts if it is less.
    pub connections_max: usize,
    /// Which build this is.
    pub version: String,
}

impl Options {
    /// A server that nobody but the holder of this key may use.
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
