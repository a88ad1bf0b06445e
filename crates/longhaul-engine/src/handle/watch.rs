//! Follows the journal of a run until the run ends.
//!
//! Invariant: no journal entry is missed or repeated.

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{JournalReadRequest, StoreWatcher};
use longhaul_core::time::Millis;

use crate::changes::RunSubscription;
use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::services::Services;

/// Maximum number of journal entries that are read at once.
const PAGE_SIZE: usize = 200;

/// Interval at which the journal is polled when no change notification arrives.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Stream of the journal entries of one run.
#[derive(Debug)]
pub struct JournalStream {
    services: Services,
    run: RunId,
    after: Seq,
    wake_source: JournalWatcher,
    /// Whether the last read returned nothing new, so that the next read first waits for a change.
    caught_up: bool,
    has_ended: bool,
}

/// Source of notifications that a journal may have grown.
#[derive(Debug)]
enum JournalWatcher {
    /// Subscription to the change feed that is shared by the whole process.
    Subscription(RunSubscription),
    /// Notifications of the store after every commit.
    Store(Box<dyn StoreWatcher>),
}

impl Longhaul {
    /// Follows the journal of a run, starting after a sequence number.
    pub async fn watch_run_journal(&self, run: RunId, after: Seq) -> Result<JournalStream> {
        // Subscribe before the first read, so that no change is missed between the read and the
        // wait.
        let wake_source = match self.services.changes.subscribe_to_run(run) {
            Some(subscription) => JournalWatcher::Subscription(subscription),
            None => JournalWatcher::Store(self.services.store.watch_for_changes()),
        };
        if self.services.store.get_run(run).await?.is_none() {
            return Err(Error::RunNotFound(run));
        }
        Ok(JournalStream {
            services: self.services.clone(),
            run,
            after,
            wake_source,
            caught_up: false,
            has_ended: false,
        })
    }
}

impl JournalStream {
    /// Waits for the next journal entries and returns them in order. `None` means that the run has
    /// ended and everything was read.
    pub async fn next(&mut self) -> Result<Option<Vec<JournalEntry>>> {
        while !self.has_ended {
            // Stored in the struct for cancel safety: a call that was dropped while waiting
            // continues to wait when it is repeated, without another read.
            if self.caught_up {
                self.wait_for_journal_change().await?;
                self.caught_up = false;
            }
            let page = self
                .services
                .store
                .read_journal(JournalReadRequest {
                    run: self.run,
                    after: self.after,
                    limit: PAGE_SIZE,
                })
                .await?;
            if let Some(last) = page.entries.last() {
                self.after = last.seq;
                self.has_ended = last.event.is_terminal();
                return Ok(Some(page.entries));
            }
            let row = self.services.store.get_run(self.run).await?;
            let Some(row) = row else { return Err(Error::RunNotFound(self.run)) };
            if row.status.is_terminal() && self.after >= row.last_seq {
                self.has_ended = true;
                break;
            }
            self.caught_up = true;
        }
        Ok(None)
    }

    async fn wait_for_journal_change(&mut self) -> Result<()> {
        let clock = &self.services.clock;
        match &mut self.wake_source {
            JournalWatcher::Subscription(subscription) => {
                if !subscription.wait_for_journal_growth().await {
                    self.wake_source =
                        JournalWatcher::Store(self.services.store.watch_for_changes());
                }
            }
            JournalWatcher::Store(watch) => {
                tokio::select! {
                    biased;
                    changed = watch.wait_for_change() => changed?,
                    () = clock.sleep(POLL_INTERVAL) => {}
                }
            }
        }
        Ok(())
    }
}
