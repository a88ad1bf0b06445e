//! The callbacks of a worker. They run on a thread of their own, one after another in the order in
//! which the worker called them, so that a callback that blocks or panics does not stop the worker.

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
use longhaul_engine::worker::hooks::WorkerHooks;
use tokio::sync::oneshot;

use crate::task_end::{FailedTask, TaskEndHooks};

/// Maximum time for which the worker waits until a callback has returned.
const CALLBACK_WAIT: Millis = Millis::from_secs(1);

/// Maximum number of calls that wait while an earlier callback has not returned.
const WAITING_MAX: usize = 1_024;

type RunCallback = Arc<dyn Fn(&RunRow) + Send + Sync>;
type TaskErrorCallback = Arc<dyn Fn(&FailedTask) + Send + Sync>;

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
        self.start.is_none()
            && self.complete.is_none()
            && self.error.is_none()
            && self.empty.is_none()
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
pub(super) struct CallbackWorkerHooks {
    callbacks: WorkerCallbacks,
    calls: SyncSender<QueuedCallback>,
    /// Whether a callback has not returned within `CALLBACK_WAIT`. Until it returns, the worker
    /// does not wait for callbacks.
    is_late: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    /// Names of the external inboxes that the worker serves. The end of their tasks is reported
    /// after the inbox has recorded it.
    external_inboxes: Vec<String>,
}

/// A call of a callback that is sent to the callback thread.
struct QueuedCallback {
    name: &'static str,
    function: Box<dyn FnOnce() + Send>,
    done: oneshot::Sender<()>,
}

impl CallbackWorkerHooks {
    /// Starts the thread of the callbacks. It ends after the last call when these hooks are
    /// dropped.
    pub(super) fn start_callback_thread(
        callbacks: WorkerCallbacks,
        services: &Services,
        external_inboxes: Vec<String>,
    ) -> std::io::Result<Self> {
        let (calls, receiver) = sync_channel::<QueuedCallback>(WAITING_MAX);
        let is_late = Arc::new(AtomicBool::new(false));
        let late_flag = Arc::clone(&is_late);
        std::thread::Builder::new().name("callbacks".to_owned()).spawn(move || {
            for call in receiver {
                if catch_unwind(AssertUnwindSafe(call.function)).is_err() {
                    tracing::error!("the callback `{}` panicked", call.name);
                }
                late_flag.store(false, Ordering::Relaxed);
                // The worker may have stopped waiting.
                _ = call.done.send(());
            }
        })?;
        let (clock, store) = (Arc::clone(&services.clock), Arc::clone(&services.store));
        Ok(Self { callbacks, calls, is_late, clock, store, external_inboxes })
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
    async fn call_on_callback_thread(
        &self,
        name: &'static str,
        function: impl FnOnce() + Send + 'static,
    ) {
        let (done, receiver) = oneshot::channel();
        let call = QueuedCallback { name, function: Box::new(function), done };
        if self.calls.try_send(call).is_err() {
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
            self.call_on_callback_thread("on_task_start", move || callback(run)).await;
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
            self.call_on_callback_thread("on_empty", move || callback()).await;
        }
    }
}

#[async_trait]
impl TaskEndHooks for CallbackWorkerHooks {
    async fn on_task_complete(&self, run: &RunRow) {
        if let Some(callback) = self.callbacks.complete.clone() {
            let run = run.clone();
            self.call_on_callback_thread("on_task_complete", move || callback(&run)).await;
        }
    }

    async fn on_task_error(&self, task: FailedTask) {
        if let Some(callback) = self.callbacks.error.clone() {
            self.call_on_callback_thread("on_task_error", move || callback(&task)).await;
        }
    }
}
