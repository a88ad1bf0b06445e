//! The open connections of a server: limited in number, and those that have not shown
//! a valid key limited further, in total and for each address.
//!
//! Invariant: only a connection without a valid key is closed to make room.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits::ANONYMOUS_PER_ADDRESS_MAX;

/// How many connections may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    total: usize,
    anonymous: usize,
    per_address: usize,
}

impl ConnectionLimits {
    /// The limits of this process: at most `most` connections, and at most half of the
    /// files that it may open. The other half is for the store, tools and models.
    pub(crate) fn for_process(most: usize) -> Self {
        Self::for_files(most, getrlimit(Resource::Nofile).current)
    }

    fn for_files(most: usize, files: Option<u64>) -> Self {
        let files = files.and_then(|files| usize::try_from(files / 2).ok());
        let total = most.min(files.unwrap_or(most)).max(4);
        Self {
            total,
            anonymous: total / 2,
            per_address: (total / 4).min(ANONYMOUS_PER_ADDRESS_MAX),
        }
    }
}

/// The open connections. Every connection begins as an anonymous one.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    state: Mutex<State>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    /// How many of them were evicted and are not closed yet.
    closing: usize,
    next_id: u64,
    /// Connections without a valid key so far, the oldest first.
    anonymous: BTreeMap<u64, Anonymous>,
}

#[derive(Debug)]
struct Anonymous {
    network: IpAddr,
    evicted: CancellationToken,
}

impl State {
    fn evict(&mut self, id: Option<u64>) {
        if let Some(connection) = id.and_then(|id| self.anonymous.remove(&id)) {
            connection.evicted.cancel();
            self.closing += 1;
        }
    }

    fn oldest(&self) -> Option<u64> {
        self.anonymous.keys().next().copied()
    }
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), closed: Notify::new() })
    }

    /// Waits until one more connection may be open. When all are taken, the oldest
    /// anonymous one is closed, unless one is being closed already.
    pub(crate) async fn available(&self) {
        loop {
            {
                let mut state = self.state();
                if state.open < self.limits.total {
                    return;
                }
                if state.closing == 0 {
                    let oldest = state.oldest();
                    state.evict(oldest);
                }
            }
            self.closed.notified().await;
        }
    }

    /// Counts a new connection, and closes the oldest anonymous one of its network, or
    /// of all, where there are too many.
    pub(crate) fn open(self: &Arc<Self>, peer: IpAddr) -> Connection {
        let network = network(peer);
        let evicted = CancellationToken::new();
        let mut state = self.state();
        let own = |connection: &Anonymous| connection.network == network;
        let mut same = state.anonymous.iter().filter(|(_, other)| own(other));
        let oldest_of_network = same.next().map(|(id, _)| *id);
        if 1 + same.count() >= self.limits.per_address && oldest_of_network.is_some() {
            state.evict(oldest_of_network);
        } else if state.anonymous.len() >= self.limits.anonymous {
            let oldest = state.oldest();
            state.evict(oldest);
        }
        let id = state.next_id;
        state.next_id += 1;
        state.open += 1;
        let connection = Anonymous { network, evicted: evicted.clone() };
        state.anonymous.insert(id, connection);
        drop(state);
        Connection { connections: Arc::clone(self), id, evicted }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open connection. It is no longer counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    connections: Arc<Connections>,
    id: u64,
    evicted: CancellationToken,
}

impl Connection {
    /// A request on it has shown a valid key, session or link.
    pub(crate) fn authenticate(&self) {
        self.connections.state().anonymous.remove(&self.id);
    }

    /// Returns when it must be closed to make room.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        state.anonymous.remove(&self.id);
        state.open -= 1;
        state.closing -= usize::from(self.evicted.is_cancelled());
        drop(state);
        self.connections.closed.notify_one();
    }
}

/// The part of an address that one subscriber has: all of IPv4, 64 bits of IPv6.
pub(crate) fn network(address: IpAddr) -> IpAddr {
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

    fn connections(total: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits::for_files(total, None))
    }

    fn open(connections: &Arc<Connections>, from: &str) -> Connection {
        connections.open(from.parse().unwrap())
    }

    fn is_evicted(connection: &Connection) -> bool {
        connection.evicted.is_cancelled()
    }

    #[test]
    fn connections_use_at_most_half_of_the_file_limit() {
        for (most, files, total) in [
            (8_192, Some(1_024), 512),
            (8_192, Some(1_000_000), 8_192),
            (8_192, None, 8_192),
            (8_192, Some(0), 4),
            (100, Some(1_024), 100),
        ] {
            let limits = ConnectionLimits::for_files(most, files);
            assert_eq!(limits.total, total, "{most} {files:?}");
            assert!(limits.per_address >= 1 && limits.anonymous < limits.total);
        }
    }

    #[test]
    fn the_oldest_anonymous_connection_of_a_network_is_closed() {
        let all = connections(16);
        let known = open(&all, LOCALHOST);
        known.authenticate();
        let other = open(&all, "192.0.2.1");
        let four: Vec<_> = (0..4).map(|_| open(&all, LOCALHOST)).collect();
        assert!(!four.iter().any(is_evicted));
        let fifth = open(&all, LOCALHOST);
        let evicted: Vec<_> = four.iter().map(is_evicted).collect();
        assert_eq!(evicted, [true, false, false, false]);
        assert!(![&known, &other, &fifth].into_iter().any(is_evicted));
    }

    #[test]
    fn the_oldest_anonymous_connection_of_all_is_closed() {
        let all = connections(16);
        let eight: Vec<_> = (0..8).map(|n| open(&all, &format!("192.0.2.{n}"))).collect();
        assert!(!eight.iter().any(is_evicted));
        eight[0].authenticate();
        let ninth = open(&all, "192.0.2.9");
        assert!(!eight.iter().any(is_evicted), "one of them is known");
        let _tenth = open(&all, "192.0.2.10");
        assert!(is_evicted(&eight[1]) && !is_evicted(&eight[2]) && !is_evicted(&ninth));
    }

    #[tokio::test]
    async fn a_full_server_waits_for_the_end_of_an_anonymous_connection() {
        let all = connections(4);
        let mut known = Vec::new();
        for _ in 0..3 {
            let connection = open(&all, LOCALHOST);
            connection.authenticate();
            known.push(connection);
        }
        let idle = open(&all, LOCALHOST);
        tokio::join!(all.available(), async {
            idle.evicted().await;
            drop(idle);
        });
        assert!(!known.iter().any(is_evicted));
        known.clear();
        let state = all.state();
        assert_eq!((state.open, state.closing), (0, 0));
    }

    #[tokio::test]
    async fn a_full_server_closes_one_connection_for_a_new_one() {
        let all = connections(8);
        // The end of a connection that nobody has waited for.
        drop(open(&all, LOCALHOST));
        let mut known = Vec::new();
        for _ in 0..6 {
            let connection = open(&all, LOCALHOST);
            connection.authenticate();
            known.push(connection);
        }
        let oldest = open(&all, LOCALHOST);
        let idle = open(&all, LOCALHOST);
        tokio::join!(all.available(), async {
            oldest.evicted().await;
            drop(oldest);
        });
        assert!(!is_evicted(&idle));
    }

    #[test]
    fn an_ipv6_subscriber_is_one_network() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            let [left, right] = [one, other].map(|text| network(text.parse().unwrap()));
            assert_eq!(left == right, same, "{one} {other}");
        }
    }
}
