//! The end of a task, as the callbacks of a worker receive it.

use std::fmt;

use async_trait::async_trait;
use longhaul_core::port::store::RunRow;

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

/// Callbacks that are called after an external inbox has recorded the end of a task.
#[async_trait]
pub trait TaskEndHooks: Send + Sync + fmt::Debug {
    /// Called when the run of a task has completed.
    async fn on_task_complete(&self, run: &RunRow);

    /// Called when a task has failed or was cancelled.
    async fn on_task_error(&self, task: FailedTask);
}
