//! Open connections of a server. Their number is limited, and connections without a valid key have
//! lower limits, in total and per address.
//!
//! Invariant: only a connection without a valid key is closed to make room for a new connection.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits::ANONYMOUS_PER_ADDRESS_MAX;

/// Maximum numbers of open connections: in total, without a valid key, and without a valid key per
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    total: usize,
    anonymous: usize,
    per_address: usize,
}

impl ConnectionLimits {
    /// Returns the connection limits of this process: at most `max_connections`, and at most
    /// half of the files that the process may open. The other half is for the store, tools and
    /// models.
    pub(crate) fn within_process_file_limit(max_connections: usize) -> Self {
        Self::within_file_limit(max_connections, getrlimit(Resource::Nofile).current)
    }

    fn within_file_limit(max_connections: usize, file_limit: Option<u64>) -> Self {
        let file_limit = file_limit.and_then(|file_limit| usize::try_from(file_limit / 2).ok());
        let total = max_connections.min(file_limit.unwrap_or(max_connections)).max(4);
        Self {
            total,
            anonymous: total / 2,
            per_address: (total / 4).min(ANONYMOUS_PER_ADDRESS_MAX),
        }
    }
}

/// The open connections of a server. Every new connection is anonymous until a request on it has a
/// valid key.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    state: Mutex<ConnectionTable>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    open: usize,
    /// Number of open connections that were told to close but are not closed yet.
    closing: usize,
    next_id: u64,
    /// Connections that have not shown a valid key yet, oldest first.
    anonymous: BTreeMap<u64, AnonymousConnection>,
}

#[derive(Debug)]
struct AnonymousConnection {
    network: IpAddr,
    evicted: CancellationToken,
}

impl ConnectionTable {
    /// Closes the anonymous connection with this id. Does nothing for `None`.
    fn evict_anonymous_connection(&mut self, connection_id: Option<u64>) {
        if let Some(connection) = connection_id.and_then(|id| self.anonymous.remove(&id)) {
            connection.evicted.cancel();
            self.closing += 1;
        }
    }

    fn oldest_anonymous_connection_id(&self) -> Option<u64> {
        self.anonymous.keys().next().copied()
    }
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), closed: Notify::new() })
    }

    /// Waits until one more connection may be opened. At the limit, the oldest anonymous connection
    /// is evicted, unless another connection is being closed already.
    pub(crate) async fn wait_for_connection_slot(&self) {
        loop {
            {
                let mut state = self.lock_connection_table();
                if state.open < self.limits.total {
                    return;
                }
                if state.closing == 0 {
                    let oldest = state.oldest_anonymous_connection_id();
                    state.evict_anonymous_connection(oldest);
                }
            }
            self.closed.notified().await;
        }
    }

    /// Registers a new connection. If the number of anonymous connections of the same network, or
    /// of all networks, has reached its limit, the oldest of them is evicted.
    pub(crate) fn register_connection(self: &Arc<Self>, peer: IpAddr) -> Connection {
        let network = subscriber_network(peer);
        let evicted = CancellationToken::new();
        let mut state = self.lock_connection_table();
        let is_same_network = |connection: &AnonymousConnection| connection.network == network;
        let mut same_network = state.anonymous.iter().filter(|(_, other)| is_same_network(other));
        let oldest_of_network = same_network.next().map(|(id, _)| *id);
        if 1 + same_network.count() >= self.limits.per_address && oldest_of_network.is_some() {
            state.evict_anonymous_connection(oldest_of_network);
        } else if state.anonymous.len() >= self.limits.anonymous {
            let oldest = state.oldest_anonymous_connection_id();
            state.evict_anonymous_connection(oldest);
        }
        let id = state.next_id;
        state.next_id += 1;
        state.open += 1;
        let connection = AnonymousConnection { network, evicted: evicted.clone() };
        state.anonymous.insert(id, connection);
        drop(state);
        Connection { connections: Arc::clone(self), id, evicted }
    }

    fn lock_connection_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open connection. Dropping it removes it from the server's open connections.
#[derive(Debug)]
pub(crate) struct Connection {
    connections: Arc<Connections>,
    id: u64,
    evicted: CancellationToken,
}

impl Connection {
    /// Marks the connection as authenticated: a request on it had a valid key, session or link.
    pub(crate) fn mark_authenticated(&self) {
        self.connections.lock_connection_table().anonymous.remove(&self.id);
    }

    /// Waits until the connection must be closed to make room for a new connection.
    pub(crate) async fn wait_for_eviction(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.connections.lock_connection_table();
        state.anonymous.remove(&self.id);
        state.open -= 1;
        state.closing -= usize::from(self.evicted.is_cancelled());
        drop(state);
        self.connections.closed.notify_one();
    }
}

/// Returns the part of an address that identifies one network subscriber: the whole IPv4 address,
/// or the first 64 bits of an IPv6 address.
pub(crate) fn subscriber_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => {
            let prefix = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCALHOST: &str = "127.0.0.1";

    fn connections_with_limit(total: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits::within_file_limit(total, None))
    }

    fn open_test_connection(connections: &Arc<Connections>, address: &str) -> Connection {
        connections.register_connection(address.parse().unwrap())
    }

    fn is_evicted(connection: &Connection) -> bool {
        connection.evicted.is_cancelled()
    }

    #[test]
    fn connections_use_at_most_half_of_the_file_limit() {
        for (max, files, total) in [
            (8_192, Some(1_024), 512),
            (8_192, Some(1_000_000), 8_192),
            (8_192, None, 8_192),
            (8_192, Some(0), 4),
            (100, Some(1_024), 100),
        ] {
            let limits = ConnectionLimits::within_file_limit(max, files);
            assert_eq!(limits.total, total, "{max} {files:?}");
            assert!(limits.per_address >= 1 && limits.anonymous < limits.total);
        }
    }

    #[test]
    fn the_oldest_anonymous_connection_of_a_network_is_closed() {
        let connections = connections_with_limit(16);
        let authenticated = open_test_connection(&connections, LOCALHOST);
        authenticated.mark_authenticated();
        let other = open_test_connection(&connections, "192.0.2.1");
        let four: Vec<_> = (0..4).map(|_| open_test_connection(&connections, LOCALHOST)).collect();
        assert!(!four.iter().any(is_evicted));
        let fifth = open_test_connection(&connections, LOCALHOST);
        let evicted: Vec<_> = four.iter().map(is_evicted).collect();
        assert_eq!(evicted, [true, false, false, false]);
        assert!(![&authenticated, &other, &fifth].into_iter().any(is_evicted));
    }

    #[test]
    fn the_oldest_anonymous_connection_of_all_is_closed() {
        let connections = connections_with_limit(16);
        let eight: Vec<_> =
            (0..8).map(|n| open_test_connection(&connections, &format!("192.0.2.{n}"))).collect();
        assert!(!eight.iter().any(is_evicted));
        eight[0].mark_authenticated();
        let ninth = open_test_connection(&connections, "192.0.2.9");
        assert!(!eight.iter().any(is_evicted), "one of them is authenticated");
        let _tenth = open_test_connection(&connections, "192.0.2.10");
        assert!(is_evicted(&eight[1]) && !is_evicted(&eight[2]) && !is_evicted(&ninth));
    }

    #[tokio::test]
    async fn a_full_server_waits_for_the_end_of_an_anonymous_connection() {
        let connections = connections_with_limit(4);
        let mut authenticated = Vec::new();
        for _ in 0..3 {
            let connection = open_test_connection(&connections, LOCALHOST);
            connection.mark_authenticated();
            authenticated.push(connection);
        }
        let idle = open_test_connection(&connections, LOCALHOST);
        tokio::join!(connections.wait_for_connection_slot(), async {
            idle.wait_for_eviction().await;
            drop(idle);
        });
        assert!(!authenticated.iter().any(is_evicted));
        authenticated.clear();
        let state = connections.lock_connection_table();
        assert_eq!((state.open, state.closing), (0, 0));
    }

    #[tokio::test]
    async fn a_full_server_closes_one_connection_for_a_new_one() {
        let connections = connections_with_limit(8);
        // Leaves a stored notification, because no task waited for this close.
        drop(open_test_connection(&connections, LOCALHOST));
        let mut authenticated = Vec::new();
        for _ in 0..6 {
            let connection = open_test_connection(&connections, LOCALHOST);
            connection.mark_authenticated();
            authenticated.push(connection);
        }
        let oldest = open_test_connection(&connections, LOCALHOST);
        let idle = open_test_connection(&connections, LOCALHOST);
        tokio::join!(connections.wait_for_connection_slot(), async {
            oldest.wait_for_eviction().await;
            drop(oldest);
        });
        assert!(!is_evicted(&idle));
    }

    #[test]
    fn ipv6_addresses_of_one_subscriber_share_a_network() {
        for (one, other, is_same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            let [left, right] = [one, other].map(|text| subscriber_network(text.parse().unwrap()));
            assert_eq!(left == right, is_same, "{one} {other}");
        }
    }
}
