//! Serves external inboxes: submits their tasks as runs, and delivers the ends of the runs from the
//! store's outbox.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use longhaul_core::id::{IdError, InboxName, RunId};
use longhaul_core::port::records::OutboxItem;
use longhaul_core::status::{RunError, Status};
use longhaul_core::task::TaskSource;
use longhaul_core::time::Millis;
use longhaul_engine::Longhaul;
use longhaul_engine::outbox::{OutboxReceiver, deliver_due_messages};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::WorkerOptions;

use crate::error::Error;
use crate::inbox::interface::{ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure};

/// Maximum number of tasks that are claimed at once.
const CLAIM_MAX: usize = 64;

/// Interval at which an inbox is asked for new tasks, and deliveries that failed are repeated.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Minimum interval between two reactions to changes of the store.
const MIN_WATCH_INTERVAL: Millis = Millis(20);

/// Maximum duration of a call to an inbox.
const CALL_TIMEOUT: Millis = Millis::from_secs(30);

/// Adds the names of external inboxes to the inboxes from which a worker takes runs.
///
/// # Errors
/// The name of an inbox is invalid.
pub fn add_inbox_names(
    options: &mut WorkerOptions,
    inboxes: &[Arc<dyn Inbox>],
) -> Result<(), IdError> {
    for inbox in inboxes {
        let name = InboxName::new(inbox.name())?;
        if !options.inboxes.contains(&name) {
            options.inboxes.push(name);
        }
    }
    Ok(())
}

/// Serves external inboxes until the future is dropped: submits their tasks, which must be of one of
/// these types unless there are none, and delivers the ends of their runs. After a shutdown was
/// requested, no more tasks are submitted. Returns only if there are no inboxes.
///
/// Dropping the future loses nothing: an interrupted call to an inbox is repeated when the inbox is
/// served again.
pub async fn serve_inboxes(
    longhaul: &Longhaul,
    inboxes: &[Arc<dyn Inbox>],
    types: &[String],
    shutdown: &Shutdown,
) {
    let served = inboxes.iter().filter_map(|inbox| {
        let name = InboxName::new(inbox.name()).ok()?;
        Some(ServedInbox { longhaul, inbox: &**inbox, name, types })
    });
    let loops = served.map(|served| async move {
        tokio::join!(served.submit_tasks(shutdown), served.deliver_task_results());
    });
    join_all(loops).await;
}

/// An external inbox that is served.
struct ServedInbox<'a> {
    longhaul: &'a Longhaul,
    inbox: &'a dyn Inbox,
    name: InboxName,
    types: &'a [String],
}

/// What became of a task that was to be submitted.
enum SubmissionOutcome {
    /// The task is a run, or has failed.
    Done,
    /// The task can't be submitted now, for example because its lane is full.
    Later(Box<InboxTask>),
}

impl ServedInbox<'_> {
    /// Claims tasks and submits them until the worker drains.
    async fn submit_tasks(&self, shutdown: &Shutdown) {
        let mut waiting: VecDeque<InboxTask> = VecDeque::new();
        while !shutdown.is_draining() {
            // Tasks that wait, for example for a full lane, hold up no other tasks.
            let claimed = self.claim_tasks(CLAIM_MAX.saturating_sub(waiting.len())).await;
            for task in claimed {
                if waiting.iter().all(|waiting| waiting.id != task.id) {
                    waiting.push_back(task);
                }
            }
            let was_full = waiting.len() >= CLAIM_MAX;
            for task in std::mem::take(&mut waiting) {
                if let SubmissionOutcome::Later(task) = self.submit_task(task).await {
                    waiting.push_back(*task);
                }
            }
            if was_full && waiting.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                () = shutdown.wait_for_drain() => return,
                () = self.sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Claims at most `limit` tasks.
    async fn claim_tasks(&self, limit: usize) -> Vec<InboxTask> {
        if limit == 0 {
            return Vec::new();
        }
        let filter = ClaimFilter { types: self.types.to_vec(), limit };
        match self.call_inbox_method(self.inbox.claim(&filter)).await {
            Ok(tasks) => tasks,
            Err(reason) => {
                tracing::warn!(inbox = %self.name, %reason, "claiming tasks of the inbox failed");
                Vec::new()
            }
        }
    }

    async fn submit_task(&self, task: InboxTask) -> SubmissionOutcome {
        let InboxTask { id, task } = task;
        let source = TaskSource { inbox: self.name.clone(), id: id.clone() };
        let built = task.clone().build().map(|built| longhaul_engine::Task {
            source: Some(source),
            submitter: Some(
                built.submitter.unwrap_or_else(|| TaskSource::outbox_endpoint(&self.name)),
            ),
            ..built
        });
        let submitted = match built {
            // Not by the `lane_busy` policy of the agent: each task has a run whose end is reported.
            Ok(built) => self.longhaul.submit_all(vec![built]).await.map_err(Error::from),
            Err(invalid) => Err(invalid),
        };
        match submitted {
            Ok(outcome) => {
                let Some(&run) = outcome.run_ids().first() else {
                    return SubmissionOutcome::Done;
                };
                if let Err(reason) = self.call_inbox_method(self.inbox.start(&id, run)).await {
                    let inbox = &self.name;
                    tracing::warn!(%inbox, %run, %reason, "the inbox was not told about a run");
                }
                SubmissionOutcome::Done
            }
            Err(error) if is_transient(&error) => {
                tracing::warn!(inbox = %self.name, %error, "a task can't be submitted yet");
                SubmissionOutcome::Later(Box::new(InboxTask { id, task }))
            }
            Err(error) => {
                let error = RunError::new(error.code(), error.to_string(), "");
                match self.fail_task(&id, &TaskFailure { run: None, error }).await {
                    Ok(()) => SubmissionOutcome::Done,
                    Err(reason) => {
                        tracing::warn!(inbox = %self.name, %reason, "the inbox was not told about a failed task");
                        SubmissionOutcome::Later(Box::new(InboxTask { id, task }))
                    }
                }
            }
        }
    }

    async fn fail_task(&self, id: &str, failure: &TaskFailure) -> Result<(), String> {
        self.call_inbox_method(self.inbox.fail(id, failure)).await?;
        let hook = async {
            self.inbox.on_error(id, failure).await;
            Ok(())
        };
        // The task has failed, whatever its hook does.
        _ = self.call_inbox_method(hook).await;
        Ok(())
    }

    /// Delivers the ends of runs from the outbox for ever.
    async fn deliver_task_results(&self) {
        let services = self.longhaul.services();
        let endpoint = TaskSource::outbox_endpoint(&self.name);
        let mut watch = services.store.watch_for_changes();
        loop {
            if let Err(error) = deliver_due_messages(services, &endpoint, self).await {
                tracing::warn!(inbox = %self.name, %error, "the outbox can't be read");
            }
            tokio::select! {
                biased;
                changed = watch.wait_for_change() => match changed {
                    Ok(()) => self.sleep(MIN_WATCH_INTERVAL).await,
                    Err(_) => self.sleep(POLL_INTERVAL).await,
                },
                () = self.sleep(POLL_INTERVAL) => {}
            }
        }
    }

    async fn ended_task(&self, run: RunId) -> Result<InboxTaskEnd, String> {
        let view = self.longhaul.get_run(run).await.map_err(|error| error.to_string())?;
        Ok(match (view.status, &view.error) {
            (Status::Completed, _) => InboxTaskEnd::Completed(Box::new(view)),
            (_, error) => {
                let unknown = || RunError::new("failed", "the run ended without an error", "");
                let error = error.clone().unwrap_or_else(unknown);
                InboxTaskEnd::Failed(TaskFailure { run: Some(run), error })
            }
        })
    }

    /// Calls the inbox, with a timeout. A panic is an error.
    async fn call_inbox_method<T>(
        &self,
        call: impl Future<Output = Result<T, InboxError>>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            result = AssertUnwindSafe(call).catch_unwind() => match result {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err("the inbox panicked".to_owned()),
            },
            () = self.sleep(CALL_TIMEOUT) => Err("the inbox did not answer in time".to_owned()),
        }
    }

    async fn sleep(&self, duration: Millis) {
        self.longhaul.services().clock.sleep(duration).await;
    }
}

/// End of the run of a task.
enum InboxTaskEnd {
    Completed(Box<longhaul_api::run::RunView>),
    Failed(TaskFailure),
}

#[async_trait]
impl OutboxReceiver for ServedInbox<'_> {
    async fn deliver(&self, message: &OutboxItem) -> Result<(), String> {
        let id = &message.row.body;
        let delivered = match self.ended_task(message.run).await? {
            InboxTaskEnd::Completed(view) => self.inbox.complete(id, &view).await,
            InboxTaskEnd::Failed(failure) => self.inbox.fail(id, &failure).await,
        };
        delivered.map_err(|error| error.to_string())
    }

    async fn delivered(&self, message: &OutboxItem) {
        let id = &message.row.body;
        match self.ended_task(message.run).await {
            Ok(InboxTaskEnd::Completed(view)) => self.inbox.on_complete(id, &view).await,
            Ok(InboxTaskEnd::Failed(failure)) => self.inbox.on_error(id, &failure).await,
            Err(reason) => {
                tracing::warn!(inbox = %self.name, %reason, "the hook of an inbox was not called")
            }
        }
    }
}

/// Whether a task that was refused with this error may be submitted later.
const fn is_transient(error: &Error) -> bool {
    use longhaul_engine::Error as EngineError;
    matches!(
        error,
        Error::Store(_) | Error::Engine(EngineError::LaneFull(_) | EngineError::Contention(_))
    )
}
