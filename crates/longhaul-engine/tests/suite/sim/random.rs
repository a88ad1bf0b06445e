//! Random numbers for fakes, drawn from the seed of the simulation. Without a seed every draw is 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// A number from which draws are taken. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub(super) struct RandomSource(Arc<AtomicUsize>);

impl RandomSource {
    /// Sets the number for the next draws.
    pub(super) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Draws a number below `bound`.
    pub(super) fn below(&self, bound: usize) -> usize {
        let value = self.0.load(Ordering::Relaxed);
        self.set(value / bound);
        value % bound
    }

    /// Waits one to three times.
    pub(super) async fn yield_some(&self) {
        for _ in 0..=self.below(3) {
            yield_once().await;
        }
    }
}

/// Returns `Pending` once and wakes the task at once.
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
