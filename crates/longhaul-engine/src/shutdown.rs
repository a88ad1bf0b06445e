//! Two steps of stopping: first nothing new is begun, then what runs is cut off.
//!
//! Never: stops a run for good. A run that is let go of is ready for the next.

use tokio_util::sync::CancellationToken;

/// The order to stop, in its two steps. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    /// Nobody has said anything yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on nothing new is begun.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// What still runs is cut off.
    pub fn abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }

    /// Whether nothing new is to be begun.
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Returns when nothing new is to be begun.
    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    /// Returns when what still runs is to be cut off.
    pub async fn aborting(&self) {
        self.abort.cancelled().await;
    }
}
