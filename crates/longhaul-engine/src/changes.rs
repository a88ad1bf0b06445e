//! Notifies subscribers when journals grow, with a single reader of the store per process.
//!
//! A notification is only a hint: the subscriber reads the journal to see what changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::{GlobalSeq, RecordStore};
use longhaul_core::port::store::{Store, StoreError};
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::error::{Error, Result};
use crate::panics::with_lock;

/// Maximum number of rows of the store that are read at once.
const ROWS_MAX: usize = 10_000;

/// Interval at which the store is polled when it reports no change.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Notifies subscribers in this process when journals grow. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub struct JournalChangeFeed {
    subscribers: Arc<Mutex<ChangeSubscribers>>,
    /// Signal for a waiting reader that somebody has subscribed.
    subscribed: Arc<Notify>,
    /// Lock that the active reader holds, so that only one reader works at a time.
    reader: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Default)]
struct ChangeSubscribers {
    /// Whether a reader is active in this process.
    has_reader: bool,
    runs: HashMap<RunId, watch::Sender<Seq>>,
    all: Option<watch::Sender<GlobalSeq>>,
}

impl ChangeSubscribers {
    fn has_no_subscribers(&self) -> bool {
        let unused = self.all.as_ref().is_none_or(|sender| sender.receiver_count() == 0);
        unused && self.runs.is_empty()
    }
}

impl JournalChangeFeed {
    /// Subscribes to changes of one run. `None` if no reader is active in this process, so that the
    /// caller has to poll the store.
    pub fn subscribe_to_run(&self, run: RunId) -> Option<RunSubscription> {
        let receiver = with_lock(&self.subscribers, |subscribers| {
            let entry = subscribers.has_reader.then(|| subscribers.runs.entry(run))?;
            Some(entry.or_insert_with(|| watch::Sender::new(Seq::START)).subscribe())
        })?;
        self.subscribed.notify_one();
        Some(RunSubscription { feed: self.clone(), run, receiver })
    }

    /// Subscribes to changes of all journals. `None` if no reader is active in this process.
    pub fn subscribe_to_all_runs(&self) -> Option<watch::Receiver<GlobalSeq>> {
        let receiver = with_lock(&self.subscribers, |subscribers| {
            let all = subscribers.has_reader.then_some(&mut subscribers.all)?;
            Some(all.get_or_insert_with(|| watch::Sender::new(GlobalSeq::default())).subscribe())
        })?;
        self.subscribed.notify_one();
        Some(receiver)
    }

    /// Returns the number of active subscriptions, to single runs and to all journals.
    pub fn subscriber_count(&self) -> usize {
        with_lock(&self.subscribers, |subscribers| {
            let runs: usize = subscribers.runs.values().map(watch::Sender::receiver_count).sum();
            let all = subscribers.all.as_ref().map_or(0, watch::Sender::receiver_count);
            runs + all
        })
    }

    /// Reads changes and notifies subscribers until the future is dropped. Waits while there are no
    /// subscribers. If several readers are started, one of them reads and the others wait for their
    /// turn.
    pub async fn notify_subscribers(
        &self,
        store: &dyn Store,
        records: &dyn RecordStore,
        clock: &dyn Clock,
    ) -> Result<()> {
        let _reader_lock = self.reader.lock().await;
        let _active_guard = ActiveReaderGuard(self);
        with_lock(&self.subscribers, |subscribers| subscribers.has_reader = true);
        let mut changes = store.watch_for_changes();
        loop {
            while with_lock(&self.subscribers, |subscribers| subscribers.has_no_subscribers()) {
                self.subscribed.notified().await;
            }
            let mut at = match records.last_global_seq().await {
                Ok(end) => end,
                Err(StoreError::Busy { .. }) => {
                    clock.sleep(POLL_INTERVAL).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // Changes between a subscription and this read count, too.
            self.notify_all_subscribers();
            while !with_lock(&self.subscribers, |subscribers| subscribers.has_no_subscribers()) {
                tokio::select! {
                    biased;
                    changed = changes.wait_for_change() => changed?,
                    () = clock.sleep(POLL_INTERVAL) => {}
                }
                match self.notify_of_growth(records, at).await {
                    Ok(last_seen) => at = last_seen,
                    // The error is transient; subscribers are notified after the next read.
                    Err(Error::Store(StoreError::Busy { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Notifies the subscribers of journals that have grown since the given global sequence number.
    async fn notify_of_growth(
        &self,
        records: &dyn RecordStore,
        mut at: GlobalSeq,
    ) -> Result<GlobalSeq> {
        loop {
            let changes = records.changed_runs_since(at, ROWS_MAX).await?;
            if changes.end == at {
                return Ok(at);
            }
            at = changes.end;
            with_lock(&self.subscribers, |subscribers| {
                for (run, seq) in &changes.runs {
                    if let Some(sender) = subscribers.runs.get(run) {
                        sender.send_replace(*seq);
                    }
                }
                if let Some(sender) = &subscribers.all {
                    sender.send_replace(at);
                }
            });
        }
    }

    fn notify_all_subscribers(&self) {
        with_lock(&self.subscribers, |subscribers| {
            for sender in subscribers.runs.values() {
                sender.send_modify(|_| {});
            }
            if let Some(sender) = &subscribers.all {
                sender.send_modify(|_| {});
            }
        });
    }
}

/// Guard of an active reader. Dropping the guard removes all subscriptions, so that the subscribers
/// poll the store themselves.
struct ActiveReaderGuard<'a>(&'a JournalChangeFeed);

impl Drop for ActiveReaderGuard<'_> {
    fn drop(&mut self) {
        with_lock(&self.0.subscribers, |subscribers| *subscribers = ChangeSubscribers::default());
    }
}

/// Subscription to the changes of one run.
#[derive(Debug)]
pub struct RunSubscription {
    feed: JournalChangeFeed,
    run: RunId,
    receiver: watch::Receiver<Seq>,
}

impl RunSubscription {
    /// Waits until the journal of the run has grown. Returns `false` if no reader is active any
    /// more.
    pub async fn wait_for_journal_growth(&mut self) -> bool {
        self.receiver.changed().await.is_ok()
    }
}

impl Drop for RunSubscription {
    fn drop(&mut self) {
        with_lock(&self.feed.subscribers, |subscribers| {
            // This subscriber is still counted.
            let last =
                subscribers.runs.get(&self.run).is_some_and(|sender| sender.receiver_count() <= 1);
            if last {
                subscribers.runs.remove(&self.run);
            }
        });
    }
}
