//! The drivers of a worker: one async task per run, each holding a permit.
//!
//! Invariant: if a driver fails or panics, its run is parked.
//!
//! When a worker gives up a run that has not ended, the run is parked, or released to be claimed
//! again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::change::{
    JournalBatch, RowChange, RunSchedulingUpdate, TimerDueTime, TimerKind, TimerUpdate,
};
use longhaul_core::id::{RunId, TimerId, WorkerId};
use longhaul_core::port::store::{AppendRequest, AppendResult, Claim, JournalAuthor};
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use longhaul_core::wait::WaitKind;
use longhaul_run::{DecisionContext, RunInput, decide};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::drive::assignment::{DriveRunOutcome, RunAssignment};
use crate::drive::drive_run;
use crate::error::{Error, Result};
use crate::panics::guard;
use crate::replay::replay_run_state;
use crate::services::{Services, release_external_tools};
use crate::worker::options::WorkerHooks;

/// Delay before the worker tries again to park a run whose driver failed.
const PARK_RETRY_DELAY: Millis = Millis::from_secs(1);

/// Timeout of one call of a hook.
const HOOK_TIMEOUT: Millis = Millis::from_secs(10);

/// Permits to drive runs, acquired before runs are claimed. Each run needs one.
pub(super) type Permits = Vec<OwnedSemaphorePermit>;

/// The running drivers of a worker.
#[derive(Debug)]
pub(super) struct DriverPool {
    services: Services,
    hooks: Arc<dyn WorkerHooks>,
    permits: Arc<Semaphore>,
    tasks: JoinSet<()>,
    empty_hooks: JoinSet<()>,
}

/// Delay before a run whose driver (the async task that executes it) failed is claimed again.
const ERROR_DELAY: Millis = Millis::from_secs(30);

impl DriverPool {
    pub(super) fn new(
        services: &Services,
        permits: Arc<Semaphore>,
        hooks: Arc<dyn WorkerHooks>,
    ) -> Self {
        Self {
            services: services.clone(),
            hooks,
            permits,
            tasks: JoinSet::new(),
            empty_hooks: JoinSet::new(),
        }
    }

    /// Acquires the permits that are free now, up to a maximum.
    pub(super) fn take_free_permits(&mut self, max: usize) -> Permits {
        while self.tasks.try_join_next().is_some() {}
        let take = || Arc::clone(&self.permits).try_acquire_owned().ok();
        std::iter::from_fn(take).take(max).collect()
    }

    /// Whether no driver is running.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Starts a driver for the assigned run. The driver holds the permit of the assignment.
    pub(super) fn start_driver(&mut self, assignment: RunAssignment) {
        let (services, hooks) = (self.services.clone(), Arc::clone(&self.hooks));
        let slot = assignment.permit.clone();
        let claim = RunClaimId { run: assignment.claim.run, epoch: assignment.claim.epoch };
        let driven = services.notifier.register_driven_claim(claim);
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = driven.wait_for_stop() => release_external_tools(&services, claim).await,
                () = drive_run_to_idle(&services, &*hooks, assignment) => {}
            }
            drop((driven, slot));
            // The lane may have advanced, or the run was released.
            services.notifier.notify_runs_ready();
        });
    }

    /// Waits until a driver has ended. Waits forever if no driver is running.
    pub(super) async fn wait_for_any_driver(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Calls the hook `on_no_run_found` in the background, so that it can't delay a claim.
    pub(super) fn start_no_run_found_hook(&mut self) {
        while self.empty_hooks.try_join_next().is_some() {}
        let (services, hooks) = (self.services.clone(), Arc::clone(&self.hooks));
        self.empty_hooks
            .spawn(async move { run_hook(&*services.clock, hooks.on_no_run_found()).await });
    }

    /// Waits until every driver and every hook has ended.
    pub(super) async fn wait_for_all_drivers(&mut self) {
        while self.tasks.join_next().await.is_some() {}
        while self.empty_hooks.join_next().await.is_some() {}
    }

    /// Aborts the drivers and hooks that have not ended. A driver that does not yield to the async
    /// runtime ends later.
    pub(super) fn abort_drivers(&mut self) {
        self.tasks.abort_all();
        self.empty_hooks.abort_all();
    }
}

/// Drives one run until it is idle and cleans up afterwards, also after an error or a panic.
async fn drive_run_to_idle(
    services: &Services,
    hooks: &dyn WorkerHooks,
    assignment: RunAssignment,
) {
    let run = assignment.claim.run;
    run_hook(&*services.clock, hooks.on_run_claimed(run)).await;
    let driven = AssertUnwindSafe(drive_run(services, assignment.clone()))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(Error::Internal { run, reason: "its driver panicked".to_owned() }));
    match driven {
        Ok(DriveRunOutcome::Idle) => run_hook_for_status(services, hooks, run).await,
        Ok(DriveRunOutcome::Lost) => release_run_if_still_claimed(services, &assignment).await,
        Err(error) => {
            tracing::error!(%run, error = %format_error_chain(&error), "executing the run failed; the run is parked");
            park_run_with_retries(services, &assignment).await;
        }
    }
}

/// Releases a run whose driver has stopped because it may not continue. Usually another worker has
/// claimed the run already. If the claim is still valid during a shutdown, for example because
/// calls without effects were aborted, the run is released at once.
async fn release_run_if_still_claimed(services: &Services, assignment: &RunAssignment) {
    if assignment.shutdown.is_draining() && !assignment.lease.is_lost() {
        // The driver has appended a release event where that was possible.
        let changes = vec![RowChange::UpdateScheduling(RunSchedulingUpdate::Release)];
        let result =
            change_claimed_run(services, assignment.worker, &assignment.claim, changes).await;
        if let Err(error) = result {
            tracing::warn!(run = %assignment.claim.run, %error, "could not release the run");
        }
    }
}

/// Parks a run whose driver failed, retrying until the store accepts it.
async fn park_run_with_retries(services: &Services, assignment: &RunAssignment) {
    while let Err(error) =
        park_run_after_error(services, assignment.worker, &assignment.claim).await
    {
        if assignment.lease.is_lost() || matches!(error, Error::InvalidJournal(_)) {
            return;
        }
        tracing::warn!(run = %assignment.claim.run, %error, "could not park the run; retrying");
        let clock = &services.clock;
        clock.sleep(PARK_RETRY_DELAY).await;
    }
}

/// Runs the hook for the status in which a driver has left a run: completed, failed or idle.
async fn run_hook_for_status(services: &Services, hooks: &dyn WorkerHooks, run: RunId) {
    let Ok(Some(row)) = services.store.get_run(run).await else { return };
    match row.status {
        Status::Completed => run_hook(&*services.clock, hooks.on_run_completed(&row)).await,
        Status::Failed | Status::Cancelled => {
            run_hook(&*services.clock, hooks.on_run_failed(&row)).await
        }
        Status::Pending | Status::Running | Status::Waiting | Status::Blocked | Status::Paused => {
            run_hook(&*services.clock, hooks.on_run_idle(&row)).await
        }
    }
}

/// Runs a hook with a timeout. A panic is logged and ignored.
async fn run_hook(clock: &dyn Clock, hook: impl Future<Output = ()>) {
    if let Err(error) = guard(clock, HOOK_TIMEOUT, hook).await {
        tracing::error!("a hook {error}");
    }
}

/// Formats an error together with its causes.
fn format_error_chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        message = format!("{message}: {source}");
        cause = source.source();
    }
    message
}

/// Parks a run whose driver failed. After a delay the run is claimed again under a new epoch (claim
/// number), so that unfinished calls are in doubt (their outcome is unknown) and are not simply
/// repeated.
pub(crate) async fn park_run_after_error(
    services: &Services,
    worker: WorkerId,
    claimed: &Claim,
) -> Result<()> {
    let run = claimed.run;
    let now = services.records.now().await?;
    let arm = TimerUpdate::Arm {
        timer: TimerId::derive(run.bits(), &format!("retry:{}", claimed.epoch.0), now),
        run,
        due: TimerDueTime::After(ERROR_DELAY),
        kind: TimerKind::Delay(ERROR_DELAY),
    };
    let park = RunSchedulingUpdate::Park {
        reason: WaitKind::Retry.code(),
        blocked: false,
        release_lane: false,
    };
    let changes = vec![RowChange::SetTimer(arm), RowChange::UpdateScheduling(park)];
    change_claimed_run(services, worker, claimed, changes).await
}

/// Releases a claimed run, so that another worker can claim it and restart what may be repeated. A
/// release event is appended where possible, so that the release does not count as a crash.
pub(crate) async fn release_run(
    services: &Services,
    worker: WorkerId,
    claimed: &Claim,
) -> Result<()> {
    let Claim { run, epoch, .. } = *claimed;
    let (folded, now) = replay_run_state(services, run).await?;
    if let Ok(batch) = decide(&folded, RunInput::Release, DecisionContext::new(now)) {
        let author = JournalAuthor::Driver { worker, epoch, after: folded.seq() };
        let appended =
            services.store.append_to_journal(AppendRequest { run, author, batch }).await?;
        if appended != AppendResult::Conflict {
            return Ok(());
        }
    }
    let changes = vec![RowChange::UpdateScheduling(RunSchedulingUpdate::Release)];
    change_claimed_run(services, worker, claimed, changes).await
}

/// Changes rows of a run in the store without appending an event. Does nothing if the claim is no
/// longer valid.
pub(crate) async fn change_claimed_run(
    services: &Services,
    worker: WorkerId,
    claimed: &Claim,
    changes: Vec<RowChange>,
) -> Result<()> {
    let run = claimed.run;
    loop {
        let Some(row) = services.store.get_run(run).await? else { return Ok(()) };
        let author = JournalAuthor::Driver { worker, epoch: claimed.epoch, after: row.last_seq };
        let batch = JournalBatch { events: Vec::new(), changes: changes.clone() };
        // On a conflict the same changes are tried again after the new last entry.
        let appended =
            services.store.append_to_journal(AppendRequest { run, author, batch }).await?;
        if appended != AppendResult::Conflict {
            return Ok(());
        }
    }
}
