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
use crate::tail::RunBell;

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
    sign: Sign,
    /// The last look found nothing new, so that it is waited before the next.
    caught_up: bool,
    over: bool,
}

/// What tells that there may be more.
#[derive(Debug)]
enum Sign {
    /// One reader for the whole process.
    Bell(RunBell),
    /// Every commit of the store.
    Store(Box<dyn Watch>),
}

impl Longhaul {
    /// Follows a run from after a place on.
    pub async fn watch(&self, run: RunId, after: Seq) -> Result<Watching, Error> {
        // Heard from now on, so that nothing falls between the first look and the wait.
        let sign = match self.ports.tail.follow(run) {
            Some(bell) => Sign::Bell(bell),
            None => Sign::Store(self.ports.store.watch()),
        };
        if self.ports.store.row(run).await?.is_none() {
            return Err(Error::NoRun(run));
        }
        Ok(Watching {
            ports: self.ports.clone(),
            run,
            after,
            sign,
            caught_up: false,
            over: false,
        })
    }
}

impl Watching {
    /// What comes next, in order; none: the run has ended and all of it was read.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        while !self.over {
            // Kept across calls: whoever stops waiting for this and comes back
            // goes on waiting, without another look.
            if self.caught_up {
                self.wait().await?;
                self.caught_up = false;
            }
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
            self.caught_up = true;
        }
        Ok(None)
    }

    async fn wait(&mut self) -> Result<(), Error> {
        let clock = &self.ports.clock;
        match &mut self.sign {
            Sign::Bell(bell) => {
                if !bell.rings().await {
                    self.sign = Sign::Store(self.ports.store.watch());
                }
            }
            Sign::Store(watch) => {
                tokio::select! {
                    biased;
                    changed = watch.changed() => changed?,
                    () = clock.sleep(LOOK_EVERY) => {}
                }
            }
        }
        Ok(())
    }
}
