//! Follows a journal as it grows, to its end.
//!
//! Never: misses or repeats an entry.

use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{ReadAsk, Watch};
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::ports::Ports;

/// So many entries come at once.
const PAGE: usize = 200;

/// Without a sign it is looked this often.
const LOOK_EVERY: Millis = Millis::from_secs(1);

/// Somebody who follows a run.
#[derive(Debug)]
pub struct Watching {
    ports: Ports,
    run: RunId,
    after: Seq,
    watch: Box<dyn Watch>,
    over: bool,
}

impl Longhaul {
    /// Follows a run from after a place on.
    pub async fn watch(&self, run: RunId, after: Seq) -> Result<Watching, Error> {
        // Heard from now on, so that nothing falls between the first look and the wait.
        let watch = self.ports.store.watch();
        if self.ports.store.row(run).await?.is_none() {
            return Err(Error::NoRun(run));
        }
        Ok(Watching {
            ports: self.ports.clone(),
            run,
            after,
            watch,
            over: false,
        })
    }
}

impl Watching {
    /// What comes next, in order; none: the run has ended and all of it was read.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        while !self.over {
            let page = self
                .ports
                .store
                .read(ReadAsk {
                    run: self.run,
                    after: self.after,
                    limit: PAGE,
                })
                .await?;
            if let Some(last) = page.entries.last() {
                self.after = last.seq;
                self.over = last.event.is_terminal();
                return Ok(Some(page.entries));
            }
            let row = self.ports.store.row(self.run).await?;
            let Some(row) = row else {
                return Err(Error::NoRun(self.run));
            };
            if row.status.is_terminal() && self.after >= row.last {
                self.over = true;
                break;
            }
            self.wait().await?;
        }
        Ok(None)
    }

    async fn wait(&mut self) -> Result<(), Error> {
        let clock = &self.ports.clock;
        tokio::select! {
            biased;
            changed = self.watch.changed() => changed?,
            () = clock.sleep_until(clock.now().plus(LOOK_EVERY)) => {}
        }
        Ok(())
    }
}
