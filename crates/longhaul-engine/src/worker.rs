//! Claims runs and drives them, as many at once as there are permits.
//!
//! Never: claims what it has no permit for, or leaves a task behind. Whatever it
//! starts it also sees end.

mod identity;
mod options;
mod pool;

use std::sync::Arc;

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::port::store::{Claim, ClaimRequest, StoreError};
use longhaul_core::time::Millis;
use tokio::task::JoinSet;

pub use crate::worker::options::WorkerOptions;

use crate::drive_permit::DrivePermit;
use crate::error::Error;
use crate::hooks::{Hooks, NoHooks};
use crate::run_session::release_run;
use crate::services::EngineServices;
use crate::shutdown::Shutdown;
use crate::sweep::{Retention, sweep};
use crate::worker::identity::Heartbeats;
use crate::worker::pool::{DriverPool, run_hook};

/// So many runs are claimed at once.
const CLAIM_MAX: usize = 64;

/// What others wrote is looked for at most this often.
const MIN_WATCH_INTERVAL: Millis = Millis(10);

/// So long a store that failed is left alone.
const STORE_RETRY_DELAY: Millis = Millis(500);

/// After the cut, calls that must not be repeated have a while to end.
const ABORT_GRACE: Millis = Millis::from_secs(12);

/// Claims and drives.
#[derive(Debug)]
pub struct Worker {
    services: EngineServices,
    options: WorkerOptions,
    hooks: Arc<dyn Hooks>,
}

impl Worker {
    /// A worker that has not begun.
    pub fn new(ports: &EngineServices, options: WorkerOptions) -> Self {
        Self { services: ports.clone(), options, hooks: Arc::new(NoHooks) }
    }

    /// The same, telling somebody.
    #[must_use]
    pub fn with_hooks(self, hooks: Arc<dyn Hooks>) -> Self {
        Self { hooks, ..self }
    }

    /// Works until it is told to stop, and then until everything is let go of.
    pub async fn run(self, stop: Shutdown) -> Result<(), Error> {
        let terms = Heartbeats::start(&self.services, &self.options).await?;
        let mut aides = JoinSet::new();
        aides.spawn(send_heartbeats(terms.clone(), stop.clone()));
        aides.spawn(watch_store(self.services.clone(), terms.clone()));
        aides.spawn(run_sweeper(self.services.clone(), self.options.retention));
        let mut crew =
            DriverPool::new(&self.services, self.options.concurrency, self.hooks.clone());
        let worked = self.claim_loop(&mut crew, &terms, &stop).await;
        // Also after a fault what is under way is seen to its end.
        stop.drain();
        let clock = &self.services.clock;
        tokio::select! {
            () = crew.wait_all() => {}
            () = clock.sleep(self.options.drain_timeout) => {
                stop.abort();
                tokio::select! {
                    () = crew.wait_all() => {}
                    () = clock.sleep(ABORT_GRACE) => {}
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
    async fn claim_loop(
        &self,
        crew: &mut DriverPool,
        terms: &Heartbeats,
        stop: &Shutdown,
    ) -> Result<(), Error> {
        let clock = &self.services.clock;
        // The answer to a claim was lost, and it may have given us runs.
        let mut unsure = false;
        while !stop.is_draining() {
            if unsure {
                match self.release_unknown_claims(crew, terms).await {
                    Ok(()) => unsure = false,
                    Err(error) => {
                        self.wait_if_transient(error).await?;
                        continue;
                    }
                }
            }
            let room = crew.take_permits(CLAIM_MAX);
            if !room.is_empty() {
                let wanted = room.len();
                match self.claim(crew, terms, stop, room).await {
                    Ok(got) if got == wanted => continue,
                    Ok(0) if crew.is_empty() => run_hook(&**clock, self.hooks.on_empty()).await,
                    Ok(_) => {}
                    Err(error) => {
                        self.wait_if_transient(error).await?;
                        unsure = true;
                        continue;
                    }
                }
            }
            tokio::select! {
                biased;
                () = stop.draining() => return Ok(()),
                () = crew.wait_one() => {}
                () = self.services.notifier.wait_for_work() => {}
                () = clock.sleep(self.options.poll) => {}
            }
        }
        Ok(())
    }

    /// Claims one run for each permit; how many it got.
    async fn claim(
        &self,
        crew: &mut DriverPool,
        terms: &Heartbeats,
        stop: &Shutdown,
        room: pool::Permits,
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
        let ask = ClaimRequest {
            worker: term.worker,
            inboxes: self.options.inboxes.clone(),
            types: self.options.types.clone(),
            limit: room.len(),
            format: EVENT_FORMAT,
            host: Some(self.options.host.clone()),
        };
        let claimed = self.services.store.claim(ask).await?;
        let got = claimed.len();
        for (claimed, permit) in claimed.into_iter().zip(room) {
            crew.drive(term.assignment(claimed, stop, DrivePermit::new(permit)));
        }
        Ok(got)
    }

    /// Gives back the runs that are ours and that nobody here drives: a claim
    /// gave them, and its answer was lost. They are claimed anew, under an epoch
    /// of which we know that nothing was begun.
    async fn release_unknown_claims(
        &self,
        crew: &DriverPool,
        terms: &Heartbeats,
    ) -> Result<(), Error> {
        let worker = terms.current().worker;
        for (run, last) in self.services.records.claimed_runs(worker).await? {
            if crew.is_driving(run) {
                continue;
            }
            // Its drive may have ended since; then it is another's to speak of.
            let row = self.services.store.get_run(run).await?;
            let Some(row) = row.filter(|row| row.worker == Some(worker)) else {
                continue;
            };
            let epoch = row.epoch;
            release_run(&self.services, worker, &Claim { run, epoch, last_seq: last }).await?;
        }
        Ok(())
    }

    /// A store that is busy or full gets over it; anything else is a fault.
    async fn wait_if_transient(&self, error: Error) -> Result<(), Error> {
        let Error::Store(StoreError::Busy { .. } | StoreError::DiskFull { .. }) = error else {
            return Err(error);
        };
        tracing::warn!(%error, "nothing can be claimed for now");
        let clock = &self.services.clock;
        clock.sleep(STORE_RETRY_DELAY).await;
        Ok(())
    }
}

/// Says that the worker lives, three times in each ttl.
async fn send_heartbeats(terms: Heartbeats, stop: Shutdown) {
    loop {
        terms.wait_interval().await;
        if let Err(error) = terms.beat(stop.is_draining()).await {
            tracing::warn!(%error, "a sign of life did not arrive");
        }
    }
}

/// Hears what others write, and nudges whom it concerns.
async fn watch_store(ports: EngineServices, terms: Heartbeats) {
    let mut watch = ports.store.watch();
    while watch.changed().await.is_ok() {
        ports.notifier.work_available();
        if !ports.notifier.is_empty() {
            match ports.records.claimed_runs(terms.current().worker).await {
                Ok(heads) => ports.notifier.notify_behind(&heads),
                Err(error) => tracing::warn!(%error, "the heads could not be read"),
            }
        }
        ports.clock.sleep(MIN_WATCH_INTERVAL).await;
    }
}

/// Sweeps; a store that fails is left alone for a while.
async fn run_sweeper(ports: EngineServices, retention: Retention) {
    loop {
        if let Err(error) = sweep(&ports, retention).await {
            tracing::warn!(%error, "the sweep was cut short");
        }
        let clock = &ports.clock;
        clock.sleep(STORE_RETRY_DELAY).await;
    }
}
