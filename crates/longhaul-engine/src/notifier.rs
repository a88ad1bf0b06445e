//! Notifies drivers (the async tasks that execute runs) in this process when a command or another
//! process has changed their runs, and workers when runs may be ready to be claimed.
//!
//! A notification is only a hint: the driver reads the journal to see what changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::tool::RunClaimId;
use tokio::sync::{Notify, watch};

use crate::panics::with_lock;

/// Registry of the drivers (the async tasks that execute runs) in this process, with a signal that
/// runs may be ready to be claimed. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub struct DriverNotifier {
    drivers: Arc<Mutex<HashMap<RunId, Arc<DriverEntry>>>>,
    /// The claims under which a driver of this process drives a run, each with the signal that
    /// stops the driver.
    driven_claims: Arc<Mutex<BTreeMap<RunClaimId, Arc<Notify>>>>,
    ready: watch::Sender<()>,
}

/// Registry entry of one driver in this process.
#[derive(Debug, Default)]
struct DriverEntry {
    changed: Notify,
    /// Sequence number up to which the driver has replayed the journal of its run.
    folded_seq: AtomicU64,
}

impl DriverNotifier {
    /// Registers the driver of a run. Dropping the returned [`DriverRegistration`] removes the
    /// driver.
    pub fn register(&self, run: RunId) -> DriverRegistration {
        let entry = Arc::new(DriverEntry::default());
        with_lock(&self.drivers, |drivers| drivers.insert(run, Arc::clone(&entry)));
        DriverRegistration { notifier: self.clone(), run, entry }
    }

    /// Notifies the driver of this run, and signals that this run or another one may be ready to be
    /// claimed.
    pub fn notify_run_changed(&self, run: RunId) {
        let entry = with_lock(&self.drivers, |drivers| drivers.get(&run).cloned());
        if let Some(entry) = entry {
            entry.changed.notify_one();
        }
        self.ready.send_replace(());
    }

    /// Signals that runs may be ready to be claimed.
    pub fn notify_runs_ready(&self) {
        self.ready.send_replace(());
    }

    /// Subscribes to the signal that runs may be ready to be claimed. Every subscriber gets every
    /// signal that is sent from now on.
    pub fn subscribe_to_ready_runs(&self) -> ReadyRunsSubscription {
        ReadyRunsSubscription { _sender: self.ready.clone(), receiver: self.ready.subscribe() }
    }

    /// Registers that a driver of this process drives a run under a claim. Dropping the returned
    /// [`DrivenClaim`] removes the claim.
    pub(crate) fn register_driven_claim(&self, claim: RunClaimId) -> DrivenClaim {
        let stopped = Arc::<Notify>::default();
        with_lock(&self.driven_claims, |claims| claims.insert(claim, Arc::clone(&stopped)));
        DrivenClaim { notifier: self.clone(), claim, stopped }
    }

    /// Returns whether a driver of this process drives a run under this claim.
    pub(crate) fn is_claim_driven(&self, claim: RunClaimId) -> bool {
        with_lock(&self.driven_claims, |claims| claims.contains_key(&claim))
    }

    /// Stops the driver that drives a run under this claim, if it belongs to this process.
    pub(crate) fn stop_driver(&self, claim: RunClaimId) {
        let stopped = with_lock(&self.driven_claims, |claims| claims.get(&claim).cloned());
        if let Some(stopped) = stopped {
            stopped.notify_one();
        }
    }

    /// Notifies every driver that has not replayed its run's journal up to the last entry.
    /// `last_seqs` has the sequence number of the last entry of each run's journal.
    pub fn notify_outdated_drivers(&self, last_seqs: &[(RunId, Seq)]) {
        with_lock(&self.drivers, |drivers| {
            for (run, last) in last_seqs {
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
        with_lock(&self.drivers, |drivers| drivers.is_empty())
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
        with_lock(&self.notifier.drivers, |drivers| {
            // The next driver of the same run may have registered already.
            if drivers.get(&self.run).is_some_and(|entry| Arc::ptr_eq(entry, &self.entry)) {
                drivers.remove(&self.run);
            }
        });
    }
}

/// Subscription of a worker to the signal that runs may be ready to be claimed.
#[derive(Debug)]
pub struct ReadyRunsSubscription {
    /// Sender that is never used: it keeps the watch channel open as long as the subscription
    /// exists.
    _sender: watch::Sender<()>,
    receiver: watch::Receiver<()>,
}

impl ReadyRunsSubscription {
    /// Waits for a signal that was sent since the last call. Several signals count as one.
    pub async fn wait_for_ready_runs(&mut self) {
        // An error is impossible: `self` holds a sender.
        _ = self.receiver.changed().await;
    }
}

/// Registration of a claim under which a driver drives a run, removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct DrivenClaim {
    notifier: DriverNotifier,
    claim: RunClaimId,
    stopped: Arc<Notify>,
}

impl DrivenClaim {
    /// Waits for the signal that the driver has to stop, because its claim was released.
    pub(crate) async fn wait_for_stop(&self) {
        self.stopped.notified().await;
    }
}

impl Drop for DrivenClaim {
    fn drop(&mut self) {
        with_lock(&self.notifier.driven_claims, |claims| claims.remove(&self.claim));
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{Epoch, RunId};

    use super::*;

    #[tokio::test]
    async fn every_worker_gets_the_signal_that_runs_are_ready() {
        let notifier = DriverNotifier::default();
        let mut workers = [notifier.subscribe_to_ready_runs(), notifier.subscribe_to_ready_runs()];
        notifier.notify_runs_ready();
        for worker in &mut workers {
            worker.wait_for_ready_runs().await;
        }
    }

    #[tokio::test]
    async fn a_stopped_driver_does_not_affect_the_next_claim_of_its_run() {
        let notifier = DriverNotifier::default();
        let claim = |epoch| RunClaimId { run: RunId::from_bits(1), epoch: Epoch(epoch) };
        let old = notifier.register_driven_claim(claim(1));
        notifier.stop_driver(claim(1));
        let _new = notifier.register_driven_claim(claim(2));
        old.wait_for_stop().await;
        drop(old);
        assert!(!notifier.is_claim_driven(claim(1)));
        assert!(notifier.is_claim_driven(claim(2)));
    }
}
