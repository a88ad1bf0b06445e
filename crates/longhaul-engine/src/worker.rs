//! Claims runs and drives them, as many at once as there are permits.
//!
//! Never: claims what it has no permit for, or leaves a task behind. Whatever it
//! starts it also sees end.

mod crew;
mod options;
mod term;

use std::sync::Arc;

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::port::store::{ClaimAsk, Claimed, StoreError};
use longhaul_core::time::Millis;
use tokio::task::JoinSet;

pub use crate::worker::options::WorkerOptions;

use crate::error::Error;
use crate::hooks::{Hooks, NoHooks};
use crate::ledger::give_back;
use crate::ports::Ports;
use crate::slot::Slot;
use crate::stop::Stop;
use crate::sweep::{Retention, sweep};
use crate::worker::crew::{Crew, told};
use crate::worker::term::Terms;

/// So many runs are claimed at once.
const CLAIM_MAX: usize = 64;

/// What others wrote is looked for at most this often.
const HEAR_EVERY: Millis = Millis(10);

/// So long a store that failed is left alone.
const STORE_PAUSE: Millis = Millis(500);

/// After the cut, calls that must not be repeated have a while to end.
const CUT_GRACE: Millis = Millis::from_secs(12);

/// Claims and drives.
#[derive(Debug)]
pub struct Worker {
    ports: Ports,
    options: WorkerOptions,
    hooks: Arc<dyn Hooks>,
}

impl Worker {
    /// A worker that has not begun.
    pub fn new(ports: &Ports, options: WorkerOptions) -> Self {
        Self {
            ports: ports.clone(),
            options,
            hooks: Arc::new(NoHooks),
        }
    }

    /// The same, telling somebody.
    #[must_use]
    pub fn hooks(self, hooks: Arc<dyn Hooks>) -> Self {
        Self { hooks, ..self }
    }

    /// Works until it is told to stop, and then until everything is let go of.
    pub async fn run(self, stop: Stop) -> Result<(), Error> {
        let terms = Terms::begin(&self.ports, &self.options).await?;
        let mut aides = JoinSet::new();
        aides.spawn(beat(terms.clone(), stop.clone()));
        aides.spawn(listen(self.ports.clone(), terms.clone()));
        aides.spawn(tidy(self.ports.clone(), self.options.retention));
        let mut crew = Crew::new(&self.ports, self.options.concurrency, self.hooks.clone());
        let worked = self.work(&mut crew, &terms, &stop).await;
        // Also after a fault what is under way is seen to its end.
        stop.drain();
        let clock = &self.ports.clock;
        tokio::select! {
            () = crew.ended() => {}
            () = clock.sleep(self.options.drain) => {
                stop.cut();
                tokio::select! {
                    () = crew.ended() => {}
                    () = clock.sleep(CUT_GRACE) => {}
                }
            }
        }
        aides.shutdown().await;
        // A last sign, so that nobody takes this worker for one that drives on.
        if let Err(error) = terms.beat(true).await {
            tracing::warn!(%error, "nobody was told that this worker ends");
        }
        worked
    }

    /// Claims until the order to stop.
    async fn work(&self, crew: &mut Crew, terms: &Terms, stop: &Stop) -> Result<(), Error> {
        let clock = &self.ports.clock;
        // The answer to a claim was lost, and it may have given us runs.
        let mut unsure = false;
        while !stop.is_draining() {
            if unsure {
                match self.give_back_lost(crew, terms).await {
                    Ok(()) => unsure = false,
                    Err(error) => {
                        self.forgive(error).await?;
                        continue;
                    }
                }
            }
            let room = crew.room(CLAIM_MAX);
            if !room.is_empty() {
                let wanted = room.len();
                match self.claim(crew, terms, stop, room).await {
                    Ok(got) if got == wanted => continue,
                    Ok(0) if crew.is_empty() => told(&**clock, self.hooks.on_empty()).await,
                    Ok(_) => {}
                    Err(error) => {
                        self.forgive(error).await?;
                        unsure = true;
                        continue;
                    }
                }
            }
            tokio::select! {
                biased;
                () = stop.draining() => return Ok(()),
                () = crew.freed() => {}
                () = self.ports.nudges.ready() => {}
                () = clock.sleep(self.options.poll) => {}
            }
        }
        Ok(())
    }

    /// Claims one run for each permit; how many it got.
    async fn claim(
        &self,
        crew: &mut Crew,
        terms: &Terms,
        stop: &Stop,
        room: crew::Room,
    ) -> Result<usize, Error> {
        let term = terms.current();
        // Only this wait may be given up: a claim that was begun is seen through.
        let may_begin = tokio::select! {
            biased;
            () = stop.draining() => false,
            may = term.lease.may_begin() => may,
        };
        if !may_begin {
            return Ok(0);
        }
        let ask = ClaimAsk {
            worker: term.worker,
            inboxes: self.options.inboxes.clone(),
            types: self.options.types.clone(),
            limit: room.len(),
            format: EVENT_FORMAT,
            host: Some(self.options.host.clone()),
        };
        let claimed = self.ports.store.claim(ask).await?;
        let got = claimed.len();
        for (claimed, permit) in claimed.into_iter().zip(room) {
            crew.drive(term.charge(claimed, stop, Slot::new(permit)));
        }
        Ok(got)
    }

    /// Gives back the runs that are ours and that nobody here drives: a claim
    /// gave them, and its answer was lost. They are claimed anew, under an epoch
    /// of which we know that nothing was begun.
    async fn give_back_lost(&self, crew: &Crew, terms: &Terms) -> Result<(), Error> {
        let worker = terms.current().worker;
        for (run, last) in self.ports.shelves.heads(worker).await? {
            if crew.drives(run) {
                continue;
            }
            // Its drive may have ended since; then it is another's to speak of.
            let row = self.ports.store.row(run).await?;
            let Some(row) = row.filter(|row| row.worker == Some(worker)) else {
                continue;
            };
            let epoch = row.epoch;
            give_back(&self.ports, worker, &Claimed { run, epoch, last }).await?;
        }
        Ok(())
    }

    /// A store that is busy or full gets over it; anything else is a fault.
    async fn forgive(&self, error: Error) -> Result<(), Error> {
        let Error::Store(StoreError::Busy { .. } | StoreError::Full { .. }) = error else {
            return Err(error);
        };
        tracing::warn!(%error, "nothing can be claimed for now");
        let clock = &self.ports.clock;
        clock.sleep(STORE_PAUSE).await;
        Ok(())
    }
}

/// Says that the worker lives, three times in each ttl.
async fn beat(terms: Terms, stop: Stop) {
    loop {
        terms.rest().await;
        if let Err(error) = terms.beat(stop.is_draining()).await {
            tracing::warn!(%error, "a sign of life did not arrive");
        }
    }
}

/// Hears what others write, and nudges whom it concerns.
async fn listen(ports: Ports, terms: Terms) {
    let mut watch = ports.store.watch();
    while watch.changed().await.is_ok() {
        ports.nudges.may_be_ready();
        if !ports.nudges.is_empty() {
            match ports.shelves.heads(terms.current().worker).await {
                Ok(heads) => ports.nudges.compare(&heads),
                Err(error) => tracing::warn!(%error, "the heads could not be read"),
            }
        }
        ports.clock.sleep(HEAR_EVERY).await;
    }
}

/// Sweeps; a store that fails is left alone for a while.
async fn tidy(ports: Ports, retention: Retention) {
    loop {
        if let Err(error) = sweep(&ports, retention).await {
            tracing::warn!(%error, "the sweep was cut short");
        }
        let clock = &ports.clock;
        clock.sleep(STORE_PAUSE).await;
    }
}
