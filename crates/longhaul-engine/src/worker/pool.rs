//! The drives of a worker: each a task with its permit inside.
//!
//! Never: forgets one. A drive that met a fault lets go of its run.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use longhaul_core::change::{Change, HeadUpdate};
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::drive::assignment::{Assignment, DriveOutcome};
use crate::drive::drive;
use crate::error::Error;
use crate::hooks::Hooks;
use crate::run_session::{park_after_error, update_head};
use crate::services::EngineServices;

/// A run that could not be set aside is tried again after so long.
const PARK_RETRY_DELAY: Millis = Millis::from_secs(1);

/// So long is a hook waited for.
const HOOK_TIMEOUT: Millis = Millis::from_secs(10);

/// Permits to drive, taken before anything is claimed.
pub(super) type Permits = Vec<OwnedSemaphorePermit>;

/// The drives under way.
#[derive(Debug)]
pub(super) struct DriverPool {
    services: EngineServices,
    hooks: Arc<dyn Hooks>,
    permits: Arc<Semaphore>,
    tasks: JoinSet<()>,
    runs: DrivenRuns,
}

/// The runs under way. Clones are the same.
#[derive(Debug, Clone, Default)]
struct DrivenRuns(Arc<Mutex<BTreeSet<RunId>>>);

impl DrivenRuns {
    fn with_runs<T>(&self, use_it: impl FnOnce(&mut BTreeSet<RunId>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a run down until what is returned is dropped.
    fn insert(&self, run: RunId) -> DrivenRunGuard {
        self.with_runs(|runs| runs.insert(run));
        DrivenRunGuard { runs: self.clone(), run }
    }
}

/// A run that is written down as under way.
#[derive(Debug)]
struct DrivenRunGuard {
    runs: DrivenRuns,
    run: RunId,
}

impl Drop for DrivenRunGuard {
    fn drop(&mut self) {
        self.runs.with_runs(|runs| runs.remove(&self.run));
    }
}

impl DriverPool {
    pub(super) fn new(ports: &EngineServices, concurrency: usize, hooks: Arc<dyn Hooks>) -> Self {
        let concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            services: ports.clone(),
            hooks,
            permits: Arc::new(Semaphore::new(concurrency)),
            tasks: JoinSet::new(),
            runs: DrivenRuns::default(),
        }
    }

    /// Whether this run is driven here.
    pub(super) fn is_driving(&self, run: RunId) -> bool {
        self.runs.with_runs(|runs| runs.contains(&run))
    }

    /// As many permits as are free now, up to `most`.
    pub(super) fn take_permits(&mut self, most: usize) -> Permits {
        while self.tasks.try_join_next().is_some() {}
        let take = || Arc::clone(&self.permits).try_acquire_owned().ok();
        std::iter::from_fn(take).take(most).collect()
    }

    /// Whether nobody is driven.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Drives a run, the permit inside.
    pub(super) fn drive(&mut self, charge: Assignment) {
        let (ports, hooks) = (self.services.clone(), Arc::clone(&self.hooks));
        let slot = charge.permit.clone();
        let entered = self.runs.insert(charge.claim.run);
        self.tasks.spawn(async move {
            drive_to_idle(&ports, &*hooks, charge).await;
            drop((entered, slot));
            // A lane may have moved on, or the run was let go of.
            ports.notifier.work_available();
        });
    }

    /// Returns when a drive has ended; never when none is under way.
    pub(super) async fn wait_one(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when every drive has ended.
    pub(super) async fn wait_all(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Drives one run and sees that nothing of it is left here.
async fn drive_to_idle(ports: &EngineServices, hooks: &dyn Hooks, charge: Assignment) {
    let run = charge.claim.run;
    run_hook(&*ports.clock, hooks.on_start(run)).await;
    let driven = AssertUnwindSafe(drive(ports, charge.clone()))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(Error::Internal { run, reason: "its driver panicked".to_owned() }));
    match driven {
        Ok(DriveOutcome::Idle) => run_status_hook(ports, hooks, run).await,
        Ok(DriveOutcome::Lost) => release_if_ours(ports, &charge).await,
        Err(error) => {
            tracing::error!(%run, error = %error_chain(&error), "a drive met a fault; the run is set aside");
            park_with_retries(ports, &charge).await;
        }
    }
}

/// Leaves a run that is mostly another's by now. One that is still ours, such
/// as one whose pure calls were cut off, is not kept from others: a worker that
/// goes home gives it back at once.
async fn release_if_ours(ports: &EngineServices, charge: &Assignment) {
    if charge.shutdown.is_draining() && !charge.lease.is_lost() {
        // Its drive has recorded that, where it could.
        let changes = vec![Change::SetHead(HeadUpdate::Release)];
        let given = update_head(ports, charge.worker, &charge.claim, changes).await;
        if let Err(error) = given {
            tracing::warn!(run = %charge.claim.run, %error, "it could not be given back");
        }
    }
}

/// Sets a run aside, however long the store takes to get over it.
async fn park_with_retries(ports: &EngineServices, charge: &Assignment) {
    while let Err(error) = park_after_error(ports, charge.worker, &charge.claim).await {
        if charge.lease.is_lost() || matches!(error, Error::InvalidJournal(_)) {
            return;
        }
        tracing::warn!(run = %charge.claim.run, %error, "it could not be set aside yet");
        let clock = &ports.clock;
        clock.sleep(PARK_RETRY_DELAY).await;
    }
}

async fn run_status_hook(ports: &EngineServices, hooks: &dyn Hooks, run: RunId) {
    let Ok(Some(row)) = ports.store.get_run(run).await else {
        return;
    };
    let row: RunRow = row;
    match row.status {
        Status::Completed => run_hook(&*ports.clock, hooks.on_complete(&row)).await,
        Status::Failed | Status::Cancelled => run_hook(&*ports.clock, hooks.on_error(&row)).await,
        Status::Pending | Status::Running | Status::Waiting | Status::Blocked | Status::Paused => {
            run_hook(&*ports.clock, hooks.on_idle(&row)).await
        }
    }
}

/// A hook that panics is noted and forgotten, and so is one that takes too long.
pub(super) async fn run_hook(clock: &dyn Clock, hook: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        heard = AssertUnwindSafe(hook).catch_unwind() => {
            if heard.is_err() {
                tracing::error!("a hook panicked");
            }
        }
        () = clock.sleep(HOOK_TIMEOUT) => {
            tracing::error!("a hook took longer than 10 s and was left");
        }
    }
}

/// An error with its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        cause = next.source();
    }
    said
}
