//! Notifies drivers in this process when a command or another process has changed their runs.
//!
//! A notification is only a hint: the driver reads the journal to see what changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::{RunId, Seq};
use tokio::sync::Notify;

/// Registry of the drivers in this process, with a signal that runs may be ready to be claimed.
/// Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub struct DriverNotifier {
    drivers: Arc<Mutex<HashMap<RunId, Arc<DriverEntry>>>>,
    ready: Arc<Notify>,
}

/// Entry of one driver in the registry.
#[derive(Debug, Default)]
struct DriverEntry {
    changed: Notify,
    /// Sequence number up to which the driver has replayed the journal of its run.
    folded_seq: AtomicU64,
}

impl DriverNotifier {
    fn with_drivers<T>(&self, f: impl FnOnce(&mut HashMap<RunId, Arc<DriverEntry>>) -> T) -> T {
        f(&mut self.drivers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers the driver of a run. Dropping the returned [`DriverRegistration`] removes the
    /// driver.
    pub fn register(&self, run: RunId) -> DriverRegistration {
        let entry = Arc::new(DriverEntry::default());
        self.with_drivers(|drivers| drivers.insert(run, Arc::clone(&entry)));
        DriverRegistration { notifier: self.clone(), run, entry }
    }

    /// Notifies the driver of this run, and signals that this run or another one may be ready to be
    /// claimed.
    pub fn notify_run_changed(&self, run: RunId) {
        let entry = self.with_drivers(|drivers| drivers.get(&run).cloned());
        if let Some(entry) = entry {
            entry.changed.notify_one();
        }
        self.ready.notify_one();
    }

    /// Signals that runs may be ready to be claimed.
    pub fn notify_work_available(&self) {
        self.ready.notify_one();
    }

    /// Waits for the signal that runs may be ready to be claimed.
    pub async fn wait_for_work(&self) {
        self.ready.notified().await;
    }

    /// Notifies every driver that has not replayed its run's journal up to the last entry. `heads`
    /// has the sequence number of the last entry of each journal.
    pub fn notify_outdated_drivers(&self, heads: &[(RunId, Seq)]) {
        self.with_drivers(|drivers| {
            for (run, last) in heads {
                if let Some(entry) = drivers.get(run)
                    && entry.folded_seq.load(Ordering::Acquire) < last.0
                {
                    entry.changed.notify_one();
                }
            }
        });
    }

    /// Whether no driver is registered in this process.
    pub fn has_no_drivers(&self) -> bool {
        self.with_drivers(|drivers| drivers.is_empty())
    }
}

/// Registration of a driver, which is removed when this value is dropped.
#[derive(Debug)]
pub struct DriverRegistration {
    notifier: DriverNotifier,
    run: RunId,
    entry: Arc<DriverEntry>,
}

impl DriverRegistration {
    /// Records that the driver has replayed the journal of its run up to `seq`.
    pub(crate) fn set_replayed_seq(&self, seq: Seq) {
        self.entry.folded_seq.store(seq.0, Ordering::Release);
    }

    /// Waits for the notification that a command or another process has changed the driver's run.
    pub(crate) async fn wait_for_notification(&self) {
        self.entry.changed.notified().await;
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        self.notifier.with_drivers(|drivers| {
            // The next driver of the same run may have registered already.
            if drivers.get(&self.run).is_some_and(|entry| Arc::ptr_eq(entry, &self.entry)) {
                drivers.remove(&self.run);
            }
        });
    }
}
