//! A worker inside a program: it drives what is submitted, and drains when it is told to stop.
//!
//! Never: loses a run. What a worker lets go of waits for the next one.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::stop::Stop;
use longhaul_engine::worker::Worker as EngineWorker;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::assemble::Assembled;
use crate::error::Error;

/// A worker that has not begun. It is made by [`Runtime::worker`](crate::Runtime::worker).
#[must_use = "a worker does nothing until it is spawned or run"]
#[derive(Debug)]
pub struct Worker {
    assembled: Assembled,
    hooks: TaskHooks,
}

impl Worker {
    pub(crate) fn new(assembled: Assembled) -> Self {
        Self {
            assembled,
            hooks: TaskHooks::default(),
        }
    }

    /// Maximum number of runs that are driven at once.
    pub fn max_concurrent(mut self, runs: usize) -> Self {
        self.assembled.worker.concurrency = runs;
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

    /// Drives runs in a task of its own until the handle is stopped or dropped.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn spawn(self) -> WorkerHandle {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(self.run(stop.clone()));
        WorkerHandle { stop, task }
    }

    /// Drives runs until the token is cancelled. Then it begins nothing new, lets every run go
    /// at its next journal entry, and returns; calls that take longer than 30 seconds are cut off.
    ///
    /// # Errors
    /// The store failed.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let order = Stop::new();
        let ports = self.assembled.longhaul.ports();
        let worker = EngineWorker::new(ports, self.assembled.worker.clone());
        let worker = worker.hooks(Arc::new(self.hooks));
        let mut working = std::pin::pin!(worker.run(order.clone()));
        let worked = tokio::select! {
            worked = working.as_mut() => worked,
            () = stop.cancelled() => {
                order.drain();
                working.await
            }
        };
        self.assembled.close().await;
        Ok(worked?)
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
    /// The store failed, or the worker's task was lost.
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
