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
pub struct DriverNotifier {
    drivers: Arc<Mutex<HashMap<RunId, Arc<DriverEntry>>>>,
    ready: Arc<Notify>,
}

/// The place of one driver.
#[derive(Debug, Default)]
struct DriverEntry {
    changed: Notify,
    /// The last place of the journal that the driver has folded.
    folded_seq: AtomicU64,
}

impl DriverNotifier {
    fn with_drivers<T>(
        &self,
        use_it: impl FnOnce(&mut HashMap<RunId, Arc<DriverEntry>>) -> T,
    ) -> T {
        use_it(&mut self.drivers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A driver sits down; it leaves when what is returned is dropped.
    pub fn register(&self, run: RunId) -> DriverRegistration {
        let seat = Arc::new(DriverEntry::default());
        self.with_drivers(|seats| seats.insert(run, Arc::clone(&seat)));
        DriverRegistration { notifier: self.clone(), run, entry: seat }
    }

    /// Somebody has written to this run; and it, or another, may be ready now.
    pub fn run_changed(&self, run: RunId) {
        let seat = self.with_drivers(|seats| seats.get(&run).cloned());
        if let Some(seat) = seat {
            seat.changed.notify_one();
        }
        self.ready.notify_one();
    }

    /// Runs may have become ready.
    pub fn work_available(&self) {
        self.ready.notify_one();
    }

    /// Returns when runs may have become ready.
    pub async fn wait_for_work(&self) {
        self.ready.notified().await;
    }

    /// Nudges every driver whose journal is longer than it has seen.
    pub fn notify_behind(&self, heads: &[(RunId, Seq)]) {
        self.with_drivers(|seats| {
            for (run, last) in heads {
                if let Some(seat) = seats.get(run)
                    && seat.folded_seq.load(Ordering::Acquire) < last.0
                {
                    seat.changed.notify_one();
                }
            }
        });
    }

    /// Whether anybody is driven here.
    pub fn is_empty(&self) -> bool {
        self.with_drivers(|seats| seats.is_empty())
    }
}

/// A driver's place at the table.
#[derive(Debug)]
pub struct DriverRegistration {
    notifier: DriverNotifier,
    run: RunId,
    entry: Arc<DriverEntry>,
}

impl DriverRegistration {
    /// The driver has folded up to here.
    pub(crate) fn set_folded(&self, seq: Seq) {
        self.entry.folded_seq.store(seq.0, Ordering::Release);
    }

    /// Returns when somebody has written.
    pub(crate) async fn notified(&self) {
        self.entry.changed.notified().await;
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        self.notifier.with_drivers(|seats| {
            // A next driver of the same run may sit there already.
            if seats.get(&self.run).is_some_and(|seat| Arc::ptr_eq(seat, &self.entry)) {
                seats.remove(&self.run);
            }
        });
    }
}
