//! The worker: claims runs and drives them concurrently, one permit per run.
//!
//! Invariant: when a worker returns, every async task that it started has ended, or the grace
//! period after the abort has passed.

mod filter;
mod identity;
mod options;
mod pool;

use std::sync::Arc;

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::id::RunId;
use longhaul_core::port::store::{Claim, ClaimRequest, StoreError};
use longhaul_core::time::Millis;
use tokio::task::JoinSet;

pub use crate::worker::filter::TaskFilter;
pub use crate::worker::options::WorkerOptions;

use crate::claim_release::release_run;
use crate::drive_permit::DrivePermit;
use crate::error::Error;
use crate::handle::Longhaul;
use crate::hooks::{NoHooks, WorkerHooks};
use crate::scheduler::run_scheduler;
use crate::services::EngineServices;
use crate::shutdown::Shutdown;
use crate::sweep::{Retention, run_sweep_until_error};
use crate::worker::filter::FilteredQueue;
use crate::worker::identity::HeartbeatSender;
use crate::worker::pool::DriverPool;

/// Maximum number of runs that are claimed at once.
const CLAIM_MAX: usize = 64;

/// Minimum interval between two reactions to changes of the store.
const MIN_WATCH_INTERVAL: Millis = Millis(10);

/// Delay before a failed access to the store is retried.
const STORE_RETRY_DELAY: Millis = Millis(500);

/// Time that non-repeatable calls have to finish after the shutdown has reached its abort phase.
const ABORT_GRACE: Millis = Millis::from_secs(12);

/// A worker, which claims runs and drives them.
#[derive(Debug)]
pub struct Worker {
    services: EngineServices,
    options: WorkerOptions,
    hooks: Arc<dyn WorkerHooks>,
    filter: Option<TaskFilter>,
    scheduler: Option<Longhaul>,
}

/// What a worker remembers from one claim to the next.
#[derive(Debug)]
struct ClaimState {
    /// Number of claims so far. It chooses the inbox that is served first.
    turn: usize,
    /// The queues as the filter sees them. `None` if the worker has no filter.
    filtered: Option<FilteredQueue>,
    /// Whether a run was claimed since the hook `on_empty` was called last.
    has_claimed: bool,
}

impl Worker {
    /// Creates a worker. [`Worker::run`] starts it.
    pub fn new(services: &EngineServices, options: WorkerOptions) -> Self {
        Self {
            services: services.clone(),
            options,
            hooks: Arc::new(NoHooks),
            filter: None,
            scheduler: None,
        }
    }

    /// Sets the callbacks into the embedding program.
    #[must_use]
    pub fn with_hooks(self, hooks: Arc<dyn WorkerHooks>) -> Self {
        Self { hooks, ..self }
    }

    /// Sets a filter. The worker claims only the runs of tasks that the filter accepts.
    #[must_use]
    pub fn with_filter(self, filter: TaskFilter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Lets the worker fire the schedules of the store. The handle knows the agents that they start.
    #[must_use]
    pub fn with_schedules(self, longhaul: &Longhaul) -> Self {
        Self { scheduler: Some(longhaul.clone()), ..self }
    }

    /// Claims and drives runs until shutdown is requested, then drains and releases all runs.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), Error> {
        let heartbeats =
            HeartbeatSender::new_with_first_heartbeat(&self.services, &self.options).await?;
        let mut background_tasks = JoinSet::new();
        background_tasks.spawn(send_heartbeats(heartbeats.clone(), shutdown.clone()));
        background_tasks
            .spawn(notify_drivers_of_changes(self.services.clone(), heartbeats.clone()));
        background_tasks
            .spawn(run_sweep_with_restarts(self.services.clone(), self.options.retention));
        if let Some(longhaul) = self.scheduler.clone() {
            background_tasks.spawn(run_scheduler(longhaul));
        }
        let mut pool =
            DriverPool::new(&self.services, self.options.concurrency, self.hooks.clone());
        let result = self.claim_runs_until_shutdown(&mut pool, &heartbeats, &shutdown).await;
        // Running drivers are drained after an error, too.
        shutdown.request_drain();
        let clock = &self.services.clock;
        tokio::select! {
            () = pool.wait_for_all_drivers() => {}
            () = clock.sleep(self.options.drain_timeout) => {
                shutdown.request_abort();
                tokio::select! {
                    () = pool.wait_for_all_drivers() => {}
                    () = clock.sleep(ABORT_GRACE) => {}
                }
            }
        }
        background_tasks.shutdown().await;
        // Drivers that did not end are aborted; their runs can be claimed again at once.
        pool.abort_drivers();
        if let Err(error) = self.release_claims(&heartbeats, |_| true).await {
            tracing::warn!(%error, "could not release the runs that have not ended");
        }
        // A final heartbeat, so that nobody takes this worker for a live one.
        if let Err(error) = heartbeats.send_heartbeat(true).await {
            tracing::warn!(%error, "the final heartbeat failed");
        }
        result
    }

    /// Claims runs until shutdown is requested.
    async fn claim_runs_until_shutdown(
        &self,
        pool: &mut DriverPool,
        heartbeats: &HeartbeatSender,
        shutdown: &Shutdown,
    ) -> Result<(), Error> {
        let clock = &self.services.clock;
        let filtered = self.filter.clone().map(FilteredQueue::new);
        let mut state = ClaimState { turn: 0, filtered, has_claimed: true };
        // Set when the response to a claim was lost, so that runs may have been claimed without our
        // knowledge.
        let mut unsure = false;
        while !shutdown.is_draining() {
            if unsure {
                match self.release_claims(heartbeats, |run| !pool.is_driving(run)).await {
                    Ok(()) => unsure = false,
                    Err(error) => {
                        self.wait_after_transient_error(error).await?;
                        continue;
                    }
                }
            }
            let permits = pool.take_permits(CLAIM_MAX);
            if !permits.is_empty() {
                let requested = permits.len();
                match self.claim_runs(pool, (heartbeats, shutdown), &mut state, permits).await {
                    Ok(got) if got == requested || state.has_unread_queued_runs() => continue,
                    Ok(0) if pool.is_empty() && std::mem::take(&mut state.has_claimed) => {
                        pool.start_empty_hook();
                    }
                    Ok(_) => {}
                    Err(error) => {
                        self.wait_after_transient_error(error).await?;
                        unsure = true;
                        continue;
                    }
                }
            }
            let rest = state.filtered.as_ref().map(FilteredQueue::delay_before_next_read);
            let wait_for_change = async {
                if let Some(rest) = rest {
                    clock.sleep(rest).await;
                }
                tokio::select! {
                    biased;
                    () = pool.wait_for_any_driver() => false,
                    () = self.services.notifier.wait_for_work() => true,
                    () = clock.sleep(self.options.poll) => false,
                }
            };
            let is_changed = tokio::select! {
                biased;
                () = shutdown.wait_for_drain() => return Ok(()),
                is_changed = wait_for_change => is_changed,
            };
            if let Some(filtered) = &mut state.filtered {
                filtered.prepare_next_page(clock.monotonic_time(), is_changed);
            }
        }
        Ok(())
    }

    /// Claims at most one run per permit. Returns the number of claimed runs.
    async fn claim_runs(
        &self,
        pool: &mut DriverPool,
        (heartbeats, shutdown): (&HeartbeatSender, &Shutdown),
        state: &mut ClaimState,
        permits: pool::Permits,
    ) -> Result<usize, Error> {
        let identity = heartbeats.current_identity();
        // Only this wait may be cancelled: a claim that was sent must be completed.
        let may_begin = tokio::select! {
            biased;
            () = shutdown.wait_for_drain() => false,
            may = identity.lease.wait_until_valid() => may,
        };
        if !may_begin {
            return Ok(0);
        }
        // Every inbox is served first in turn, so that none starves.
        let mut inboxes = self.options.inboxes.clone();
        let first = state.turn.checked_rem(inboxes.len()).unwrap_or(0);
        inboxes.rotate_left(first);
        state.turn = state.turn.wrapping_add(1);
        let mut only = None;
        if let Some(filtered) = &mut state.filtered {
            let from = (&self.options, inboxes.as_slice());
            let accepted = filtered.next_accepted_runs(&self.services, from, permits.len()).await?;
            if accepted.is_empty() {
                return Ok(0);
            }
            only = Some(accepted);
        }
        let request = ClaimRequest {
            worker: identity.worker,
            inboxes,
            types: self.options.types.clone(),
            only,
            limit: permits.len(),
            format: EVENT_FORMAT,
            host: Some(self.options.host.clone()),
        };
        let claimed = self.services.store.claim_runs(request).await?;
        let got = claimed.len();
        state.has_claimed |= got > 0;
        for (claimed, permit) in claimed.into_iter().zip(permits) {
            pool.start_driver(identity.create_assignment(
                claimed,
                shutdown,
                DrivePermit::new(permit),
            ));
        }
        Ok(got)
    }

    /// Releases those runs claimed by this worker for which `is_released` is true: runs that it
    /// does not drive, because the response to the claim was lost or their driver was aborted. The
    /// runs are claimed again under a new epoch, in which certainly nothing was started.
    async fn release_claims(
        &self,
        heartbeats: &HeartbeatSender,
        is_released: impl Fn(RunId) -> bool,
    ) -> Result<(), Error> {
        let worker = heartbeats.current_identity().worker;
        for (run, last) in self.services.records.claimed_runs(worker).await? {
            if !is_released(run) {
                continue;
            }
            // Its driver may have ended meanwhile, and another worker may have claimed it.
            let row = self.services.store.get_run(run).await?;
            let Some(row) = row.filter(|row| row.worker == Some(worker)) else {
                continue;
            };
            let epoch = row.epoch;
            release_run(&self.services, worker, &Claim { run, epoch, last_seq: last }).await?;
        }
        Ok(())
    }

    /// Waits a little if the error says that the store is busy or full. Any other error is
    /// returned.
    async fn wait_after_transient_error(&self, error: Error) -> Result<(), Error> {
        let Error::Store(StoreError::Busy { .. } | StoreError::DiskFull { .. }) = error else {
            return Err(error);
        };
        tracing::warn!(%error, "the store is busy; retrying the claim");
        let clock = &self.services.clock;
        clock.sleep(STORE_RETRY_DELAY).await;
        Ok(())
    }
}

impl ClaimState {
    /// Returns whether there are queued runs that the filter has not seen.
    fn has_unread_queued_runs(&self) -> bool {
        self.filtered.as_ref().is_some_and(|filtered| !filtered.is_at_end())
    }
}

/// Sends heartbeats forever, three per lease duration.
async fn send_heartbeats(heartbeats: HeartbeatSender, shutdown: Shutdown) {
    loop {
        heartbeats.wait_for_next_heartbeat().await;
        if let Err(error) = heartbeats.send_heartbeat(shutdown.is_draining()).await {
            tracing::warn!(%error, "a heartbeat failed");
        }
    }
}

/// Watches the store for changes by other processes and notifies the affected drivers.
async fn notify_drivers_of_changes(services: EngineServices, heartbeats: HeartbeatSender) {
    let mut watch = services.store.watch_for_changes();
    while watch.wait_for_change().await.is_ok() {
        services.notifier.notify_work_available();
        if !services.notifier.has_no_drivers() {
            match services.records.claimed_runs(heartbeats.current_identity().worker).await {
                Ok(heads) => services.notifier.notify_outdated_drivers(&heads),
                Err(error) => tracing::warn!(%error, "could not list the claimed runs"),
            }
        }
        services.clock.sleep(MIN_WATCH_INTERVAL).await;
    }
}

/// Runs the sweep, which fires timers and deletes old runs. Restarts it after a delay if it fails.
async fn run_sweep_with_restarts(services: EngineServices, retention: Retention) {
    loop {
        if let Err(error) = run_sweep_until_error(&services, retention).await {
            tracing::warn!(%error, "the background sweep failed");
        }
        let clock = &services.clock;
        clock.sleep(STORE_RETRY_DELAY).await;
    }
}
