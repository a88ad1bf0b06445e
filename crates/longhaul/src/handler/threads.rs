//! The threads on which handlers run.
//!
//! Each call has a thread of its own, so that a function that does not yield blocks no thread of
//! the async runtime. Such a function can't be aborted: its run does not wait for it, its late
//! result is dropped, and it is counted and logged as stuck until it returns.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use longhaul_core::id::RunId;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::counters::EngineCounters;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Time after which an aborted call of a handler's function counts as stuck if it has not ended.
const ABORT_GRACE: Millis = Millis::from_secs(1);

/// Name of the threads, as debuggers and panic messages show it.
const THREAD_NAME: &str = "longhaul-handler";

/// Runs handlers on threads. Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub(crate) struct HandlerThreadRunner {
    clock: Arc<dyn Clock>,
    counters: EngineCounters,
    /// Async tasks that wait until aborted calls of handlers' functions have ended.
    watchers: Arc<Mutex<JoinSet<()>>>,
}

/// Reason why a call of a handler has no result.
#[derive(Debug)]
pub(crate) enum HandlerCallError {
    /// The thread could not be started, so the function was not called.
    NotStarted(io::Error),
    /// The function panicked with this payload.
    Panicked(Box<dyn Any + Send>),
    /// The thread ended without a result, or the call was aborted.
    NoResult,
}

impl HandlerThreadRunner {
    /// Creates a runner of handlers. `counters` counts the functions that are stuck.
    pub(crate) fn new(clock: Arc<dyn Clock>, counters: EngineCounters) -> Self {
        Self { clock, counters, watchers: Arc::default() }
    }

    /// Runs a call of the function of `handler` on a thread of its own. Dropping the returned future
    /// aborts the call.
    pub(crate) async fn run_handler_call<T: Send + 'static>(
        &self,
        handler: &str,
        run: RunId,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, HandlerCallError> {
        let (abort, aborted) = oneshot::channel();
        let result = spawn_call_thread(call, aborted).map_err(HandlerCallError::NotStarted)?;
        let mut guard = AbortCallOnDrop { owner: self, handler, run, call: Some((result, abort)) };
        let outcome = match &mut guard.call {
            Some((result, _)) => result.await,
            None => return Err(HandlerCallError::NoResult),
        };
        guard.call = None;
        outcome.unwrap_or(Err(HandlerCallError::NoResult))
    }

    /// Waits in the background until the aborted call of a handler's function has ended. After
    /// `ABORT_GRACE` the call counts as stuck until it ends.
    fn track_aborted_call_until_end<T: Send + 'static>(
        &self,
        handler: String,
        run: RunId,
        mut result: CallResultReceiver<T>,
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
                _ = &mut result => return,
                () = clock.sleep(ABORT_GRACE) => {}
            }
            tracing::error!(
                handler, %run,
                "the handler was aborted, but does not yield: its thread is blocked until it returns"
            );
            let stuck_guard = counters.count_stuck_handler();
            _ = result.await;
            drop(stuck_guard);
            tracing::warn!(handler, %run, "the aborted handler has returned late; its result is dropped");
        };
        watchers.spawn_on(watcher, &runtime);
    }
}

type CallResultReceiver<T> = oneshot::Receiver<Result<T, HandlerCallError>>;

/// Starts a thread that runs a call of a handler's function until the call ends, or until the
/// sender of `aborted` is dropped.
///
/// The thread is neither a worker thread of the async runtime, which a blocked call would take away
/// from other runs, nor one of its blocking pool, which the end of the program would wait for.
fn spawn_call_thread<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
    aborted: oneshot::Receiver<()>,
) -> io::Result<CallResultReceiver<T>> {
    let runtime = Handle::current();
    let (sender, result) = oneshot::channel();
    let run_call = move || {
        let call = async move {
            tokio::select! {
                biased;
                _ = aborted => Err(HandlerCallError::NoResult),
                value = call => Ok(value),
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(call)));
        // Nobody waits for the result of an aborted call.
        _ = sender.send(outcome.unwrap_or_else(|panic| Err(HandlerCallError::Panicked(panic))));
    };
    Builder::new().name(THREAD_NAME.to_owned()).spawn(run_call)?;
    Ok(result)
}

/// Guard that aborts the call of a handler's function when it is dropped.
struct AbortCallOnDrop<'a, T: Send + 'static> {
    owner: &'a HandlerThreadRunner,
    handler: &'a str,
    run: RunId,
    /// Receiver of the result, and the sender that aborts the call when it is dropped.
    call: Option<(CallResultReceiver<T>, oneshot::Sender<()>)>,
}

impl<T: Send + 'static> Drop for AbortCallOnDrop<'_, T> {
    fn drop(&mut self) {
        if let Some((result, _abort)) = self.call.take() {
            self.owner.track_aborted_call_until_end(self.handler.to_owned(), self.run, result);
        }
    }
}
