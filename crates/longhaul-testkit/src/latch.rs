//! A latch for test doubles: a test sees how many tasks wait at it, and opens it. No sleeps are
//! needed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Timeout for a task to arrive at a latch.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A latch that is closed until a test opens it. Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub struct Latch {
    arrivals: Arc<watch::Sender<usize>>,
    open: Arc<watch::Sender<bool>>,
}

impl Latch {
    pub fn closed() -> Self {
        Self {
            arrivals: Arc::new(watch::Sender::new(0)),
            open: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Waits until the latch is open.
    pub async fn wait(&self) {
        self.arrivals.send_modify(|arrived| *arrived += 1);
        // An error is impossible: `self` holds the sender.
        _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Waits until at least `count` tasks have arrived. Panics after a timeout.
    pub async fn reached(&self, count: usize) {
        let mut arrived = self.arrivals.subscribe();
        let reached = arrived.wait_for(|arrived| *arrived >= count);
        let result = tokio::time::timeout(TIMEOUT, reached).await;
        assert!(result.is_ok(), "{} of {count} tasks arrived at a latch", self.arrivals());
    }

    /// Returns how many tasks have arrived so far.
    pub fn arrivals(&self) -> usize {
        *self.arrivals.borrow()
    }

    /// Opens the latch for all waiting and later tasks.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}
