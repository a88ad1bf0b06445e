//! The async tasks in which handlers run.
//!
//! Each call has a task of its own, so that a function that does not yield holds up no driver. Such a
//! function can't be aborted: its call ends, its late result is dropped, and it is counted and logged
//! until it returns.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::RunId;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::counters::EngineCounters;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

/// Time that an aborted function has to yield before it counts as stuck.
const ABORT_GRACE: Millis = Millis::from_secs(1);

/// Runs handlers in async tasks. Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub(crate) struct HandlerTasks {
    clock: Arc<dyn Clock>,
    counters: EngineCounters,
    /// Tasks that wait for functions that were aborted.
    watchers: Arc<Mutex<JoinSet<()>>>,
}

impl HandlerTasks {
    /// Creates tasks whose stuck functions are counted by `counters`.
    pub(crate) fn new(clock: Arc<dyn Clock>, counters: EngineCounters) -> Self {
        Self { clock, counters, watchers: Arc::default() }
    }

    /// Runs a call of a function in a task of its own. Dropping the returned future aborts the task.
    /// `None` means that the task is gone without a result.
    pub(crate) async fn run_handler_call<T: Send + 'static>(
        &self,
        (handler, run): (&str, RunId),
        call: impl Future<Output = T> + Send + 'static,
    ) -> Option<Result<T, JoinError>> {
        let mut task = JoinSet::new();
        task.spawn(call);
        let mut guard =
            AbortGuard { owner: self.clone(), handler: handler.to_owned(), run, task: Some(task) };
        let joined = guard.task.as_mut()?.join_next().await;
        guard.task = None;
        joined
    }

    /// Waits in the background until an aborted task has ended, and counts it as stuck meanwhile.
    fn watch_aborted_handler<T: Send + 'static>(
        &self,
        handler: String,
        run: RunId,
        mut task: JoinSet<T>,
    ) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (clock, counters) = (Arc::clone(&self.clock), self.counters.clone());
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        while watchers.try_join_next().is_some() {}
        let watcher = async move {
            tokio::select! {
                biased;
                _ = task.join_next() => return,
                () = clock.sleep(ABORT_GRACE) => {}
            }
            tracing::error!(
                handler, %run,
                "the handler was aborted, but does not yield: its thread is blocked until it returns"
            );
            let stuck = counters.count_stuck_handler();
            _ = task.join_next().await;
            drop(stuck);
            tracing::warn!(handler, %run, "the stuck handler has returned; its result is dropped");
        };
        watchers.spawn_on(watcher, &runtime);
    }
}

/// Guard that aborts the task of a call when it is dropped.
struct AbortGuard<T: Send + 'static> {
    owner: HandlerTasks,
    handler: String,
    run: RunId,
    task: Option<JoinSet<T>>,
}

impl<T: Send + 'static> Drop for AbortGuard<T> {
    fn drop(&mut self) {
        if let Some(mut task) = self.task.take() {
            task.abort_all();
            self.owner.watch_aborted_handler(std::mem::take(&mut self.handler), self.run, task);
        }
    }
}
