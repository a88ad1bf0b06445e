//! An inbox made of closures, for tests and small programs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_api::run::RunView;
use tokio::sync::{Mutex, oneshot};

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
#[must_use = "an inbox has no effect until a worker serves it"]
pub struct FnInbox {
    name: String,
    claim: ClaimFn,
    end: Option<EndFn>,
    /// Claimed tasks that the program's closure has returned and that the worker has not received
    /// yet. Locked while the closure is called.
    claimed: Arc<Mutex<Vec<InboxTask>>>,
    /// Locked while the closure `end` is called.
    ending: Arc<Mutex<()>>,
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
        claimed: Arc::default(),
        ending: Arc::default(),
    }
}

impl FnInbox {
    /// Sets the closure that is called at least once when a task has completed or failed.
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
        call_closure_on_own_thread(&self.ending, move |_| end(&id, result.as_ref())).await
    }
}

/// Calls a closure on a thread of its own with the locked state, and waits until it has returned. The thread is not one of
/// Tokio's, because a closure that never returns would then prevent the end of the process.
async fn call_closure_on_own_thread<T: Send + 'static>(
    state: &Arc<Mutex<T>>,
    call: impl FnOnce(&mut T) + Send + 'static,
) -> Result<(), InboxError> {
    let Ok(mut state) = Arc::clone(state).try_lock_owned() else {
        return Err("the closure has not returned from an earlier call".into());
    };
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("longhaul-inbox".to_owned()).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| call(&mut state)));
        drop(state);
        // The worker may have stopped waiting.
        _ = sender.send(result.is_ok());
    })?;
    match receiver.await {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err("the closure panicked".into()),
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
        let call = move |claimed: &mut Vec<InboxTask>| claimed.extend(claim(&filter));
        call_closure_on_own_thread(&self.claimed, call).await?;
        Ok(std::mem::take(&mut *self.claimed.lock().await))
    }

    async fn complete(&self, task_id: &str, run: &RunView) -> Result<(), InboxError> {
        self.call_task_end_closure(task_id, Ok(run.clone())).await
    }

    async fn fail(&self, task_id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
        self.call_task_end_closure(task_id, Err(failure.clone())).await
    }
}
