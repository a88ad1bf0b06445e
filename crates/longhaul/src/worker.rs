//! A worker inside a program: it drives submitted runs. When it is asked to stop, it releases them
//! (gives up its claims on them) and then ends.
//!
//! Invariant: no run is lost. A run that a worker releases waits for the next worker.

pub(crate) mod callbacks;

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use longhaul_core::id::{IdError, InboxName, RunId};
use longhaul_core::port::store::RunRow;
use longhaul_core::task::TaskSpec;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::{TaskFilter, Worker as EngineWorker, WorkerOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::inbox::{Inbox, InboxWorker, add_inbox_names, serve_inboxes};
use crate::runtime_state::{RunningWorkerGuard, RuntimeState};
use crate::worker::callbacks::{CallbackWorkerHooks, WorkerCallbacks};

pub use crate::worker::callbacks::FailedTask;

/// A worker that drives the runs of inboxes. Created by
/// [`Runtime::worker`](crate::Runtime::worker), started by [`spawn`](Self::spawn) or
/// [`run`](Self::run). Cheap to clone; clones share state.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// let worker = runtime
///     .worker()
///     .inbox("default")
///     .inbox("mail")
///     .types(["letter", "invoice"])
///     .filter(|task| task.priority > 0)
///     .max_concurrent(4)
///     .on_task_error(|task| eprintln!("{task}"))
///     .spawn();
/// // The rest of the program. At its end:
/// worker.stop().await
/// # }
/// ```
#[must_use = "a worker does nothing until it is spawned or run"]
#[derive(Debug, Clone)]
pub struct Worker {
    state: Arc<RuntimeState>,
    options: WorkerOptions,
    /// Names of the inboxes, or the error of the first invalid name.
    inboxes: Result<Vec<InboxName>, IdError>,
    sources: Vec<Arc<dyn Inbox>>,
    filter: Option<TaskFilter>,
    callbacks: WorkerCallbacks,
    stops_on_signals: bool,
    /// Token that stops the worker. It exists while the worker runs.
    running: Arc<Mutex<Weak<CancellationToken>>>,
}

impl Worker {
    pub(crate) fn new(state: Arc<RuntimeState>) -> Self {
        Self {
            options: state.worker.clone(),
            state,
            inboxes: Ok(Vec::new()),
            sources: Vec::new(),
            filter: None,
            callbacks: WorkerCallbacks::default(),
            stops_on_signals: false,
            running: Arc::default(),
        }
    }

    /// Adds an inbox from which the worker takes runs. Several inboxes are served in turn, so that
    /// none of them starves. If this method is not called, the inboxes of the project's `[worker]`
    /// settings are used, or else `default`.
    pub fn inbox(mut self, name: impl AsRef<str>) -> Self {
        self.inboxes = self.inboxes.and_then(|mut inboxes| {
            inboxes.push(InboxName::new(name.as_ref())?);
            Ok(inboxes)
        });
        self
    }

    /// Adds types of tasks. The worker then takes only tasks of these types. Tasks of other types
    /// stay in the queue and do not slow the worker down. Default: all types.
    pub fn types(mut self, task_types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.types.extend(task_types.into_iter().map(Into::into));
        self
    }

    /// Sets a filter: the worker takes only tasks for which the function returns `true`. It is
    /// called again for a refused task when the queue has changed, and from time to time. It runs
    /// on a thread of its own. If it panics, or does not return within a second, this worker does
    /// not take the task, and the log says so. While 32 calls have not returned, the worker takes
    /// no tasks, logs an error each minute, and does not count as serving its inboxes. Each waiting
    /// task is read for the filter, so prefer [`types`](Self::types) if they suffice.
    pub fn filter(mut self, accepts: impl Fn(&TaskSpec) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(TaskFilter::new(accepts));
        self
    }

    /// Serves an external inbox: its tasks become runs, which this worker drives, and the worker
    /// reports to the inbox how they ended. See [`inbox`](crate::inbox).
    pub fn source(mut self, inbox: impl Inbox) -> Self {
        self.sources.push(Arc::new(inbox));
        self
    }

    /// Sets the maximum number of runs that are driven at the same time. Default: `[worker]
    /// concurrency` if the project sets it, or else 1.
    pub fn max_concurrent(mut self, runs: usize) -> Self {
        self.options.concurrency = runs;
        self
    }

    /// Sets how long running calls may continue after the worker was asked to stop. Then they are
    /// aborted, and their runs can be claimed by the next worker at once. Default: 30 seconds.
    pub fn grace(mut self, timeout_after_stop: Duration) -> Self {
        self.options.drain_timeout = timeout_after_stop.into();
        self
    }

    /// Stops the worker on SIGTERM and SIGINT (Ctrl-C), like [`stop`](Self::stop). A second signal
    /// aborts running calls. From the first start of such a worker on, these signals no longer end
    /// the process by themselves.
    pub fn stop_on_signals(mut self) -> Self {
        self.stops_on_signals = true;
        self
    }

    /// Sets the callback that is called after a run was claimed and before it is driven. It is also
    /// called when a run continues after a crash or a wait.
    ///
    /// Callbacks run on one thread, in the order of the calls. The worker waits at most a second
    /// for a callback: a slow one is not interrupted, and later calls wait for it. A panic is
    /// logged and changes nothing. Callbacks are called at most once: a crash of the process loses
    /// them.
    pub fn on_task_start(mut self, callback: impl Fn(RunId) + Send + Sync + 'static) -> Self {
        self.callbacks.start = Some(Arc::new(callback));
        self
    }

    /// Sets the callback that is called when a run has completed, and after
    /// [`Inbox::complete`] if its task is of an external inbox. It runs like the one of
    /// [`on_task_start`](Self::on_task_start).
    pub fn on_task_complete(mut self, callback: impl Fn(&RunRow) + Send + Sync + 'static) -> Self {
        self.callbacks.complete = Some(Arc::new(callback));
        self
    }

    /// Sets the callback that is called when a run has failed or was cancelled, or when a task of an
    /// external inbox can't become a run. For a task of an external inbox it is called after
    /// [`Inbox::fail`]. It runs like the one of [`on_task_start`](Self::on_task_start).
    pub fn on_task_error(mut self, callback: impl Fn(&FailedTask) + Send + Sync + 'static) -> Self {
        self.callbacks.error = Some(Arc::new(callback));
        self
    }

    /// Sets the callback that is called when no run is left to claim, none is in progress, and no
    /// external inbox has a task: once at the start if there is nothing to do, and then once each
    /// time the last run was driven. It runs like the one of [`on_task_start`](Self::on_task_start).
    pub fn on_empty(mut self, callback: impl Fn() + Send + Sync + 'static) -> Self {
        self.callbacks.empty = Some(Arc::new(callback));
        self
    }

    /// Drives runs in a background task until the returned handle is stopped or dropped. If the
    /// worker fails, submitting a run and waiting for a run return an error until another worker is
    /// started. If this worker is already running, a warning is logged, and the returned handle
    /// does nothing.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    pub fn spawn(&self) -> WorkerHandle {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        if let Some(running) = self.try_mark_running(&stop) {
            let worker = self.clone();
            task.spawn(async move { worker.drive_runs_and_record_end(running).await });
        }
        WorkerHandle { stop, task }
    }

    /// Drives runs until the token is cancelled or [`stop`](Self::stop) is called. Then it starts
    /// nothing new, gives up its claim on every run at the run's next journal entry, and returns.
    /// Calls that take longer than the [`grace`](Self::grace) period are aborted. If this worker is
    /// already running, a warning is logged, and this method returns at once.
    ///
    /// Dropping the future ends the worker at once, like a crash of the process: calls are aborted,
    /// and calls of class `Once` are in doubt. The next worker takes over the runs when it notices
    /// that this one is gone, which takes up to 15 seconds. Cancel the token instead.
    ///
    /// # Errors
    /// [`Error::Worker`]: the name of an inbox is invalid, the maximum number of runs is 0, or the
    /// store failed.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        match self.try_mark_running(&stop) {
            Some(running) => self.drive_runs_and_record_end(running).await,
            None => Ok(()),
        }
    }

    /// Asks this worker to stop, wherever it runs. Does not wait until it has stopped. Does nothing
    /// if the worker does not run.
    pub fn stop(&self) {
        if let Some(stop) = self.lock_running().upgrade() {
            stop.cancel();
        }
    }

    fn lock_running(&self) -> MutexGuard<'_, Weak<CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks this worker as running until the returned token is dropped. Returns `None` if it is
    /// running already.
    fn try_mark_running(
        &self,
        stop: &CancellationToken,
    ) -> Option<(Arc<CancellationToken>, RunningWorkerGuard)> {
        let mut running = self.lock_running();
        if running.strong_count() > 0 {
            tracing::warn!("this worker is running already; it is not started a second time");
            return None;
        }
        let stop = Arc::new(stop.child_token());
        *running = Arc::downgrade(&stop);
        Some((stop, self.state.register_worker()))
    }

    /// Drives runs until the worker stops, and records whether the worker failed.
    async fn drive_runs_and_record_end(
        &self,
        (stop, worker_guard): (Arc<CancellationToken>, RunningWorkerGuard),
    ) -> Result<(), Error> {
        let result = self.drive_runs(&stop).await;
        worker_guard.record_end(result).await
    }

    async fn drive_runs(&self, stop: &CancellationToken) -> Result<(), Error> {
        let inboxes = self.inboxes.clone()?;
        if self.options.concurrency == 0 {
            return Err(Error::NoConcurrency);
        }
        let mut options = self.options.clone();
        if !inboxes.is_empty() {
            options.inboxes = inboxes;
        }
        add_inbox_names(&mut options, &self.sources)?;
        let types = options.types.clone();
        let mut callback_hooks = None;
        let longhaul = &self.state.longhaul;
        let services = longhaul.services();
        let mut worker = EngineWorker::new(services, options).with_schedules(longhaul);
        if !self.callbacks.is_empty() {
            let hooks = CallbackWorkerHooks::start_callback_thread(
                self.callbacks.clone(),
                services,
                self.sources.iter().map(|inbox| inbox.name().to_owned()).collect(),
            );
            let hooks = Arc::new(hooks.map_err(Error::WorkerSetup)?);
            callback_hooks = Some(Arc::clone(&hooks));
            worker = worker.with_hooks(hooks);
        }
        if let Some(filter) = &self.filter {
            worker = worker.with_filter(filter.clone());
        }
        let served_worker = InboxWorker {
            filter: self.filter.clone(),
            hooks: callback_hooks,
            ..InboxWorker::new(types, worker.intake())
        };
        let shutdown = Shutdown::new();
        let mut signals = match self.stops_on_signals {
            true => Some(listen_for_stop_signals().map_err(Error::WorkerSetup)?),
            false => None,
        };
        let sources = serve_inboxes(longhaul, &self.sources, &served_worker, &shutdown);
        let background = async {
            let drain = async {
                stop.cancelled().await;
                shutdown.request_drain();
            };
            let on_signals = async {
                if let Some(signals) = &mut signals {
                    wait_for_signal(signals).await;
                    shutdown.request_drain();
                    wait_for_signal(signals).await;
                    shutdown.request_abort();
                }
            };
            // Callers that wait for runs learn from the feed which journals have grown, so that they
            // need not poll the store.
            let changes = async {
                if let Err(error) = services.notify_subscribers().await {
                    tracing::warn!(%error, "the change feed failed; callers that wait for runs check the store themselves from now on");
                }
            };
            let ((), (), (), ()) = tokio::join!(drain, on_signals, changes, sources);
            pending().await
        };
        let result = tokio::select! {
            biased;
            result = worker.run(shutdown.clone()) => result,
            never = background => never,
        };
        Ok(result?)
    }
}

/// Returns the signals that stop a worker: SIGTERM and SIGINT.
fn listen_for_stop_signals() -> std::io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

async fn wait_for_signal([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Handle of a worker that runs in a background task, returned by [`Worker::spawn`]. If the handle
/// is dropped, the worker stops in the background, and its runs wait for the next worker.
///
/// ```
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// let worker = runtime.worker().spawn();
/// // The program submits tasks here.
/// worker.stop().await
/// # }
/// ```
#[must_use = "a worker stops when its handle is dropped"]
#[derive(Debug)]
pub struct WorkerHandle {
    stop: CancellationToken,
    task: JoinSet<Result<(), Error>>,
}

impl WorkerHandle {
    /// Stops the worker: it starts nothing new, and gives up its claim on every run at the run's
    /// next journal entry. Waits until the worker has given up all claims.
    ///
    /// # Errors
    /// [`Error::Worker`]: the name of an inbox is invalid, the maximum number of runs is 0, or the
    /// store failed.
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
