//! The callbacks of a worker, and the failed tasks that they receive. Callbacks run on a thread of
//! their own, one after another in the order in which the worker called them, so that a callback
//! that blocks or panics does not stop the worker.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use async_trait::async_trait;
use longhaul_core::event::Event;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{JournalReadRequest, RunRow, Store};
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::services::Services;
use longhaul_engine::worker::WorkerHooks;
use tokio::sync::oneshot;

/// Maximum time for which the worker waits until a callback has returned.
const CALLBACK_WAIT: Millis = Millis::from_secs(1);

/// Maximum number of calls that wait while an earlier callback has not returned.
const WAITING_MAX: usize = 1_024;

type RunCallback = Arc<dyn Fn(&RunRow) + Send + Sync>;
type TaskErrorCallback = Arc<dyn Fn(&FailedTask) + Send + Sync>;

/// A task that has failed or was cancelled. See
/// [`Worker::on_task_error`](crate::Worker::on_task_error).
///
/// ```
/// # fn log(task: &longhaul::FailedTask) {
/// match &task.run {
///     Some(run) => eprintln!("{} of the agent {} failed: {}", run.id, run.agent, task.code),
///     None => eprintln!("{task}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FailedTask {
    /// Run of the task. `None` if a task of an external inbox could not become a run, for example
    /// because its agent does not exist.
    pub run: Option<RunRow>,
    /// Id of the task in its external inbox. `None` if the task was submitted to the store.
    pub task_id: Option<String>,
    /// Error code, such as `agent_not_found`, or `cancelled`.
    pub code: String,
}

impl FailedTask {
    pub(crate) fn of_run(run: &RunRow, task_id: Option<&str>) -> Self {
        let code = run.code.clone().unwrap_or_else(|| run.status.as_str().to_owned());
        Self { run: Some(run.clone()), task_id: task_id.map(str::to_owned), code }
    }

    pub(crate) fn without_run(task_id: &str, code: &str) -> Self {
        Self { run: None, task_id: Some(task_id.to_owned()), code: code.to_owned() }
    }
}

impl fmt::Display for FailedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.run, &self.task_id) {
            (Some(run), _) => write!(f, "{} failed: {}", run.id, self.code),
            (None, task_id) => {
                let id = task_id.as_deref().unwrap_or_default();
                write!(f, "the task `{id}` failed: {}", self.code)
            }
        }
    }
}

/// Callbacks of the program, called when a run starts, completes or fails, or when no run is left.
#[derive(Clone, Default)]
pub(super) struct WorkerCallbacks {
    pub(super) start: Option<Arc<dyn Fn(RunId) + Send + Sync>>,
    pub(super) complete: Option<RunCallback>,
    pub(super) error: Option<TaskErrorCallback>,
    pub(super) empty: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl WorkerCallbacks {
    /// Returns whether no callback is set.
    pub(super) fn is_empty(&self) -> bool {
        let Self { start, complete, error, empty } = self;
        start.is_none() && complete.is_none() && error.is_none() && empty.is_none()
    }
}

impl fmt::Debug for WorkerCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerCallbacks")
    }
}

/// Hooks that the worker calls, for example when it has claimed a run, and that call the callbacks
/// of the program.
#[derive(Debug)]
pub(crate) struct CallbackWorkerHooks {
    callbacks: WorkerCallbacks,
    calls: SyncSender<Box<dyn FnOnce() + Send>>,
    /// Whether a callback has not returned within `CALLBACK_WAIT`. Until it returns, the worker
    /// does not wait for callbacks.
    is_late: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    /// Names of the external inboxes that the worker serves. The end of their tasks is reported
    /// after the inbox has recorded it.
    external_inboxes: Vec<String>,
}

impl CallbackWorkerHooks {
    /// Starts the thread of the callbacks. It ends after the last call when these hooks are
    /// dropped.
    pub(super) fn start_callback_thread(
        callbacks: WorkerCallbacks,
        services: &Services,
        external_inboxes: Vec<String>,
    ) -> std::io::Result<Self> {
        let (calls, receiver) = sync_channel::<Box<dyn FnOnce() + Send>>(WAITING_MAX);
        let run_calls = move || receiver.into_iter().for_each(|call| call());
        std::thread::Builder::new().name("callbacks".to_owned()).spawn(run_calls)?;
        let is_late = Arc::default();
        let (clock, store) = (Arc::clone(&services.clock), Arc::clone(&services.store));
        Ok(Self { callbacks, calls, is_late, clock, store, external_inboxes })
    }

    /// Called when the run of a task has completed, for a task of an external inbox after the inbox
    /// has recorded that.
    pub(crate) async fn on_task_complete(&self, run: &RunRow) {
        if let Some(callback) = self.callbacks.complete.clone() {
            let run = run.clone();
            self.call_back("on_task_complete", move || callback(&run)).await;
        }
    }

    /// Called when a task has failed or was cancelled, for a task of an external inbox after the
    /// inbox has recorded that.
    pub(crate) async fn on_task_error(&self, task: FailedTask) {
        if let Some(callback) = self.callbacks.error.clone() {
            self.call_back("on_task_error", move || callback(&task)).await;
        }
    }

    /// Whether the task of a run is of an external inbox that the worker serves.
    async fn is_task_of_external_inbox(&self, run: &RunRow) -> bool {
        if !self.external_inboxes.iter().any(|name| name == run.inbox.as_str()) {
            return false;
        }
        let first = JournalReadRequest { run: run.id, after: Seq::START, limit: 1 };
        let page = self.store.read_journal(first).await;
        let event = page.ok().and_then(|page| page.entries.into_iter().next());
        matches!(event.map(|entry| entry.event), Some(Event::RunCreated(created)) if created.task.source.is_some())
    }

    /// Calls a function on the callback thread, and waits at most `CALLBACK_WAIT` until it returns.
    async fn call_back(&self, name: &'static str, function: impl FnOnce() + Send + 'static) {
        let (done, receiver) = oneshot::channel();
        let is_late = Arc::clone(&self.is_late);
        let call = move || {
            if catch_unwind(AssertUnwindSafe(function)).is_err() {
                tracing::error!("the callback `{name}` panicked");
            }
            is_late.store(false, Ordering::Relaxed);
            // The worker may have stopped waiting.
            _ = done.send(());
        };
        if self.calls.try_send(Box::new(call)).is_err() {
            tracing::error!(
                "the callback `{name}` is not called, because {WAITING_MAX} calls wait for an earlier one to return"
            );
            return;
        }
        if self.is_late.load(Ordering::Relaxed) {
            return;
        }
        tokio::select! {
            biased;
            _ = receiver => {}
            () = self.clock.sleep(CALLBACK_WAIT) => {
                self.is_late.store(true, Ordering::Relaxed);
                tracing::warn!("the callback `{name}` has not returned within 1 s; the worker continues");
            }
        }
    }
}

#[async_trait]
impl WorkerHooks for CallbackWorkerHooks {
    async fn on_run_claimed(&self, run: RunId) {
        if let Some(callback) = self.callbacks.start.clone() {
            self.call_back("on_task_start", move || callback(run)).await;
        }
    }

    async fn on_run_completed(&self, run: &RunRow) {
        if !self.is_task_of_external_inbox(run).await {
            self.on_task_complete(run).await;
        }
    }

    async fn on_run_failed(&self, run: &RunRow) {
        if !self.is_task_of_external_inbox(run).await {
            self.on_task_error(FailedTask::of_run(run, None)).await;
        }
    }

    async fn on_no_run_found(&self) {
        if let Some(callback) = self.callbacks.empty.clone() {
            self.call_back("on_empty", move || callback()).await;
        }
    }
}
