//! A worker inside a program: it drives what is submitted, and drains when it is told to stop.
//!
//! Never: loses a run. What a worker lets go of waits for the next one.

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
use crate::runtime_state::{RunningWorker, RuntimeState};

/// A worker that has not begun. It is made by [`Runtime::worker`](crate::Runtime::worker).
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
/// // The rest of the program, and at its end:
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

    /// Adds an inbox from which runs are taken; those that are added first go first. Without it
    /// runs are taken from the inboxes that the project names for its workers, else from
    /// `default`.
    pub fn inbox(mut self, name: impl AsRef<str>) -> Self {
        match InboxName::new(name.as_ref()) {
            Ok(name) => self.inboxes.push(name),
            Err(bad) => self.name_error = Some(bad),
        }
        self
    }

    /// Maximum number of runs that are driven at once.
    pub fn max_concurrent(mut self, runs: usize) -> Self {
        self.options.concurrency = runs;
        self
    }

    /// Called when a run was claimed and is about to be driven, also when it goes on after a
    /// crash or a wait. A hook must return soon: the run waits for it.
    pub fn on_task_start(mut self, hook: impl Fn(RunId) + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Box::new(hook));
        self
    }

    /// Called when a run has completed.
    pub fn on_task_complete(mut self, hook: impl Fn(&RunRow) + Send + Sync + 'static) -> Self {
        self.hooks.complete = Some(Box::new(hook));
        self
    }

    /// Called when a run has failed or was cancelled.
    pub fn on_task_error(mut self, hook: impl Fn(&RunRow) + Send + Sync + 'static) -> Self {
        self.hooks.error = Some(Box::new(hook));
        self
    }

    /// Called when there was nothing to claim and nothing is under way.
    pub fn on_empty(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.empty = Some(Box::new(hook));
        self
    }

    /// Drives runs in a task of its own until the handle is stopped or dropped. If it fails,
    /// whoever waits for a run or submits one is told, until another worker is started.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn spawn(self) -> WorkerHandle {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        let running = self.state.start_worker();
        task.spawn(self.drive_and_finish(running, stop.clone()));
        WorkerHandle { stop, task }
    }

    /// Drives runs until the token is cancelled. Then it begins nothing new, lets every run go
    /// at its next journal entry, and returns; calls that take longer than 30 seconds are cut off.
    ///
    /// To drop the future ends the worker at once, as a crash of the process would: calls are cut
    /// off where they stand, and those of class `Once` are in doubt. The next worker goes on with
    /// the runs when it sees that this one is gone, which takes up to 15 seconds. So cancel the
    /// token instead.
    ///
    /// # Errors
    /// [`Error::Worker`]: the name of an inbox can't be one, or the store failed.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let running = self.state.start_worker();
        self.drive_and_finish(running, stop).await
    }

    async fn drive_and_finish(
        self,
        running: RunningWorker,
        stop: CancellationToken,
    ) -> Result<(), Error> {
        let worked = self.drive(stop).await;
        running.finish(worked).await
    }

    async fn drive(self, stop: CancellationToken) -> Result<(), Error> {
        if let Some(bad) = self.name_error {
            return Err(bad.into());
        }
        let mut options = self.options;
        if !self.inboxes.is_empty() {
            options.inboxes = self.inboxes;
        }
        let ports = self.state.runtime.longhaul.services();
        let worker = EngineWorker::new(ports, options).with_hooks(Arc::new(self.hooks));
        let order = Shutdown::new();
        let background = async {
            let drain = async {
                stop.cancelled().await;
                order.drain();
            };
            let ((), ()) = tokio::join!(drain, run_change_reader(ports));
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

/// Tells those who wait for runs which journals have grown, so that they need not look at every
/// commit of any run themselves.
async fn run_change_reader(ports: &EngineServices) {
    let source =
        ChangeSource { store: &*ports.store, records: &*ports.records, clock: &*ports.clock };
    if let Err(error) = ports.changes.run_reader(source).await {
        tracing::warn!(%error, "those who wait for runs look for themselves from now on");
    }
}

/// A worker that drives runs in a task of its own. Dropped, it drains without being waited for.
#[must_use = "a worker stops when its handle is dropped"]
#[derive(Debug)]
pub struct WorkerHandle {
    stop: CancellationToken,
    task: JoinSet<Result<(), Error>>,
}

impl WorkerHandle {
    /// Begins nothing new, lets every run go at its next journal entry, and waits for that.
    ///
    /// # Errors
    /// [`Error::Worker`]: the name of an inbox can't be one, or the store failed.
    /// [`Error::TaskLost`]: the worker panicked.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        self.task.join_next().await.unwrap_or(Ok(Ok(())))?
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        // An abort would leave calls in doubt that may still end.
        self.task.detach_all();
    }
}

type RunHook = Box<dyn Fn(&RunRow) + Send + Sync>;

/// The closures that a program wants called.
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
