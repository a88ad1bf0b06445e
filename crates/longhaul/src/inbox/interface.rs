//! The interface of external inboxes (sources of tasks outside the store), and the types that it
//! uses.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_api::run::RunView;
use longhaul_core::id::RunId;
use longhaul_core::status::{RunError, Status};
use serde::Serialize;

use crate::task::Task;

/// Error that an external inbox (a source of tasks outside the store) returns. Any error and any
/// text can be converted with `?` or `into()`.
pub type InboxError = Box<dyn std::error::Error + Send + Sync>;

/// A source of tasks outside the store. See the [module](crate::inbox) for the order of the
/// calls and an example.
///
/// A call that panics counts as failed, and so does a call that takes longer than 30 seconds. The
/// methods must not block their thread: use `tokio::task::spawn_blocking` for what blocks.
#[async_trait]
pub trait Inbox: std::fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the inbox. The runs of its tasks are queued in the inbox of this name.
    fn name(&self) -> &str;

    /// Claims at most `filter.limit` tasks that [`ClaimFilter::accepts_task`] accepts, and returns
    /// them. The limit is the number of tasks that the worker can start now. A task
    /// that has neither completed nor failed must be returned again after a restart. A task that is
    /// returned more than once is executed once.
    ///
    /// # Errors
    /// Any error. The inbox is asked again a second later.
    async fn claim(&self, filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError>;

    /// Records that the task has become a run. Called at least once per task.
    ///
    /// # Errors
    /// Any error. It is logged, and the run continues.
    async fn start(&self, _task_id: &str, _run: RunId) -> Result<(), InboxError> {
        Ok(())
    }

    /// Records that the run of the task has completed. Called at least once, so a second call for
    /// the same task must have no further effect.
    ///
    /// # Errors
    /// Any error. The call is repeated later.
    async fn complete(&self, task_id: &str, run: &RunView) -> Result<(), InboxError>;

    /// Records that the run of the task has failed or was cancelled, or that the task could not
    /// become a run. Called at least once, so a second call for the same task must have no further
    /// effect. If a person retries the run, a second end of the same task may follow.
    ///
    /// # Errors
    /// Any error. The call is repeated later.
    async fn fail(&self, task_id: &str, failure: &TaskFailure) -> Result<(), InboxError>;

    /// Called after [`Inbox::complete`] has succeeded, at most once.
    async fn on_complete(&self, _task_id: &str, _run: &RunView) {}

    /// Called after [`Inbox::fail`] has succeeded, at most once.
    async fn on_error(&self, _task_id: &str, _failure: &TaskFailure) {}
}

/// Task of an external inbox (a source of tasks outside the store).
///
/// ```
/// use longhaul::inbox::InboxTask;
/// use longhaul::Task;
///
/// let task = InboxTask::new("mail-17", Task::new("helper").input("Hello!").kind("mail"));
/// ```
#[derive(Debug, Clone)]
pub struct InboxTask {
    pub(crate) id: String,
    /// The task. The error says why it can't become a run.
    pub(crate) task: Result<Task, RunError>,
}

impl InboxTask {
    /// Creates a task with an id that is unique in its inbox for ever: another task with the same
    /// id is taken for the same task. The inbox and the idempotency key of `task` are ignored.
    pub fn new(task_id: impl Into<String>, task: Task) -> Self {
        Self { id: task_id.into(), task: Ok(task) }
    }

    /// Creates a task that can't become a run, for example because its content is not readable. It
    /// fails at once with this error.
    pub fn invalid(task_id: impl Into<String>, error: RunError) -> Self {
        Self { id: task_id.into(), task: Err(error) }
    }

    /// Returns the id that the inbox gave the task.
    pub fn task_id(&self) -> &str {
        &self.id
    }
}

/// Filter for the tasks that a worker claims from an external inbox: their types, the worker's
/// [`filter`](crate::Worker::filter), and their maximum number.
///
/// ```
/// # use longhaul::inbox::{ClaimFilter, InboxTask};
/// # use longhaul::Task;
/// let filter = ClaimFilter::new(vec!["mail".to_owned()], 10);
/// assert!(filter.accepts(Some("mail")) && !filter.accepts(None));
/// assert!(filter.accepts_task(&InboxTask::new("17", Task::new("helper").kind("mail"))));
/// ```
#[derive(Clone)]
pub struct ClaimFilter {
    /// Types of the tasks to claim. Empty means tasks of all types and tasks without a type.
    pub types: Vec<String>,
    /// Maximum number of tasks to claim.
    pub limit: usize,
    pub(crate) predicate: Option<TaskPredicate>,
}

/// Function that returns whether a worker takes a task.
pub(crate) type TaskPredicate = Arc<dyn Fn(&Task) -> bool + Send + Sync>;

impl fmt::Debug for ClaimFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { types, limit, .. } = self;
        f.debug_struct("ClaimFilter").field("types", types).field("limit", limit).finish()
    }
}

impl ClaimFilter {
    /// Creates a filter for tasks of these types. Empty means tasks of all types and tasks without a
    /// type.
    pub const fn new(types: Vec<String>, limit: usize) -> Self {
        Self { types, limit, predicate: None }
    }

    /// Whether the worker takes this task, by its type and by the worker's filter. Tasks that it
    /// does not take should stay in the inbox. A task that can't become a run is taken, so that it
    /// fails.
    pub fn accepts_task(&self, task: &InboxTask) -> bool {
        let Ok(task) = &task.task else { return true };
        let Ok(engine_task) = &task.0.0 else { return true };
        self.accepts(engine_task.task_type())
            && self.predicate.as_ref().is_none_or(|predicate| predicate(task))
    }

    /// Whether the filter accepts a task of this type. `None` is a task without a type.
    pub fn accepts(&self, task_type: Option<&str>) -> bool {
        self.types.is_empty()
            || task_type
                .is_some_and(|task_type| self.types.iter().any(|accepted| accepted == task_type))
    }
}

/// Failure of a task of an external inbox (a source of tasks outside the store).
///
/// ```
/// # fn log(failure: &longhaul::inbox::TaskFailure) {
/// eprintln!("{}: {}", failure.error.code, failure.error.message);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskFailure {
    /// Run of the task. `None` if the task could not become a run, for example because its agent
    /// does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// [`Status::Cancelled`] if the run was cancelled, or else [`Status::Failed`].
    pub status: Status,
    /// Reason of the failure.
    pub error: RunError,
}
