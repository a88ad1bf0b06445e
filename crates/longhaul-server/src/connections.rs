//! Open connections of a server. Their number is limited, and connections without a valid key have
//! lower limits, in total and per address. At a limit of the server, new connections wait.
//!
//! Invariant: only a connection without a valid key is closed to make room for a new connection,
//! and only after it has had time to send a request.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::time::{Clock, Millis};
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits::{ANONYMOUS_GRACE, ANONYMOUS_GRACE_WHEN_FULL, ANONYMOUS_PER_ADDRESS_MAX};

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
    clock: Arc<dyn Clock>,
    state: Mutex<ConnectionTable>,
    /// Notified when a connection is closed or authenticated.
    changed: Notify,
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
    /// Time at which the connection was accepted, on the monotonic clock.
    since: Millis,
    evicted: CancellationToken,
}

impl ConnectionTable {
    /// Closes the anonymous connection with this id.
    fn evict_anonymous_connection(&mut self, connection_id: u64) {
        if let Some(connection) = self.anonymous.remove(&connection_id) {
            connection.evicted.cancel();
            self.closing += 1;
        }
    }

    /// Closes the oldest anonymous connection of a network if, after the grace, at least
    /// `count_max` connections of the network are anonymous.
    fn evict_oldest_of_network(&mut self, network: IpAddr, count_max: usize, now: Millis) {
        let is_counted = |connection: &AnonymousConnection| {
            connection.network == network
                && now.minus(connection.since) >= Millis::from(ANONYMOUS_GRACE)
        };
        let mut counted = self.anonymous.iter().filter(|(_, other)| is_counted(other));
        if let Some((&oldest, _)) = counted.next()
            && 1 + counted.count() >= count_max
        {
            self.evict_anonymous_connection(oldest);
        }
    }
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { limits, clock, state: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until one more connection may be opened. At a limit, the oldest anonymous connection
    /// is evicted as soon as it has had time to send a request.
    pub(crate) async fn wait_for_connection_slot(&self) {
        while let Some(wait) = self.evict_for_connection_slot() {
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    /// Evicts an anonymous connection if no more connections may be opened. Returns how long to
    /// wait before the next attempt. `None` means that one more connection may be opened.
    fn evict_for_connection_slot(&self) -> Option<Millis> {
        let mut state = self.lock_connection_table();
        let grace = Millis::from(ANONYMOUS_GRACE_WHEN_FULL);
        loop {
            let is_total_reached = state.open >= self.limits.total;
            if !is_total_reached && state.anonymous.len() < self.limits.anonymous {
                return None;
            }
            let oldest = state.anonymous.iter().next();
            let now = self.clock.monotonic_time();
            match oldest.map(|(id, connection)| (*id, now.minus(connection.since))) {
                Some((_, age)) if age < grace => return Some(grace.minus(age)),
                Some((id, _)) if !is_total_reached || state.closing == 0 => {
                    state.evict_anonymous_connection(id);
                }
                // Another connection must be closed first.
                Some(_) | None => return Some(grace),
            }
        }
    }

    /// Registers a new connection. If the number of anonymous connections of the same network has
    /// reached its limit, the oldest of them is evicted.
    pub(crate) fn register_connection(self: &Arc<Self>, peer: IpAddr) -> Connection {
        let network = subscriber_network(peer);
        let evicted = CancellationToken::new();
        let since = self.clock.monotonic_time();
        let mut state = self.lock_connection_table();
        state.evict_oldest_of_network(network, self.limits.per_address, since);
        let id = state.next_id;
        state.next_id += 1;
        state.open += 1;
        let connection = AnonymousConnection { network, since, evicted: evicted.clone() };
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
        if self.connections.lock_connection_table().anonymous.remove(&self.id).is_some() {
            self.connections.changed.notify_one();
        }
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
        self.connections.changed.notify_one();
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
    use async_trait::async_trait;
    use futures_util::FutureExt as _;
    use longhaul_core::time::Timestamp;
    use tokio::sync::watch;

    use super::*;

    /// A clock that moves only when a test moves it. Its value is the time in milliseconds.
    #[derive(Debug, Clone, Default)]
    struct ManualClock(watch::Sender<u64>);

    impl ManualClock {
        fn advance(&self, duration: Millis) {
            self.0.send_modify(|now| *now += duration.0);
        }
    }

    #[async_trait]
    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp::default().plus(Millis(*self.0.borrow()))
        }

        async fn sleep(&self, duration: Millis) {
            let mut now = self.0.subscribe();
            let deadline = *now.borrow() + duration.0;
            // An error means that the sender is dropped, which is impossible while it is borrowed.
            let _ = now.wait_for(|now| *now >= deadline).await;
        }
    }

    const LOCALHOST: &str = "127.0.0.1";

    fn connections_with_limit(total: usize) -> (Arc<Connections>, ManualClock) {
        let limits = ConnectionLimits::within_file_limit(total, None);
        let clock = ManualClock::default();
        (Connections::new(limits, Arc::new(clock.clone())), clock)
    }

    fn open_test_connection(connections: &Arc<Connections>, address: &str) -> Connection {
        connections.register_connection(address.parse().unwrap())
    }

    fn open_authenticated_connection(connections: &Arc<Connections>) -> Connection {
        let connection = open_test_connection(connections, LOCALHOST);
        connection.mark_authenticated();
        connection
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
    fn the_oldest_anonymous_connection_of_a_network_is_closed_after_the_grace() {
        let (connections, clock) = connections_with_limit(32);
        let authenticated = open_authenticated_connection(&connections);
        let other = open_test_connection(&connections, "192.0.2.1");
        let nine: Vec<_> = (0..9).map(|_| open_test_connection(&connections, LOCALHOST)).collect();
        assert!(!nine.iter().any(is_evicted), "they may still send a valid key");
        nine[8].mark_authenticated();
        clock.advance(Millis(1_000));
        let newest = open_test_connection(&connections, LOCALHOST);
        let evicted: Vec<_> = nine.iter().map(is_evicted).collect();
        assert_eq!(evicted, [true, false, false, false, false, false, false, false, false]);
        assert!(![&authenticated, &other, &newest].into_iter().any(is_evicted));
    }

    #[tokio::test]
    async fn new_connections_wait_at_the_limit_of_anonymous_connections() {
        let (connections, clock) = connections_with_limit(16);
        let eight: Vec<_> =
            (0..8).map(|n| open_test_connection(&connections, &format!("192.0.2.{n}"))).collect();
        let mut slot = Box::pin(connections.wait_for_connection_slot());
        assert!(slot.as_mut().now_or_never().is_none());
        assert!(!eight.iter().any(is_evicted), "they may still send a valid key");
        eight[0].mark_authenticated();
        slot.await;
        let _ninth = open_test_connection(&connections, "192.0.2.9");
        let mut slot = Box::pin(connections.wait_for_connection_slot());
        assert!(slot.as_mut().now_or_never().is_none());
        clock.advance(Millis(250));
        slot.await;
        let evicted: Vec<_> = eight.iter().map(is_evicted).collect();
        assert_eq!(evicted, [false, true, false, false, false, false, false, false]);
    }

    #[tokio::test]
    async fn a_full_server_waits_for_the_end_of_an_anonymous_connection() {
        let (connections, clock) = connections_with_limit(4);
        let mut authenticated: Vec<_> =
            (0..3).map(|_| open_authenticated_connection(&connections)).collect();
        let idle = open_test_connection(&connections, LOCALHOST);
        clock.advance(Millis(250));
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
        let (connections, clock) = connections_with_limit(8);
        // Leaves a stored notification, because no task waited for this close.
        drop(open_test_connection(&connections, LOCALHOST));
        let _authenticated: Vec<_> =
            (0..6).map(|_| open_authenticated_connection(&connections)).collect();
        let oldest = open_test_connection(&connections, LOCALHOST);
        let idle = open_test_connection(&connections, LOCALHOST);
        clock.advance(Millis(250));
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
