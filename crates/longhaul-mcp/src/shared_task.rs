//! A task whose result any number of callers wait for.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// At most one task in flight. It continues when nobody waits for it, and ends when this value is
/// dropped.
pub(crate) struct SharedTask<T>(Mutex<TaskInFlight<T>>);

/// The result of a shared task. `None` means that the task was stopped before its end.
type SharedResult<T> = Shared<BoxFuture<'static, Option<T>>>;

struct TaskInFlight<T> {
    result: Option<SharedResult<T>>,
    tasks: JoinSet<()>,
}

impl<T> Default for SharedTask<T> {
    fn default() -> Self {
        Self(Mutex::new(TaskInFlight { result: None, tasks: JoinSet::new() }))
    }
}

impl<T: Clone + Send + Sync + 'static> TaskInFlight<T> {
    fn result(&mut self) -> Option<SharedResult<T>> {
        while self.tasks.try_join_next().is_some() {}
        // A finished task is out of date.
        let result = self.result.clone().filter(|result| result.peek().is_none());
        result.filter(|_| !self.tasks.is_empty())
    }
}

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    /// Joins the task in flight, or starts a new one. Also returns whether this call started it.
    pub(crate) fn join_or_start<F>(&self, new: impl FnOnce() -> F) -> (SharedResult<T>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = state.result() {
            return (result, false);
        }
        let (sender, receiver) = oneshot::channel();
        let task = new();
        state.tasks.spawn(async move {
            // The receiver may be gone. What the task has done is kept in any case.
            _ = sender.send(task.await);
        });
        let result = receiver.map(Result::ok).boxed().shared();
        state.result = Some(result.clone());
        (result, true)
    }

    /// Returns the result of the task in flight. `None` if there is no such task.
    pub(crate) fn in_flight(&self) -> Option<SharedResult<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).result()
    }
}
