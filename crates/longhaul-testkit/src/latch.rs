//! A door that doubles wait at: a test sees who stands before it, and opens it.
//!
//! Never: a sleep. Whoever waits here waits for a fact.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Nobody comes to a door later than this.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A door that is shut until a test opens it. Clones are the same.
#[derive(Debug, Clone)]
pub struct Latch {
    arrivals: Arc<watch::Sender<usize>>,
    open: Arc<watch::Sender<bool>>,
}

impl Latch {
    /// A door that is shut.
    pub fn new() -> Self {
        Self {
            arrivals: Arc::new(watch::Sender::new(0)),
            open: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Stands before the door until it is open.
    pub async fn wait(&self) {
        self.arrivals.send_modify(|came| *came += 1);
        // It holds the sender itself, so that the door can't be gone.
        _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Returns when so many have come to it.
    pub async fn reached(&self, count: usize) {
        let mut came = self.arrivals.subscribe();
        let reached = came.wait_for(|came| *came >= count);
        let waited = tokio::time::timeout(TIMEOUT, reached).await;
        assert!(waited.is_ok(), "{} of {count} came to a door", self.arrivals());
    }

    /// How many have come to it so far.
    pub fn arrivals(&self) -> usize {
        *self.arrivals.borrow()
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}
