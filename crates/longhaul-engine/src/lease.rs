//! How long a worker may believe that it lives.
//!
//! Never: starts anything. A worker that could not beat stops beginning effects
//! before others may take its runs.

use std::sync::Arc;

use longhaul_core::time::{Clock, Millis};
use tokio::sync::watch;

/// A worker's belief that it lives. Clones are the same.
#[derive(Debug, Clone)]
pub struct Lease {
    clock: Arc<dyn Clock>,
    /// A sign of life that is older says nothing any more.
    valid_for: Millis,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    renewed_nanos: u64,
    lost: bool,
}

impl Lease {
    /// A lease that was just renewed. Others may take the runs after `ttl`; its
    /// own belief ends at two thirds of that.
    pub fn new(clock: Arc<dyn Clock>, ttl: Millis) -> Self {
        let state = State { renewed_nanos: clock.monotonic_nanos(), lost: false };
        Self { clock, valid_for: Millis(ttl.0 / 3 * 2), state: watch::Sender::new(state) }
    }

    /// A sign of life was sent at `nanos` and is known to have arrived.
    pub fn renew(&self, nanos: u64) {
        self.state.send_modify(|state| state.renewed_nanos = nanos);
    }

    /// Others count this worker as dead.
    pub fn mark_lost(&self) {
        self.state.send_modify(|state| state.lost = true);
    }

    /// Whether others count this worker as dead.
    pub fn is_lost(&self) -> bool {
        self.state.borrow().lost
    }

    fn is_valid(&self) -> bool {
        let beat = self.state.borrow().renewed_nanos;
        let silent = self.clock.monotonic_nanos().saturating_sub(beat) / 1_000_000;
        silent < self.valid_for.0
    }

    /// Waits until something may be begun; false: never more.
    pub async fn may_begin(&self) -> bool {
        let mut heard = self.state.subscribe();
        loop {
            if self.is_lost() {
                return false;
            }
            if self.is_valid() {
                return true;
            }
            // The sender lives as long as this lease does.
            _ = heard.changed().await;
        }
    }

    /// Returns when others count this worker as dead.
    pub async fn lost(&self) {
        let mut heard = self.state.subscribe();
        _ = heard.wait_for(|state| state.lost).await;
    }
}
