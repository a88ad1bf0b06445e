//! Serves external inboxes (sources of tasks outside the store): submits their tasks as runs, and
//! reports to the inboxes how the runs ended, from messages in the store's outbox.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_api::run::RunView;
use longhaul_core::id::{IdError, InboxName, LaneKey, RunId};
use longhaul_core::port::records::DueOutboxMessage;
use longhaul_core::status::{RunError, Status};
use longhaul_core::task::TaskSource;
use longhaul_core::time::Millis;
use longhaul_engine::background::outbox::{OutboxReceiver, deliver_due_messages};
use longhaul_engine::handle::SubmitOutcome;
use longhaul_engine::panics::guard;
use longhaul_engine::services::Services;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::{InboxActivity, TaskFilter, WorkerIntake, WorkerOptions};
use longhaul_engine::{Error as EngineError, Longhaul};
use tokio::task::JoinSet;

use crate::inbox::interface::{
    ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure, TaskPredicate,
};
use crate::task::Task;
use crate::worker::callbacks::{CallbackWorkerHooks, FailedTask};

/// Maximum number of tasks that are claimed at once.
const CLAIM_MAX: usize = 64;

/// Maximum number of claimed tasks that can't be submitted yet, for example because their lane is
/// full. No further tasks are claimed while it is reached.
const POSTPONED_MAX: usize = 256;

/// Time after which a run that waits in the queue no longer holds a place, because the worker may
/// never take it, for example if its filter refuses the run.
const PLACE_TTL: Millis = Millis::from_secs(5);

/// Interval at which an inbox is asked for new tasks. The store is also read at least this often
/// for ended runs that must be reported to the inbox.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Delay before a change of the store or of the free permits is handled. It limits how often the
/// store is read and an inbox is asked.
const MIN_WATCH_INTERVAL: Millis = Millis(20);

/// Maximum duration of a call to an inbox.
const CALL_TIMEOUT: Millis = Millis::from_secs(30);

/// Adds the names of external inboxes (sources of tasks outside the store) to the inboxes from
/// which a worker takes runs.
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

/// The worker for which external inboxes are served.
#[derive(Debug, Clone)]
pub struct InboxWorker {
    /// Types of the tasks that the worker takes. Empty means all types.
    pub types: Vec<String>,
    /// Filter of the worker. `None` means that it takes all tasks.
    pub filter: Option<TaskFilter>,
    /// Permits of the worker: no more tasks are claimed than it can start.
    pub intake: WorkerIntake,
    /// Callbacks that are called after an inbox has recorded the end of a task.
    pub(crate) hooks: Option<Arc<CallbackWorkerHooks>>,
}

impl InboxWorker {
    /// Describes a worker without a filter and without callbacks.
    pub const fn new(types: Vec<String>, intake: WorkerIntake) -> Self {
        Self { types, filter: None, intake, hooks: None }
    }
}

/// Serves external inboxes until the future is dropped: submits their tasks as runs, and reports to
/// the inboxes how the runs ended. After a shutdown was requested, no more tasks are submitted.
/// Returns only if there are no inboxes.
///
/// Dropping the future loses nothing: an interrupted call to an inbox is repeated when the inbox is
/// served again.
pub fn serve_inboxes(
    longhaul: &Longhaul,
    inboxes: &[Arc<dyn Inbox>],
    worker: &InboxWorker,
    shutdown: &Shutdown,
) -> impl Future<Output = ()> + use<> {
    let served = inboxes.iter().filter_map(|inbox| {
        let name = InboxName::new(inbox.name()).ok()?;
        let (longhaul, inbox, worker) = (longhaul.clone(), Arc::clone(inbox), worker.clone());
        // Registered at once, before the worker can find that there is nothing to do.
        let activity = worker.intake.register_inbox();
        Some((Arc::new(ServedInbox { longhaul, inbox, name, worker }), activity))
    });
    let (served, shutdown) = (served.collect::<Vec<_>>(), shutdown.clone());
    async move {
        // Each inbox has tasks of its own, so that one that blocks its thread does not block the
        // worker.
        let mut loops = JoinSet::new();
        for (inbox, activity) in served {
            let (delivering_inbox, shutdown) = (Arc::clone(&inbox), shutdown.clone());
            loops.spawn(async move { inbox.submit_tasks(&shutdown, activity).await });
            loops.spawn(async move { delivering_inbox.deliver_task_results().await });
        }
        while let Some(result) = loops.join_next().await {
            if let Err(error) = result {
                tracing::error!(%error, "an inbox is not served any more");
            }
        }
    }
}

/// An external inbox (a source of tasks outside the store) whose tasks this process submits as runs
/// for a worker.
struct ServedInbox {
    longhaul: Longhaul,
    inbox: Arc<dyn Inbox>,
    name: InboxName,
    worker: InboxWorker,
}

/// A claimed task that is not submitted as a run yet.
struct UnsubmittedTask {
    task: InboxTask,
    /// Whether the reason why the task waits was logged.
    is_reported: bool,
}

/// Result of an attempt to submit a task.
enum SubmissionOutcome {
    /// A new run was created for the task.
    Created(RunId),
    /// The task already has a run.
    NoNewRun,
    /// The task can't become a run, and this was reported.
    Failed,
    /// The task can't be submitted now. The text is the reason.
    Postponed(String),
}

impl ServedInbox {
    /// Claims tasks and submits them until a shutdown is requested.
    async fn submit_tasks(&self, shutdown: &Shutdown, mut activity: InboxActivity) {
        let notifier = &self.longhaul.services().notifier;
        let mut permits = notifier.subscribe_to_ready_runs();
        let intake = &self.worker.intake;
        let mut postponed: Vec<UnsubmittedTask> = Vec::new();
        // Runs of this inbox that wait for a permit of the worker, each with a place, and since when.
        let mut queued: Vec<(RunId, Millis)> = Vec::new();
        while !shutdown.is_draining() {
            self.remove_started_runs(&mut queued).await;
            let places = match postponed.len() < POSTPONED_MAX {
                true => intake.reserve_free_places(CLAIM_MAX),
                false => 0,
            };
            let mut waiting = std::mem::take(&mut postponed);
            if places > 0 {
                waiting.extend(self.claim_tasks(places, &waiting).await);
            }
            let (created, failed) = self.submit_waiting_tasks(waiting, &mut postponed).await;
            intake.add_places(created.len());
            intake.release_places(places);
            let has_tasks = !created.is_empty() || failed > 0 || !postponed.is_empty();
            // Without a place the inbox was not asked.
            let was_asked = has_tasks || places > 0;
            let has_changed = was_asked && activity.set_busy(has_tasks);
            if has_changed && !has_tasks {
                notifier.notify_runs_ready();
            }
            let next_claim = async {
                if failed > 0 {
                    self.sleep(MIN_WATCH_INTERVAL).await;
                } else if places == 0 || created.len() >= places {
                    // There may be more tasks as soon as the worker has a free permit again.
                    tokio::select! {
                        biased;
                        () = permits.wait_for_ready_runs() => self.sleep(MIN_WATCH_INTERVAL).await,
                        () = self.sleep(POLL_INTERVAL) => {}
                    }
                } else {
                    self.sleep(POLL_INTERVAL).await;
                }
            };
            let now = self.longhaul.services().clock.monotonic_time();
            queued.extend(created.iter().map(|run| (*run, now)));
            tokio::select! {
                biased;
                () = shutdown.wait_for_drain_request() => break,
                () = next_claim => {}
            }
        }
        intake.release_places(queued.len());
    }

    /// Removes the runs that no longer wait in the queue for a worker, and releases their places.
    async fn remove_started_runs(&self, queued: &mut Vec<(RunId, Millis)>) {
        let Services { store, clock, .. } = self.longhaul.services();
        let (before, now) = (queued.len(), clock.monotonic_time());
        for (run, since) in std::mem::take(queued) {
            let is_queued = match store.get_run(run).await {
                Ok(row) => row.is_some_and(|row| row.reason.as_deref() == Some("worker")),
                Err(_) => true,
            };
            if is_queued && now.minus(since) < PLACE_TTL {
                queued.push((run, since));
            }
        }
        self.worker.intake.release_places(before - queued.len());
    }

    /// Returns the filter of the worker as a function of tasks that are no runs yet. It accepts a
    /// task that can't be submitted, so that the task fails.
    fn task_predicate(&self) -> Option<TaskPredicate> {
        let filter = self.worker.filter.clone()?;
        let (longhaul, name) = (self.longhaul.clone(), self.name.clone());
        Some(Arc::new(move |task: &Task| {
            let Ok(task) = task.0.0.clone() else { return true };
            let task = longhaul_engine::Task { inbox: Some(name.clone()), ..task };
            longhaul.preview_task(task).map_or(true, |spec| filter.accepts(&spec))
        }))
    }

    /// Claims tasks from the inbox, and returns those that are not in `waiting`, the claimed tasks
    /// that are not submitted yet.
    async fn claim_tasks(&self, count: usize, waiting: &[UnsubmittedTask]) -> Vec<UnsubmittedTask> {
        // The inbox may return the waiting tasks again, and they must not displace new ones.
        let limit = count + waiting.len();
        let filter = ClaimFilter {
            predicate: self.task_predicate(),
            ..ClaimFilter::new(self.worker.types.clone(), limit)
        };
        let tasks = match self.call_inbox_method(self.inbox.claim(&filter)).await {
            Ok(tasks) => tasks,
            Err(reason) => {
                tracing::warn!(inbox = %self.name, %reason, "claiming tasks of the inbox failed");
                Vec::new()
            }
        };
        let waiting_ids: HashSet<&str> =
            waiting.iter().map(|waiting| waiting.task.id.as_str()).collect();
        let new_tasks = tasks.into_iter().filter(|task| !waiting_ids.contains(task.id.as_str()));
        new_tasks.map(|task| UnsubmittedTask { task, is_reported: false }).collect()
    }

    /// Submits claimed tasks as runs. Returns the new runs, and the number of tasks that failed
    /// instead. Tasks that can't be submitted now are added to `postponed`.
    async fn submit_waiting_tasks(
        &self,
        waiting: Vec<UnsubmittedTask>,
        postponed: &mut Vec<UnsubmittedTask>,
    ) -> (Vec<RunId>, usize) {
        let mut full_lanes = HashSet::new();
        let (mut created, mut failed) = (Vec::new(), 0);
        for mut waiting in waiting {
            match self.submit_task(&waiting.task, &mut full_lanes).await {
                SubmissionOutcome::Created(run) => created.push(run),
                SubmissionOutcome::NoNewRun => {}
                SubmissionOutcome::Failed => failed += 1,
                SubmissionOutcome::Postponed(reason) => {
                    if !waiting.is_reported {
                        let (inbox, task) = (&self.name, &waiting.task.id);
                        tracing::warn!(%inbox, task, reason, "a task can't be submitted yet");
                    }
                    waiting.is_reported = true;
                    postponed.push(waiting);
                }
            }
        }
        (created, failed)
    }

    async fn submit_task(
        &self,
        task: &InboxTask,
        full_lanes: &mut HashSet<LaneKey>,
    ) -> SubmissionOutcome {
        let InboxTask { id, task } = task;
        let built = task.clone().and_then(|task| {
            task.0.build().map_err(|error| RunError::new(error.code(), error.to_string(), ""))
        });
        let engine_task = match built {
            Ok(engine_task) => engine_task,
            Err(error) => return self.report_task_failure(id, error).await,
        };
        if let Some(lane) = engine_task.lane.as_ref().filter(|lane| full_lanes.contains(*lane)) {
            return SubmissionOutcome::Postponed(format!(
                "an earlier task of the lane `{lane}` waits"
            ));
        }
        let source = TaskSource { inbox: self.name.clone(), id: id.clone() };
        let submitter = engine_task
            .submitter
            .unwrap_or_else(|| TaskSource::outbox_endpoint_of_inbox(&self.name));
        let engine_task = longhaul_engine::Task {
            source: Some(source),
            submitter: Some(submitter),
            ..engine_task
        };
        // Not by the `lane_busy` policy of the agent: each task has a run whose end is reported.
        let outcome = match self.longhaul.submit_all(vec![engine_task]).await {
            Ok(outcome) => outcome,
            Err(error) => return self.postpone_or_fail_refused_task(id, error, full_lanes).await,
        };
        let run = outcome.run_ids().first().copied();
        if let Some(run) = run
            && let Err(reason) = self.call_inbox_method(self.inbox.start(id, run)).await
        {
            tracing::warn!(
                inbox = %self.name, %run, %reason,
                "the inbox could not record that the run of its task has started; the run continues"
            );
        }
        match (outcome, run) {
            (SubmitOutcome::Created(_), Some(run)) => SubmissionOutcome::Created(run),
            (_, _) => SubmissionOutcome::NoNewRun,
        }
    }

    /// Postpones a task that the engine rejected for a temporary reason, such as a full lane. For
    /// any other reason, the task fails.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only some refusals are temporary")]
    async fn postpone_or_fail_refused_task(
        &self,
        id: &str,
        error: EngineError,
        full_lanes: &mut HashSet<LaneKey>,
    ) -> SubmissionOutcome {
        let (code, message) = (error.code(), error.to_string());
        let hint = match error {
            EngineError::LaneFull(lane) => {
                full_lanes.insert(lane);
                return SubmissionOutcome::Postponed(message);
            }
            EngineError::Store(_) | EngineError::Contention(_) | EngineError::OverCap { .. } => {
                return SubmissionOutcome::Postponed(message);
            }
            EngineError::AgentNotFound { .. } => {
                "register the agent in the program, or check its file with `longhaul agents check`"
            }
            _ => "",
        };
        self.report_task_failure(id, RunError::new(code, message, hint)).await
    }

    /// Reports to the inbox that a task can't become a run.
    async fn report_task_failure(&self, task_id: &str, error: RunError) -> SubmissionOutcome {
        let failure = TaskFailure { run: None, status: Status::Failed, error };
        let RunError { message, hint, .. } = &failure.error;
        if let Err(report_error) = self.call_inbox_method(self.inbox.fail(task_id, &failure)).await
        {
            return SubmissionOutcome::Postponed(format!(
                "{message}; this can't be reported to the inbox: {report_error}. {hint}"
            ));
        }
        tracing::warn!(inbox = %self.name, task = task_id, %message, "a task can't become a run");
        let hook = async {
            self.inbox.on_error(task_id, &failure).await;
            Ok(())
        };
        // The task has failed, whatever its hook does.
        _ = self.call_inbox_method(hook).await;
        if let Some(hooks) = &self.worker.hooks {
            hooks.on_task_error(FailedTask::without_run(task_id, &failure.error.code)).await;
        }
        SubmissionOutcome::Failed
    }

    /// Reads messages about ended runs from the store's outbox and reports them to the inbox. Never
    /// returns.
    async fn deliver_task_results(&self) {
        let services = self.longhaul.services();
        let endpoint = TaskSource::outbox_endpoint_of_inbox(&self.name);
        let mut watch = services.store.watch_for_changes();
        loop {
            if let Err(error) = deliver_due_messages(services, &endpoint, self).await {
                tracing::warn!(inbox = %self.name, %error, "the messages about ended runs can't be read from the store");
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

    /// Reads from the store how the run of a task has ended.
    async fn load_task_outcome(&self, run: RunId) -> Result<Result<RunView, TaskFailure>, String> {
        let view = self.longhaul.get_run(run).await.map_err(|error| error.to_string())?;
        if view.status == Status::Completed {
            return Ok(Ok(view));
        }
        let unknown = || RunError::new("failed", "the run ended without an error", "");
        let (status, error) = (view.status, view.error.unwrap_or_else(unknown));
        Ok(Err(TaskFailure { run: Some(run), status, error }))
    }

    /// Waits for a call of the inbox, at most `CALL_TIMEOUT`. A panic of the inbox is returned as
    /// an error.
    async fn call_inbox_method<T>(
        &self,
        call: impl Future<Output = Result<T, InboxError>>,
    ) -> Result<T, String> {
        let result = guard(&*self.longhaul.services().clock, CALL_TIMEOUT, call).await;
        let result = result.map_err(|error| format!("the inbox {error}"))?;
        result.map_err(|error| error.to_string())
    }

    async fn sleep(&self, duration: Millis) {
        self.longhaul.services().clock.sleep(duration).await;
    }
}

#[async_trait]
impl OutboxReceiver for ServedInbox {
    async fn deliver(&self, message: &DueOutboxMessage) -> Result<(), String> {
        let id = &message.row.body;
        let delivered = match self.load_task_outcome(message.run).await? {
            Ok(view) => self.inbox.complete(id, &view).await,
            Err(failure) => self.inbox.fail(id, &failure).await,
        };
        delivered.map_err(|error| error.to_string())
    }

    async fn on_delivered(&self, message: &DueOutboxMessage) {
        let (id, run) = (&message.row.body, message.run);
        let hook = async {
            match self.load_task_outcome(run).await? {
                Ok(view) => self.inbox.on_complete(id, &view).await,
                Err(failure) => self.inbox.on_error(id, &failure).await,
            }
            Ok(())
        };
        if let Err(reason) = Box::pin(self.call_inbox_method(hook)).await {
            tracing::warn!(
                inbox = %self.name, %reason,
                "`on_complete` or `on_error` of the inbox was not called or failed"
            );
        }
        // The callbacks of the worker come last, whatever the hook of the inbox does.
        if let (Some(hooks), Ok(Some(row))) =
            (&self.worker.hooks, self.longhaul.services().store.get_run(run).await)
        {
            match row.status == Status::Completed {
                true => hooks.on_task_complete(&row).await,
                false => hooks.on_task_error(FailedTask::of_run(&row, Some(id))).await,
            }
        }
    }
}
