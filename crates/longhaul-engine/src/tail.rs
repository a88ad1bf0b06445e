//! Tells those who follow runs which journals have grown: one reader for a
//! whole process, however many follow.
//!
//! Never: says what was written. A ring is a hint; the journal is the truth.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::shelves::{Place, Shelves};
use longhaul_core::port::store::{Store, StoreError};
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::error::Error;

/// So many rows are looked at in one go.
const ROWS_MAX: usize = 10_000;

/// Without a sign it is looked this often.
const LOOK_EVERY: Millis = Millis::from_secs(1);

/// Whence it is known.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The journals.
    pub store: &'a dyn Store,
    /// The order in which they grow.
    pub shelves: &'a dyn Shelves,
    /// The time.
    pub clock: &'a dyn Clock,
}

/// The bells of this process. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    bells: Arc<Mutex<Bells>>,
    /// Somebody has come to listen.
    came: Arc<Notify>,
    /// Held by the one that reads.
    reader: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Default)]
struct Bells {
    /// Somebody reads for all.
    read: bool,
    runs: HashMap<RunId, watch::Sender<Seq>>,
    all: Option<watch::Sender<Place>>,
}

impl Bells {
    fn is_silent(&self) -> bool {
        let nobody = self
            .all
            .as_ref()
            .is_none_or(|bell| bell.receiver_count() == 0);
        nobody && self.runs.is_empty()
    }
}

impl Tail {
    fn with<T>(&self, use_it: impl FnOnce(&mut Bells) -> T) -> T {
        use_it(&mut self.bells.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears from now on when this run's journal has grown; none: nobody reads
    /// for all here, so that everybody must look for themselves.
    pub fn follow(&self, run: RunId) -> Option<RunBell> {
        let heard = self.with(|bells| {
            let bell = |bells: &mut Bells| {
                let made = bells.runs.entry(run);
                made.or_insert_with(|| watch::Sender::new(Seq::START))
                    .subscribe()
            };
            bells.read.then(|| bell(bells))
        })?;
        self.came.notify_one();
        Some(RunBell {
            tail: self.clone(),
            run,
            heard,
        })
    }

    /// Hears from now on when any journal has grown.
    pub fn follow_all(&self) -> Option<watch::Receiver<Place>> {
        let heard = self.with(|bells| {
            let bell = |all: &mut Option<watch::Sender<Place>>| {
                all.get_or_insert_with(|| watch::Sender::new(Place::default()))
                    .subscribe()
            };
            bells.read.then(|| bell(&mut bells.all))
        })?;
        self.came.notify_one();
        Some(heard)
    }

    /// How many listen: to single runs, and to all of them.
    pub fn listeners(&self) -> usize {
        self.with(|bells| {
            let runs: usize = bells.runs.values().map(watch::Sender::receiver_count).sum();
            let all = bells.all.as_ref().map_or(0, watch::Sender::receiver_count);
            runs + all
        })
    }

    /// Reads for all until it is dropped. While nobody listens it rests. Of several at once
    /// one reads, and the next begins when that one ends.
    pub async fn read(&self, source: Source<'_>) -> Result<(), Error> {
        let _turn = self.reader.lock().await;
        let _reading = Reading::begin(self);
        let mut changes = source.store.watch();
        loop {
            while self.with(|bells| bells.is_silent()) {
                self.came.notified().await;
            }
            let mut at = match source.shelves.end().await {
                Ok(end) => end,
                Err(StoreError::Busy { .. }) => {
                    source.clock.sleep(LOOK_EVERY).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // What was written between a listener's coming and this look counts too.
            self.ring_all();
            while !self.with(|bells| bells.is_silent()) {
                tokio::select! {
                    biased;
                    changed = changes.changed() => changed?,
                    () = source.clock.sleep(LOOK_EVERY) => {}
                }
                match self.look(source, at).await {
                    Ok(seen) => at = seen,
                    // It passes; whoever listens is told at the next look.
                    Err(Error::Store(StoreError::Busy { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Rings for everything that was written after a place.
    async fn look(&self, source: Source<'_>, mut at: Place) -> Result<Place, Error> {
        loop {
            let grown = source.shelves.grown(at, ROWS_MAX).await?;
            if grown.end == at {
                return Ok(at);
            }
            at = grown.end;
            self.with(|bells| {
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

    fn ring_all(&self) {
        self.with(|bells| {
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
struct Reading<'a>(&'a Tail);

impl<'a> Reading<'a> {
    fn begin(tail: &'a Tail) -> Self {
        tail.with(|bells| bells.read = true);
        Self(tail)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.with(|bells| *bells = Bells::default());
    }
}

/// The bell of one run.
#[derive(Debug)]
pub struct RunBell {
    tail: Tail,
    run: RunId,
    heard: watch::Receiver<Seq>,
}

impl RunBell {
    /// Returns when the journal has grown; false: nobody rings any more.
    pub async fn rings(&mut self) -> bool {
        self.heard.changed().await.is_ok()
    }
}

impl Drop for RunBell {
    fn drop(&mut self) {
        self.tail.with(|bells| {
            // This listener itself is still counted.
            let last = bells
                .runs
                .get(&self.run)
                .is_some_and(|bell| bell.receiver_count() <= 1);
            if last {
                bells.runs.remove(&self.run);
            }
        });
    }
}
