//! The drives of a worker: each a task with its permit inside.
//!
//! Never: forgets one. A drive that met a fault lets go of its run.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use longhaul_core::change::{Change, HeadMove};
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::drive::charge::{Charge, Parting};
use crate::drive::drive;
use crate::error::Error;
use crate::hooks::Hooks;
use crate::ledger::{move_head, set_aside};
use crate::ports::Ports;

/// A run that could not be set aside is tried again after so long.
const ASIDE_PAUSE: Millis = Millis::from_secs(1);

/// So long is a hook waited for.
const HOOK_TIMEOUT: Millis = Millis::from_secs(10);

/// Permits to drive, taken before anything is claimed.
pub(super) type Room = Vec<OwnedSemaphorePermit>;

/// The drives under way.
#[derive(Debug)]
pub(super) struct Crew {
    ports: Ports,
    hooks: Arc<dyn Hooks>,
    permits: Arc<Semaphore>,
    drives: JoinSet<()>,
    runs: Runs,
}

/// The runs under way. Clones are the same.
#[derive(Debug, Clone, Default)]
struct Runs(Arc<Mutex<BTreeSet<RunId>>>);

impl Runs {
    fn with<T>(&self, use_it: impl FnOnce(&mut BTreeSet<RunId>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a run down until what is returned is dropped.
    fn enter(&self, run: RunId) -> Entered {
        self.with(|runs| runs.insert(run));
        Entered {
            runs: self.clone(),
            run,
        }
    }
}

/// A run that is written down as under way.
#[derive(Debug)]
struct Entered {
    runs: Runs,
    run: RunId,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.runs.with(|runs| runs.remove(&self.run));
    }
}

impl Crew {
    pub(super) fn new(ports: &Ports, concurrency: usize, hooks: Arc<dyn Hooks>) -> Self {
        let concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            ports: ports.clone(),
            hooks,
            permits: Arc::new(Semaphore::new(concurrency)),
            drives: JoinSet::new(),
            runs: Runs::default(),
        }
    }

    /// Whether this run is driven here.
    pub(super) fn drives(&self, run: RunId) -> bool {
        self.runs.with(|runs| runs.contains(&run))
    }

    /// As many permits as are free now, up to `most`.
    pub(super) fn room(&mut self, most: usize) -> Room {
        while self.drives.try_join_next().is_some() {}
        let take = || Arc::clone(&self.permits).try_acquire_owned().ok();
        std::iter::from_fn(take).take(most).collect()
    }

    /// Whether nobody is driven.
    pub(super) fn is_empty(&self) -> bool {
        self.drives.is_empty()
    }

    /// Drives a run, the permit inside.
    pub(super) fn drive(&mut self, charge: Charge) {
        let (ports, hooks) = (self.ports.clone(), Arc::clone(&self.hooks));
        let slot = charge.slot.clone();
        let entered = self.runs.enter(charge.claimed.run);
        self.drives.spawn(async move {
            see_through(&ports, &*hooks, charge).await;
            drop((entered, slot));
            // A lane may have moved on, or the run was let go of.
            ports.nudges.may_be_ready();
        });
    }

    /// Returns when a drive has ended; never when none is under way.
    pub(super) async fn freed(&mut self) {
        if self.drives.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when every drive has ended.
    pub(super) async fn ended(&mut self) {
        while self.drives.join_next().await.is_some() {}
    }
}

/// Drives one run and sees that nothing of it is left here.
async fn see_through(ports: &Ports, hooks: &dyn Hooks, charge: Charge) {
    let run = charge.claimed.run;
    told(&*ports.clock, hooks.on_start(run)).await;
    let driven = AssertUnwindSafe(drive(ports, charge.clone()))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            Err(Error::Stuck {
                run,
                why: "its driver panicked".to_owned(),
            })
        });
    match driven {
        Ok(Parting::Rested) => tell_hooks(ports, hooks, run).await,
        Ok(Parting::Gone) => leave(ports, &charge).await,
        Err(error) => {
            tracing::error!(%run, error = %chain(&error), "a drive met a fault; the run is set aside");
            put_aside(ports, &charge).await;
        }
    }
}

/// Leaves a run that is mostly another's by now. One that is still ours, such
/// as one whose pure calls were cut off, is not kept from others: a worker that
/// goes home gives it back at once.
async fn leave(ports: &Ports, charge: &Charge) {
    if charge.stop.is_draining() && !charge.lease.is_lost() {
        // Its drive has recorded that, where it could.
        let changes = vec![Change::SetHead(HeadMove::Release)];
        let given = move_head(ports, charge.worker, &charge.claimed, changes).await;
        if let Err(error) = given {
            tracing::warn!(run = %charge.claimed.run, %error, "it could not be given back");
        }
    }
}

/// Sets a run aside, however long the store takes to get over it.
async fn put_aside(ports: &Ports, charge: &Charge) {
    while let Err(error) = set_aside(ports, charge.worker, &charge.claimed).await {
        if charge.lease.is_lost() || matches!(error, Error::Misfit(_)) {
            return;
        }
        tracing::warn!(run = %charge.claimed.run, %error, "it could not be set aside yet");
        let clock = &ports.clock;
        clock.sleep(ASIDE_PAUSE).await;
    }
}

async fn tell_hooks(ports: &Ports, hooks: &dyn Hooks, run: RunId) {
    let Ok(Some(row)) = ports.store.row(run).await else {
        return;
    };
    let row: RunRow = row;
    match row.status {
        Status::Completed => told(&*ports.clock, hooks.on_complete(&row)).await,
        Status::Failed | Status::Cancelled => told(&*ports.clock, hooks.on_error(&row)).await,
        Status::Pending | Status::Running | Status::Waiting | Status::Blocked | Status::Paused => {
            told(&*ports.clock, hooks.on_rest(&row)).await
        }
    }
}

/// A hook that panics is noted and forgotten, and so is one that takes too long.
pub(super) async fn told(clock: &dyn Clock, hook: impl Future<Output = ()>) {
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
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        cause = next.source();
    }
    said
}
