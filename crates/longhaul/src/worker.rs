//! A worker inside a program: it drives submitted runs. When it is asked to stop, it releases them
//! and then ends.
//!
//! Invariant: no run is lost. A run that a worker releases waits for the next worker.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::id::{IdError, InboxName, RunId};
use longhaul_core::port::store::RunRow;
use longhaul_engine::changes::ChangeSource;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::services::EngineServices;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::{Worker as EngineWorker, WorkerOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::runtime_state::{RunningWorkerGuard, RuntimeState};

/// A worker that is not started yet. Created by [`Runtime::worker`](crate::Runtime::worker).
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// let worker = runtime
///     .worker()
///     .inbox("default")
///     .inbox("mail")
///     .max_concurrent(4)
///     .on_task_error(|run| eprintln!("{} failed", run.id))
///     .spawn();
/// // The rest of the program. At its end:
/// worker.stop().await
/// # }
/// ```
#[must_use = "a worker does nothing until it is spawned or run"]
#[derive(Debug)]
pub struct Worker {
    state: Arc<RuntimeState>,
    options: WorkerOptions,
    inboxes: Vec<InboxName>,
    name_error: Option<IdError>,
    hooks: TaskHooks,
}

impl Worker {
    pub(crate) fn new(state: Arc<RuntimeState>) -> Self {
        Self {
            options: state.worker_options.clone(),
            state,
            inboxes: Vec::new(),
            name_error: None,
            hooks: TaskHooks::default(),
        }
    }

    /// Adds an inbox from which the worker takes runs. Inboxes that were added first have
    /// precedence. If this method is not called, the inboxes of the project's `[worker]` settings
    /// are used, or else `default`.
    pub fn inbox(mut self, name: impl AsRef<str>) -> Self {
        match InboxName::new(name.as_ref()) {
            Ok(name) => self.inboxes.push(name),
            Err(bad) => self.name_error = Some(bad),
        }
        self
    }

    /// Sets the maximum number of runs that are driven at the same time.
    pub fn max_concurrent(mut self, runs: usize) -> Self {
        self.options.concurrency = runs;
        self
    }

    /// Sets the hook that is called after a run was claimed and before it is driven. It is also
    /// called when a run continues after a crash or a wait. The hook must return quickly: the run
    /// waits for it.
    pub fn on_task_start(mut self, hook: impl Fn(RunId) + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Box::new(hook));
        self
    }

    /// Sets the hook that is called when a run has completed.
    pub fn on_task_complete(mut self, hook: impl Fn(&RunRow) + Send + Sync + 'static) -> Self {
        self.hooks.complete = Some(Box::new(hook));
        self
    }

    /// Sets the hook that is called when a run has failed or was cancelled.
    pub fn on_task_error(mut self, hook: impl Fn(&RunRow) + Send + Sync + 'static) -> Self {
        self.hooks.error = Some(Box::new(hook));
        self
    }

    /// Sets the hook that is called when there is no run to claim and no run is in progress.
    pub fn on_empty(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.empty = Some(Box::new(hook));
        self
    }

    /// Drives runs in a background task until the returned handle is stopped or dropped. If the
    /// worker fails, submitting a run and waiting for a run return an error until another worker is
    /// started.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    pub fn spawn(self) -> WorkerHandle {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        let running = self.state.register_worker();
        task.spawn(self.drive_until_stopped(running, stop.clone()));
        WorkerHandle { stop, task }
    }

    /// Drives runs until the token is cancelled. Then it starts nothing new, releases every run at
    /// its next journal entry, and returns. Calls that take longer than 30 seconds are aborted.
    ///
    /// Dropping the future ends the worker at once, like a crash of the process: calls are aborted,
    /// and calls of class `Once` are in doubt. The next worker takes over the runs when it notices
    /// that this one is gone, which takes up to 15 seconds. Cancel the token instead.
    ///
    /// # Errors
    /// [`Error::Worker`]: the name of an inbox is invalid, or the store failed.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let running = self.state.register_worker();
        self.drive_until_stopped(running, stop).await
    }

    async fn drive_until_stopped(
        self,
        running: RunningWorkerGuard,
        stop: CancellationToken,
    ) -> Result<(), Error> {
        let worked = self.drive_runs(stop).await;
        running.finish(worked).await
    }

    async fn drive_runs(self, stop: CancellationToken) -> Result<(), Error> {
        if let Some(bad) = self.name_error {
            return Err(bad.into());
        }
        let mut options = self.options;
        if !self.inboxes.is_empty() {
            options.inboxes = self.inboxes;
        }
        let services = self.state.runtime.longhaul.services();
        let worker = EngineWorker::new(services, options).with_hooks(Arc::new(self.hooks));
        let order = Shutdown::new();
        let background = async {
            let drain = async {
                stop.cancelled().await;
                order.request_drain();
            };
            let ((), ()) = tokio::join!(drain, forward_journal_changes(services));
            std::future::pending().await
        };
        let worked = tokio::select! {
            biased;
            worked = worker.run(order.clone()) => worked,
            never = background => never,
        };
        Ok(worked?)
    }
}

/// Reads from the store which journals have grown and notifies the callers that wait for these
/// runs, so that the callers need not poll the store.
async fn forward_journal_changes(services: &EngineServices) {
    let source = ChangeSource {
        store: &*services.store,
        records: &*services.records,
        clock: &*services.clock,
    };
    if let Err(error) = services.changes.read_changes(source).await {
        tracing::warn!(%error, "the change feed failed; callers that wait for runs check the store themselves from now on");
    }
}

/// Handle of a worker that runs in a background task. If the handle is dropped, the worker releases
/// its runs and ends, without anybody waiting for it.
#[must_use = "a worker stops when its handle is dropped"]
#[derive(Debug)]
pub struct WorkerHandle {
    stop: CancellationToken,
    task: JoinSet<Result<(), Error>>,
}

impl WorkerHandle {
    /// Stops the worker: it starts nothing new and releases every run at its next journal entry.
    /// Waits until all runs are released.
    ///
    /// # Errors
    /// [`Error::Worker`]: the name of an inbox is invalid, or the store failed.
    /// [`Error::TaskLost`]: the worker panicked.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        self.task.join_next().await.unwrap_or(Ok(Ok(())))?
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        // Aborting the task would leave calls in doubt that can still finish.
        self.task.detach_all();
    }
}

type RunHook = Box<dyn Fn(&RunRow) + Send + Sync>;

/// Hooks that the program sets to follow the worker.
#[derive(Default)]
struct TaskHooks {
    start: Option<Box<dyn Fn(RunId) + Send + Sync>>,
    complete: Option<RunHook>,
    error: Option<RunHook>,
    empty: Option<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for TaskHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskHooks")
    }
}

#[async_trait]
impl Hooks for TaskHooks {
    async fn on_start(&self, run: RunId) {
        if let Some(hook) = &self.start {
            hook(run);
        }
    }

    async fn on_complete(&self, run: &RunRow) {
        if let Some(hook) = &self.complete {
            hook(run);
        }
    }

    async fn on_error(&self, run: &RunRow) {
        if let Some(hook) = &self.error {
            hook(run);
        }
    }

    async fn on_empty(&self) {
        if let Some(hook) = &self.empty {
            hook();
        }
    }
}
