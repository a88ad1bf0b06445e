//! An inbox made of closures, for tests and small programs.

use std::fmt;

use async_trait::async_trait;
use longhaul_api::run::RunView;

use crate::inbox::interface::{ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure};

type ClaimFn = Box<dyn Fn(&ClaimFilter) -> Vec<InboxTask> + Send + Sync>;
type EndFn = Box<dyn Fn(&str, Result<&RunView, &TaskFailure>) + Send + Sync>;

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
}

/// Creates an inbox with this name from a closure that returns new tasks.
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
    FnInbox { name: name.into(), claim: Box::new(claim), end: None }
}

impl FnInbox {
    /// Sets the closure that is called at least once when a task has completed or failed.
    #[must_use]
    pub fn on_end(
        mut self,
        end: impl Fn(&str, Result<&RunView, &TaskFailure>) + Send + Sync + 'static,
    ) -> Self {
        self.end = Some(Box::new(end));
        self
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
        Ok((self.claim)(filter))
    }

    async fn complete(&self, id: &str, run: &RunView) -> Result<(), InboxError> {
        if let Some(end) = &self.end {
            end(id, Ok(run));
        }
        Ok(())
    }

    async fn fail(&self, id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
        if let Some(end) = &self.end {
            end(id, Err(failure));
        }
        Ok(())
    }
}
