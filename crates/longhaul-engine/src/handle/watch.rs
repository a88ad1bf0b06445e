//! Follows a journal as it grows, to its end.
//!
//! Never: misses or repeats an entry.

use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{ReadRequest, Watch};
use longhaul_core::time::Millis;

use crate::changes::RunSubscription;
use crate::error::Error;
use crate::handle::Longhaul;
use crate::services::EngineServices;

/// So many entries come at once.
const PAGE_SIZE: usize = 200;

/// Without a sign it is looked this often.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Somebody who follows a run.
#[derive(Debug)]
pub struct JournalStream {
    services: EngineServices,
    run: RunId,
    after: Seq,
    wake_source: WakeSource,
    /// The last look found nothing new, so that it is waited before the next.
    caught_up: bool,
    has_ended: bool,
}

/// What tells that there may be more.
#[derive(Debug)]
enum WakeSource {
    /// One reader for the whole process.
    Subscription(RunSubscription),
    /// Every commit of the store.
    Store(Box<dyn Watch>),
}

impl Longhaul {
    /// Follows a run from after a place on.
    pub async fn watch(&self, run: RunId, after: Seq) -> Result<JournalStream, Error> {
        // Heard from now on, so that nothing falls between the first look and the wait.
        let sign = match self.services.changes.subscribe(run) {
            Some(bell) => WakeSource::Subscription(bell),
            None => WakeSource::Store(self.services.store.watch()),
        };
        if self.services.store.get_run(run).await?.is_none() {
            return Err(Error::RunNotFound(run));
        }
        Ok(JournalStream {
            services: self.services.clone(),
            run,
            after,
            wake_source: sign,
            caught_up: false,
            has_ended: false,
        })
    }
}

impl JournalStream {
    /// What comes next, in order; none: the run has ended and all of it was read.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        while !self.has_ended {
            // Kept across calls: whoever stops waiting for this and comes back
            // goes on waiting, without another look.
            if self.caught_up {
                self.wait_for_change().await?;
                self.caught_up = false;
            }
            let page = self
                .services
                .store
                .read(ReadRequest { run: self.run, after: self.after, limit: PAGE_SIZE })
                .await?;
            if let Some(last) = page.entries.last() {
                self.after = last.seq;
                self.has_ended = last.event.is_terminal();
                return Ok(Some(page.entries));
            }
            let row = self.services.store.get_run(self.run).await?;
            let Some(row) = row else {
                return Err(Error::RunNotFound(self.run));
            };
            if row.status.is_terminal() && self.after >= row.last_seq {
                self.has_ended = true;
                break;
            }
            self.caught_up = true;
        }
        Ok(None)
    }

    async fn wait_for_change(&mut self) -> Result<(), Error> {
        let clock = &self.services.clock;
        match &mut self.wake_source {
            WakeSource::Subscription(bell) => {
                if !bell.changed().await {
                    self.wake_source = WakeSource::Store(self.services.store.watch());
                }
            }
            WakeSource::Store(watch) => {
                tokio::select! {
                    biased;
                    changed = watch.changed() => changed?,
                    () = clock.sleep(POLL_INTERVAL) => {}
                }
            }
        }
        Ok(())
    }
}
