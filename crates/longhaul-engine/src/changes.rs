//! Tells those who follow runs which journals have grown: one reader for a
//! whole process, however many follow.
//!
//! Never: says what was written. A ring is a hint; the journal is the truth.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::{GlobalSeq, RecordStore};
use longhaul_core::port::store::{Store, StoreError};
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::error::Error;

/// So many rows are looked at in one go.
const ROWS_MAX: usize = 10_000;

/// Without a sign it is looked this often.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Whence it is known.
#[derive(Debug, Clone, Copy)]
pub struct ChangeSource<'a> {
    /// The journals.
    pub store: &'a dyn Store,
    /// The order in which they grow.
    pub records: &'a dyn RecordStore,
    /// The time.
    pub clock: &'a dyn Clock,
}

/// The bells of this process. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct ChangeFeed {
    subscribers: Arc<Mutex<Subscribers>>,
    /// Somebody has come to listen.
    subscribed: Arc<Notify>,
    /// Held by the one that reads.
    reader: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Default)]
struct Subscribers {
    /// Somebody reads for all.
    has_reader: bool,
    runs: HashMap<RunId, watch::Sender<Seq>>,
    all: Option<watch::Sender<GlobalSeq>>,
}

impl Subscribers {
    fn is_empty(&self) -> bool {
        let nobody = self.all.as_ref().is_none_or(|bell| bell.receiver_count() == 0);
        nobody && self.runs.is_empty()
    }
}

impl ChangeFeed {
    fn with_subscribers<T>(&self, use_it: impl FnOnce(&mut Subscribers) -> T) -> T {
        use_it(&mut self.subscribers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears from now on when this run's journal has grown; none: nobody reads
    /// for all here, so that everybody must look for themselves.
    pub fn subscribe(&self, run: RunId) -> Option<RunSubscription> {
        let heard = self.with_subscribers(|bells| {
            let bell = |bells: &mut Subscribers| {
                let made = bells.runs.entry(run);
                made.or_insert_with(|| watch::Sender::new(Seq::START)).subscribe()
            };
            bells.has_reader.then(|| bell(bells))
        })?;
        self.subscribed.notify_one();
        Some(RunSubscription { feed: self.clone(), run, receiver: heard })
    }

    /// Hears from now on when any journal has grown.
    pub fn subscribe_all(&self) -> Option<watch::Receiver<GlobalSeq>> {
        let heard = self.with_subscribers(|bells| {
            let bell = |all: &mut Option<watch::Sender<GlobalSeq>>| {
                all.get_or_insert_with(|| watch::Sender::new(GlobalSeq::default())).subscribe()
            };
            bells.has_reader.then(|| bell(&mut bells.all))
        })?;
        self.subscribed.notify_one();
        Some(heard)
    }

    /// How many listen: to single runs, and to all of them.
    pub fn subscriber_count(&self) -> usize {
        self.with_subscribers(|bells| {
            let runs: usize = bells.runs.values().map(watch::Sender::receiver_count).sum();
            let all = bells.all.as_ref().map_or(0, watch::Sender::receiver_count);
            runs + all
        })
    }

    /// Reads for all until it is dropped. While nobody listens it rests. Of several at once
    /// one reads, and the next begins when that one ends.
    pub async fn run_reader(&self, source: ChangeSource<'_>) -> Result<(), Error> {
        let _turn = self.reader.lock().await;
        let _reading = ReaderGuard::new(self);
        let mut changes = source.store.watch();
        loop {
            while self.with_subscribers(|bells| bells.is_empty()) {
                self.subscribed.notified().await;
            }
            let mut at = match source.records.last_global_seq().await {
                Ok(end) => end,
                Err(StoreError::Busy { .. }) => {
                    source.clock.sleep(POLL_INTERVAL).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // What was written between a listener's coming and this look counts too.
            self.notify_all();
            while !self.with_subscribers(|bells| bells.is_empty()) {
                tokio::select! {
                    biased;
                    changed = changes.changed() => changed?,
                    () = source.clock.sleep(POLL_INTERVAL) => {}
                }
                match self.publish_changes(source, at).await {
                    Ok(seen) => at = seen,
                    // It passes; whoever listens is told at the next look.
                    Err(Error::Store(StoreError::Busy { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Rings for everything that was written after a place.
    async fn publish_changes(
        &self,
        source: ChangeSource<'_>,
        mut at: GlobalSeq,
    ) -> Result<GlobalSeq, Error> {
        loop {
            let grown = source.records.changed_since(at, ROWS_MAX).await?;
            if grown.end == at {
                return Ok(at);
            }
            at = grown.end;
            self.with_subscribers(|bells| {
                for (run, seq) in &grown.runs {
                    if let Some(bell) = bells.runs.get(run) {
                        bell.send_replace(*seq);
                    }
                }
                if let Some(bell) = &bells.all {
                    bell.send_replace(at);
                }
            });
        }
    }

    fn notify_all(&self) {
        self.with_subscribers(|bells| {
            for bell in bells.runs.values() {
                bell.send_modify(|_| {});
            }
            if let Some(bell) = &bells.all {
                bell.send_modify(|_| {});
            }
        });
    }
}

/// Somebody reads for all. When they stop, every bell is gone, and whoever
/// listened to one looks for themselves.
struct ReaderGuard<'a>(&'a ChangeFeed);

impl<'a> ReaderGuard<'a> {
    fn new(tail: &'a ChangeFeed) -> Self {
        tail.with_subscribers(|bells| bells.has_reader = true);
        Self(tail)
    }
}

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        self.0.with_subscribers(|bells| *bells = Subscribers::default());
    }
}

/// The bell of one run.
#[derive(Debug)]
pub struct RunSubscription {
    feed: ChangeFeed,
    run: RunId,
    receiver: watch::Receiver<Seq>,
}

impl RunSubscription {
    /// Returns when the journal has grown; false: nobody rings any more.
    pub async fn changed(&mut self) -> bool {
        self.receiver.changed().await.is_ok()
    }
}

impl Drop for RunSubscription {
    fn drop(&mut self) {
        self.feed.with_subscribers(|bells| {
            // This listener itself is still counted.
            let last = bells.runs.get(&self.run).is_some_and(|bell| bell.receiver_count() <= 1);
            if last {
                bells.runs.remove(&self.run);
            }
        });
    }
}
