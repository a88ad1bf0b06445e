//! The worker: claims runs and drives them concurrently, one permit per run.
//!
//! Invariant: when a worker returns, every async task that it started has ended, or the grace
//! period after the abort has passed.

mod claim_loop;
mod filter;
mod identity;
mod intake;
mod options;
mod pool;

use std::sync::Arc;

use longhaul_core::time::{Millis, Timestamp};
use tokio::task::JoinSet;

use crate::background::sandboxes::{sweep_sandboxes, sweep_sandboxes_at_shutdown};
use crate::background::spend_caps::store_cap_limits;
use crate::background::sweep::{RunRetention, StalledRunDetector, run_maintenance};
use crate::error::Result;
use crate::handle::Longhaul;
use crate::services::Services;
use crate::shutdown::Shutdown;
use crate::worker::claim_loop::{ClaimLoop, STORE_RETRY_DELAY, release_claims_if};
use crate::worker::filter::FilteredQueue;
use crate::worker::identity::HeartbeatSender;
use crate::worker::pool::DriverPool;

pub use crate::worker::filter::TaskFilter;
pub use crate::worker::intake::{InboxActivity, WorkerIntake};
pub use crate::worker::options::{NoHooks, WorkerHooks, WorkerOptions};

/// Minimum interval between two notifications of drivers about changes that other processes made in
/// the store.
const MIN_WATCH_INTERVAL: Millis = Millis(10);

/// Time that non-repeatable calls have to finish after the shutdown has reached its abort phase.
const ABORT_GRACE: Millis = Millis::from_secs(12);

/// A worker, which claims runs and drives them.
#[derive(Debug)]
pub struct Worker {
    services: Services,
    options: WorkerOptions,
    hooks: Arc<dyn WorkerHooks>,
    filter: Option<TaskFilter>,
    scheduler: Option<Longhaul>,
    intake: WorkerIntake,
}

/// Interval at which the store is asked for the next due time, so that new schedules and changes of
/// the wall clock are noticed.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

impl Worker {
    /// Creates a worker. [`Worker::run`] starts it.
    pub fn new(services: &Services, options: WorkerOptions) -> Self {
        Self {
            services: services.clone(),
            intake: WorkerIntake::new(options.concurrency),
            options,
            hooks: Arc::new(NoHooks),
            filter: None,
            scheduler: None,
        }
    }

    /// Returns the state that the worker shares with the external inboxes that it serves.
    pub fn intake(&self) -> WorkerIntake {
        self.intake.clone()
    }

    /// Sets the functions of the embedding program that the worker calls, such as after a run has
    /// completed.
    #[must_use]
    pub fn with_hooks(self, hooks: Arc<dyn WorkerHooks>) -> Self {
        Self { hooks, ..self }
    }

    /// Sets a filter. The worker claims only the runs of tasks that the filter accepts.
    #[must_use]
    pub fn with_filter(self, filter: TaskFilter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Makes the worker fire the schedules of the store. `longhaul` knows the agents and chains
    /// that the schedules run.
    #[must_use]
    pub fn with_schedules(self, longhaul: &Longhaul) -> Self {
        Self { scheduler: Some(longhaul.clone()), ..self }
    }

    /// Claims and drives runs until shutdown is requested, then drains and releases all runs.
    pub async fn run(self, shutdown: Shutdown) -> Result<()> {
        let heartbeats = HeartbeatSender::start(&self.services, &self.options).await?;
        let Services { caps, records, .. } = &self.services;
        if let Err(error) = store_cap_limits(caps, &**records).await {
            tracing::warn!(%error, "the limits of spend caps could not be stored");
        }
        let mut background_tasks = JoinSet::new();
        background_tasks.spawn(send_heartbeats(heartbeats.clone(), shutdown.clone()));
        background_tasks.spawn(notify_drivers(self.services.clone(), heartbeats.clone()));
        background_tasks.spawn(sweep_sandboxes(self.services.clone()));
        background_tasks.spawn(restart_maintenance(self.services.clone(), self.options.retention));
        if let Some(longhaul) = self.scheduler.clone() {
            background_tasks.spawn(run_scheduler(longhaul));
        }
        let permits = Arc::clone(self.intake.permits());
        let mut pool = DriverPool::new(&self.services, permits, self.hooks.clone());
        let new_queue = |filter| FilteredQueue::new(&self.services, &self.options, filter);
        let filtered = self.filter.clone().map(new_queue);
        let claim_loop = ClaimLoop {
            services: &self.services,
            options: &self.options,
            heartbeats: &heartbeats,
            shutdown: &shutdown,
            pool: &mut pool,
            intake: &self.intake,
            filtered,
            turn: 0,
            has_claimed: true,
        };
        let result = claim_loop.run_until_shutdown().await;
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
        if let Err(error) = release_claims_if(&self.services, &heartbeats, |_| true).await {
            tracing::warn!(%error, "could not release the runs that have not ended");
        }
        sweep_sandboxes_at_shutdown(&self.services).await;
        // A final heartbeat, so that nobody takes this worker for a live one.
        if let Err(error) = heartbeats.send_heartbeat(true).await {
            tracing::warn!(%error, "the final heartbeat failed");
        }
        result
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

/// Watches the store for changes by other processes and notifies the affected drivers (the tasks of
/// this process that execute a run each).
async fn notify_drivers(services: Services, heartbeats: HeartbeatSender) {
    let mut watch = services.store.watch_for_changes();
    while watch.wait_for_change().await.is_ok() {
        services.notifier.notify_runs_ready();
        if !services.notifier.has_no_drivers() {
            let worker = heartbeats.current_identity().worker;
            match services.records.claimed_runs_with_last_seq(worker).await {
                Ok(heads) => services.notifier.notify_outdated_drivers(&heads),
                Err(error) => tracing::warn!(%error, "could not list the claimed runs"),
            }
        }
        services.clock.sleep(MIN_WATCH_INTERVAL).await;
    }
}

/// Runs the sweep, which fires timers and deletes old runs. Restarts it after a delay if it fails.
async fn restart_maintenance(services: Services, retention: RunRetention) {
    // Kept across restarts: a driver counts as stalled only after minutes.
    let mut stalled_runs = StalledRunDetector::default();
    loop {
        let result = run_maintenance(&services, retention, &mut stalled_runs).await;
        if let Err(error) = result {
            tracing::warn!(%error, "the background sweep failed");
        }
        let clock = &services.clock;
        clock.sleep(STORE_RETRY_DELAY).await;
    }
}

/// Fires due schedules forever. A failure is logged, and the schedules are tried again.
pub(crate) async fn run_scheduler(longhaul: Longhaul) {
    let clock = &longhaul.services().clock;
    let mut checked_at = None;
    loop {
        let delay = match fire_due(&longhaul, &mut checked_at).await {
            Ok(delay) => delay,
            Err(error) => {
                tracing::warn!(%error, "could not fire the schedules");
                POLL_INTERVAL
            }
        };
        clock.sleep(delay).await;
    }
}

/// Fires the due schedules and returns how long to wait for the next ones. `checked_at` is the time
/// of the last call. At the first call, and if the clock was set back since the last one, due times
/// from a wrong clock are corrected.
async fn fire_due(longhaul: &Longhaul, checked_at: &mut Option<Timestamp>) -> Result<Millis> {
    let now = longhaul.store_time().await?;
    if checked_at.is_none_or(|checked_at| now < checked_at) {
        longhaul.correct_due_times().await?;
    }
    *checked_at = Some(now);
    longhaul.fire_due_schedules().await?;
    let next = longhaul.services().schedules.next_schedule_due().await?;
    let now = longhaul.store_time().await?;
    Ok(next.map_or(POLL_INTERVAL, |due| {
        let delay = due.duration_since(now);
        // Rounded up: a wait that ends too early would be repeated at once.
        let delay = delay.plus(Millis(u64::from(now.plus(delay) < due)));
        delay.min(POLL_INTERVAL)
    }))
}
