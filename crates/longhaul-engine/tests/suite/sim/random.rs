//! Chance for doubles, drawn from the history's seed by whoever polls them.
//!
//! Never: dice of its own. Without luck every draw is 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// A number that draws eat up. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct RandomSource(Arc<AtomicUsize>);

impl RandomSource {
    /// New luck, for some draws.
    pub(super) fn set(&self, luck: usize) {
        self.0.store(luck, Ordering::Relaxed);
    }

    /// A number below `bound`.
    pub(super) fn below(&self, bound: usize) -> usize {
        let luck = self.0.load(Ordering::Relaxed);
        self.set(luck / bound);
        luck % bound
    }

    /// Waits once or a few times.
    pub(super) async fn yield_some(&self) {
        for _ in 0..=self.below(3) {
            yield_once().await;
        }
    }
}

/// Waits until it is polled again, which it asks for at once.
pub(super) async fn yield_once() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
