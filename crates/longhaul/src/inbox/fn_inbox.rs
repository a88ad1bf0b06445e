//! An inbox made of closures, for tests and small programs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use longhaul_api::run::RunView;
use tokio::sync::oneshot;

use crate::inbox::interface::{ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure};

type ClaimFn = Arc<dyn Fn(&ClaimFilter) -> Vec<InboxTask> + Send + Sync>;
type EndFn = Arc<dyn Fn(&str, Result<&RunView, &TaskFailure>) + Send + Sync>;

/// An inbox made of closures. Created by [`from_fn`].
///
/// ```
/// # fn example(runtime: longhaul::Runtime) -> longhaul::WorkerHandle {
/// use longhaul::inbox::{self, FnInbox};
///
/// let empty: FnInbox = inbox::from_fn("empty", |_filter| Vec::new());
/// runtime.worker().source(empty).spawn()
/// # }
/// ```
pub struct FnInbox {
    name: String,
    claim: ClaimFn,
    end: Option<EndFn>,
    is_claiming: Arc<AtomicBool>,
    is_ending: Arc<AtomicBool>,
    /// Claimed tasks that the program's closure has returned and that the worker has not received
    /// yet.
    claimed: Arc<Mutex<Vec<InboxTask>>>,
}

/// Creates an inbox with this name from a closure that returns new tasks. Each call of a closure
/// runs on a thread of its own, so the closure may block. A closure is not called again before it
/// has returned.
///
/// ```
/// use std::sync::Mutex;
///
/// use longhaul::inbox::{self, InboxTask};
/// use longhaul::Task;
///
/// let waiting = Mutex::new(vec![InboxTask::new("1", Task::new("helper").input("Hello!"))]);
/// let inbox = inbox::from_fn("notes", move |_| std::mem::take(&mut *waiting.lock().unwrap()))
///     .on_end(|id, result| match result {
///         Ok(run) => println!("{id} was completed by {}", run.id),
///         Err(failure) => println!("{id} failed: {}", failure.error.message),
///     });
/// ```
pub fn from_fn(
    name: impl Into<String>,
    claim: impl Fn(&ClaimFilter) -> Vec<InboxTask> + Send + Sync + 'static,
) -> FnInbox {
    FnInbox {
        name: name.into(),
        claim: Arc::new(claim),
        end: None,
        is_claiming: Arc::default(),
        is_ending: Arc::default(),
        claimed: Arc::default(),
    }
}

impl FnInbox {
    /// Sets the closure that is called at least once when a task has completed or failed.
    #[must_use]
    pub fn on_end(
        mut self,
        end: impl Fn(&str, Result<&RunView, &TaskFailure>) + Send + Sync + 'static,
    ) -> Self {
        self.end = Some(Arc::new(end));
        self
    }

    async fn call_task_end_closure(
        &self,
        id: &str,
        result: Result<RunView, TaskFailure>,
    ) -> Result<(), InboxError> {
        let Some(end) = self.end.clone() else {
            return Ok(());
        };
        let id = id.to_owned();
        call_closure_on_own_thread(&self.is_ending, move || end(&id, result.as_ref())).await
    }
}

/// Calls a closure on a thread of its own and waits until it has returned. The thread is not one of
/// Tokio's, because a closure that never returns would then prevent the end of the process.
async fn call_closure_on_own_thread(
    is_called: &Arc<AtomicBool>,
    call: impl FnOnce() + Send + 'static,
) -> Result<(), InboxError> {
    if is_called.swap(true, Ordering::AcqRel) {
        return Err("the closure has not returned from an earlier call".into());
    }
    let guard = ExclusiveCallGuard(Arc::clone(is_called));
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("longhaul-inbox".to_owned()).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(call));
        drop(guard);
        // The worker may have stopped waiting.
        _ = sender.send(result.is_ok());
    })?;
    match receiver.await {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err("the closure panicked".into()),
    }
}

/// Guard that marks a closure as being called. When it is dropped, the closure may be called again.
struct ExclusiveCallGuard(Arc<AtomicBool>);

impl Drop for ExclusiveCallGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl fmt::Debug for FnInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnInbox").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Inbox for FnInbox {
    fn name(&self) -> &str {
        &self.name
    }

    async fn claim(&self, filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
        let (claim, filter) = (Arc::clone(&self.claim), filter.clone());
        let claimed = Arc::clone(&self.claimed);
        let call = move || {
            let tasks = claim(&filter);
            claimed.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
        };
        call_closure_on_own_thread(&self.is_claiming, call).await?;
        Ok(std::mem::take(&mut *self.claimed.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    async fn complete(&self, task_id: &str, run: &RunView) -> Result<(), InboxError> {
        self.call_task_end_closure(task_id, Ok(run.clone())).await
    }

    async fn fail(&self, task_id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
        self.call_task_end_closure(task_id, Err(failure.clone())).await
    }
}
