//! Tells drivers in this process that others have written to their runs.
//!
//! Never: says what was written. A nudge is a hint; the journal is the truth.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::{RunId, Seq};
use tokio::sync::Notify;

/// Who is driven here, and the bell for new work. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Nudges {
    seats: Arc<Mutex<HashMap<RunId, Arc<Seat>>>>,
    ready: Arc<Notify>,
}

/// The place of one driver.
#[derive(Debug, Default)]
struct Seat {
    bell: Notify,
    /// The last place of the journal that the driver has folded.
    seen: AtomicU64,
}

impl Nudges {
    fn with<T>(&self, use_it: impl FnOnce(&mut HashMap<RunId, Arc<Seat>>) -> T) -> T {
        use_it(&mut self.seats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A driver sits down; it leaves when what is returned is dropped.
    pub fn sit(&self, run: RunId) -> Seated {
        let seat = Arc::new(Seat::default());
        self.with(|seats| seats.insert(run, Arc::clone(&seat)));
        Seated {
            nudges: self.clone(),
            run,
            seat,
        }
    }

    /// Somebody has written to this run; and it, or another, may be ready now.
    pub fn wrote(&self, run: RunId) {
        let seat = self.with(|seats| seats.get(&run).cloned());
        if let Some(seat) = seat {
            seat.bell.notify_one();
        }
        self.ready.notify_one();
    }

    /// Runs may have become ready.
    pub fn may_be_ready(&self) {
        self.ready.notify_one();
    }

    /// Returns when runs may have become ready.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Nudges every driver whose journal is longer than it has seen.
    pub fn compare(&self, heads: &[(RunId, Seq)]) {
        self.with(|seats| {
            for (run, last) in heads {
                if let Some(seat) = seats.get(run)
                    && seat.seen.load(Ordering::Acquire) < last.0
                {
                    seat.bell.notify_one();
                }
            }
        });
    }

    /// Whether anybody is driven here.
    pub fn is_empty(&self) -> bool {
        self.with(|seats| seats.is_empty())
    }
}

/// A driver's place at the table.
#[derive(Debug)]
pub struct Seated {
    nudges: Nudges,
    run: RunId,
    seat: Arc<Seat>,
}

impl Seated {
    /// The driver has folded up to here.
    pub(crate) fn seen(&self, seq: Seq) {
        self.seat.seen.store(seq.0, Ordering::Release);
    }

    /// Returns when somebody has written.
    pub(crate) async fn nudged(&self) {
        self.seat.bell.notified().await;
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.nudges.with(|seats| {
            // A next driver of the same run may sit there already.
            if seats
                .get(&self.run)
                .is_some_and(|seat| Arc::ptr_eq(seat, &self.seat))
            {
                seats.remove(&self.run);
            }
        });
    }
}
