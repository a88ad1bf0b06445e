//! The lease of a worker on the runs that it has claimed, as the worker itself sees it.
//!
//! A worker whose heartbeats fail stops starting work, such as tool calls, before other workers may
//! claim its runs.

use std::sync::Arc;

use longhaul_core::time::{Clock, Millis};
use tokio::sync::watch;

/// A worker's right to drive the runs that it has claimed, renewed by heartbeats. Cheap to clone;
/// clones share state.
#[derive(Debug, Clone)]
pub struct Lease {
    clock: Arc<dyn Clock>,
    /// How long after its last heartbeat the worker may start new work, such as tool calls.
    valid_for: Millis,
    state: watch::Sender<LeaseState>,
}

#[derive(Debug, Clone, Copy)]
struct LeaseState {
    renewed_nanos: u64,
    lost: bool,
}

impl Lease {
    /// Creates a lease that was just renewed. Other workers may claim this worker's runs after
    /// `ttl`. This worker itself treats the lease as stale after two thirds of `ttl`.
    pub fn new(clock: Arc<dyn Clock>, ttl: Millis) -> Self {
        let state = LeaseState { renewed_nanos: clock.monotonic_nanos(), lost: false };
        Self { clock, valid_for: Millis(ttl.0 / 3 * 2), state: watch::Sender::new(state) }
    }

    /// Renews the lease after a successful heartbeat. The parameter is the time on the monotonic
    /// clock at which the heartbeat was sent.
    pub fn renew(&self, heartbeat_sent_at_nanos: u64) {
        self.state.send_modify(|state| state.renewed_nanos = heartbeat_sent_at_nanos);
    }

    /// Marks the lease as lost: the store treats this worker as dead.
    pub fn mark_lost(&self) {
        self.state.send_modify(|state| state.lost = true);
    }

    pub fn is_lost(&self) -> bool {
        self.state.borrow().lost
    }

    fn is_valid(&self) -> bool {
        let renewed_nanos = self.state.borrow().renewed_nanos;
        let elapsed_ms = self.clock.monotonic_nanos().saturating_sub(renewed_nanos) / 1_000_000;
        elapsed_ms < self.valid_for.0
    }

    /// Waits until the lease was renewed recently enough for the worker to start new work, such as
    /// a tool call. Returns `false` if the lease is lost.
    pub async fn wait_until_valid(&self) -> bool {
        let mut receiver = self.state.subscribe();
        loop {
            if self.is_lost() {
                return false;
            }
            if self.is_valid() {
                return true;
            }
            // The sender lives as long as this lease, so `changed` never fails.
            _ = receiver.changed().await;
        }
    }

    pub async fn wait_until_lost(&self) {
        let mut receiver = self.state.subscribe();
        _ = receiver.wait_for(|state| state.lost).await;
    }
}
