//! Lists inboxes with the number of their tasks, and the newest tasks and dead letters (failed
//! tasks that nobody has retried) of one inbox.
//!
//! Also finds out which inboxes the live workers serve, and explains queued runs that no worker
//! starts.

use std::collections::BTreeMap;

use longhaul_api::inbox::{InboxDetailView, InboxView, NewTaskBody};
use longhaul_api::task::Task;
use longhaul_core::id::{InboxName, RunId};
use longhaul_core::port::records::{InboxRunCounts, WorkerRow};
use longhaul_core::port::store::{RunFilter, RunRow, WorkerLiveness};
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_core::wait::WaitReason;
use longhaul_run::explain::{StateExplanation, explain_run_state};

use crate::error::{Result, invalid_task};
use crate::handle::{Longhaul, check_idempotency_key};
use crate::replay::replay_run_state;

/// Maximum number of tasks, and of dead letters (failed tasks that nobody has retried), that are
/// shown of one inbox.
const TASKS_MAX: usize = 20;

/// The live workers of a store, each with the inboxes and types that it serves.
#[derive(Debug)]
pub(super) struct LiveWorkers(pub(super) Vec<WorkerRow>);

impl Longhaul {
    /// Returns the inboxes with open or failed tasks and those in `agents`, ordered by name.
    /// `agents` has the default agent of each inbox.
    pub async fn inboxes(&self, agents: &BTreeMap<String, String>) -> Result<Vec<InboxView>> {
        let rows = self.services.records.count_runs_by_inbox(None).await?;
        let mut views: BTreeMap<String, InboxView> = BTreeMap::new();
        for name in agents.keys() {
            views.insert(name.clone(), inbox_view(name, agents, None));
        }
        for row in rows {
            let name = row.inbox.to_string();
            views.insert(name.clone(), inbox_view(&name, agents, Some(&row)));
        }
        let workers = self.live_workers().await?;
        for view in views.values_mut() {
            view.served = workers.any_worker_serves_inbox(&view.name);
        }
        Ok(views.into_values().collect())
    }

    /// Returns one inbox with its newest tasks and its dead letters: failed tasks that nobody has
    /// retried.
    pub async fn inbox(
        &self,
        name: &InboxName,
        agents: &BTreeMap<String, String>,
    ) -> Result<InboxDetailView> {
        let rows = self.services.records.count_runs_by_inbox(Some(name)).await?;
        let newest =
            RunFilter { inbox: Some(name.clone()), limit: TASKS_MAX, ..RunFilter::default() };
        let failed =
            RunFilter { statuses: vec![Status::Failed], not_retried: true, ..newest.clone() };
        let served = self.live_workers().await?.any_worker_serves_inbox(name.as_str());
        Ok(InboxDetailView {
            inbox: InboxView { served, ..inbox_view(name.as_str(), agents, rows.first()) },
            tasks: self.list_brief_runs(newest).await?,
            dead_letters: self.list_brief_runs(failed).await?,
        })
    }

    /// Returns the workers that have sent a heartbeat within the duration of their lease.
    pub(super) async fn live_workers(&self) -> Result<LiveWorkers> {
        let mut workers = self.services.records.list_workers().await?;
        let now = self.store_time().await?;
        workers.retain(|worker| {
            worker.liveness == WorkerLiveness::Live
                && worker.heartbeat_at.is_within(worker.ttl, now)
        });
        Ok(LiveWorkers(workers))
    }

    /// Explains why no worker will start a queued run, for example because no live worker claims
    /// runs of its inbox and type, no worker drives the run before it in its lane or batch, or its
    /// lane is paused. `None` if nothing prevents the start, or the run is not queued.
    pub async fn explain_unstarted_run(&self, row: &RunRow) -> Result<Option<StateExplanation>> {
        let (previous, place) = match (row.reason.as_deref(), &row.lane) {
            (Some("lane"), Some(lane)) => {
                let state = self.lane(lane).await?;
                if state.paused {
                    return Ok(Some(StateExplanation {
                        message: format!("The lane `{lane}` is paused."),
                        command: format!("longhaul lanes resume {lane}"),
                    }));
                }
                (state.holder, format!("the lane `{lane}`"))
            }
            (Some("key"), _) => return self.explain_stuck_key_holder(row).await,
            (Some("batch"), _) => {
                (self.previous_run_in_batch(row.id).await?, "its batch".to_owned())
            }
            _ => return self.explain_unserved_run(row, &mut None).await,
        };
        let Some(previous) = previous else { return Ok(None) };
        let previous = self.run_row(previous).await?;
        if previous.status.is_terminal() || self.is_or_will_be_driven(&previous).await? {
            return Ok(None);
        }
        let previous = previous.id;
        Ok(Some(StateExplanation {
            message: format!(
                "The run waits for {previous}, which is before it in {place} and which no worker \
                 drives."
            ),
            command: format!("longhaul watch {previous}"),
        }))
    }

    /// Explains that the run waits for another run with the same effect key (under which an effect
    /// happens at most once), and that the other run does not continue by itself, because it needs
    /// a person or no process drives it. `None` if the other run continues, or has the same root
    /// run.
    async fn explain_stuck_key_holder(&self, row: &RunRow) -> Result<Option<StateExplanation>> {
        let (waiting, _) = replay_run_state(&self.services, row.id).await?;
        let Some(WaitReason::Key(holder)) = waiting.control().driver.wait() else {
            return Ok(None);
        };
        let holder = match self.services.store.get_run(holder.run).await? {
            Some(holder) if holder.root != row.root => holder,
            Some(_) | None => return Ok(None),
        };
        let is_driven =
            self.has_process_driving_runs().await? && self.is_or_will_be_driven(&holder).await?;
        let needs_person = match (holder.status, holder.reason.as_deref()) {
            (Status::Blocked | Status::Paused, _)
            | (Status::Waiting, Some("approval" | "question" | "signal" | "budget")) => true,
            (Status::Pending | Status::Running, _) if !is_driven => false,
            // A process may continue a run that waits for something else.
            (Status::Pending | Status::Running | Status::Waiting, _)
            | (Status::Completed | Status::Failed | Status::Cancelled, _) => return Ok(None),
        };
        let StateExplanation { message: wait_message, .. } = explain_run_state(&waiting);
        let (folded, _) = replay_run_state(&self.services, holder.id).await?;
        let holder_explanation = match needs_person {
            true => explain_run_state(&folded),
            false => StateExplanation {
                message: "No process drives the run.".to_owned(),
                command: format!("longhaul watch {}", holder.id),
            },
        };
        Ok(Some(StateExplanation {
            message: format!("{wait_message} {}: {}", holder.id, holder_explanation.message),
            command: holder_explanation.command,
        }))
    }

    async fn previous_run_in_batch(&self, run: RunId) -> Result<Option<RunId>> {
        let (folded, _) = replay_run_state(&self.services, run).await?;
        let Some(batch) = folded.task().batch else { return Ok(None) };
        let runs = self.services.records.runs_of_batch(batch.id).await?;
        Ok(runs.into_iter().take_while(|other| *other != run).last())
    }

    /// Returns whether a worker has claimed the run, or a live worker would claim it.
    async fn is_or_will_be_driven(&self, row: &RunRow) -> Result<bool> {
        Ok(row.worker.is_some() || self.live_workers().await?.has_worker_for_run(row))
    }

    /// Explains that there are live workers, but none that claims runs of this inbox and type.
    /// `None` if such a worker is live, if no worker is live at all, or if the run is not queued.
    /// `workers` caches the live workers.
    pub(super) async fn explain_unserved_run(
        &self,
        row: &RunRow,
        workers: &mut Option<LiveWorkers>,
    ) -> Result<Option<StateExplanation>> {
        // Whether a run is in the queue, for the first time or again.
        if row.reason.as_deref() != Some("worker") {
            return Ok(None);
        }
        let workers = match workers {
            Some(workers) => workers,
            None => workers.insert(self.live_workers().await?),
        };
        Ok(workers.explain_unserved_run(row))
    }
}

/// Builds the task of a request that posts to an inbox. `agents` has the default agent of each
/// inbox, for tasks that name no agent.
pub fn build_inbox_task(
    inbox: InboxName,
    body: NewTaskBody,
    agents: &BTreeMap<String, String>,
) -> Result<Task> {
    let default_agent = agents.get(inbox.as_str());
    let Some(agent) = body.agent.as_ref().or(default_agent) else {
        return invalid_task(format!(
            "the inbox `{inbox}` has no default agent: name an agent, or set \
             `[inboxes.{}] agent` in longhaul.toml",
            quote_toml_key(inbox.as_str())
        ));
    };
    if let Some(key) = &body.idempotency_key {
        check_idempotency_key(key)?;
    }
    Ok(Task {
        kind: body.kind,
        priority: body.priority,
        lane: body.lane,
        thread: body.thread,
        resource: body.resource,
        start: body.start_at.into(),
        context: body.context,
        actor: body.actor,
        links: body.links,
        metadata: body.metadata.as_ref().map(RawJson::from_serialize),
        idempotency_key: body.idempotency_key,
        inbox: Some(inbox),
        ..Task::new(agent, &body.payload)
    })
}

/// Returns a name as a key of a TOML file, in quotes if it needs them.
pub fn quote_toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        // A name has no control characters, so JSON and TOML quote it alike.
        false => RawJson::from_serialize(&name).as_str().to_owned(),
    }
}

fn inbox_view(
    name: &str,
    agents: &BTreeMap<String, String>,
    row: Option<&InboxRunCounts>,
) -> InboxView {
    InboxView {
        name: name.to_owned(),
        agent: agents.get(name).cloned(),
        served: false,
        pending: row.map_or(0, |row| row.pending),
        running: row.map_or(0, |row| row.running),
        waiting: row.map_or(0, |row| row.waiting),
        failed: row.map_or(0, |row| row.failed),
    }
}

impl LiveWorkers {
    /// Returns whether at least one live worker claims runs from this inbox.
    pub(super) fn any_worker_serves_inbox(&self, inbox: &str) -> bool {
        self.workers_serving_inbox(inbox).next().is_some()
    }

    fn workers_serving_inbox(&self, inbox: &str) -> impl Iterator<Item = &WorkerRow> {
        let serves = move |served: &InboxName| served.as_str() == inbox;
        self.0.iter().filter(move |worker| worker.inboxes.iter().any(serves))
    }

    /// Returns whether at least one live worker claims runs with the inbox and type of this run.
    fn has_worker_for_run(&self, row: &RunRow) -> bool {
        self.workers_serving_inbox(row.inbox.as_str()).any(|worker| {
            worker.types.is_empty()
                || row.kind.as_ref().is_some_and(|kind| worker.types.contains(kind))
        })
    }

    fn explain_unserved_run(&self, row: &RunRow) -> Option<StateExplanation> {
        if self.0.is_empty() || self.has_worker_for_run(row) {
            return None;
        }
        let inbox = &row.inbox;
        if self.0.iter().all(|worker| worker.inboxes.is_empty()) {
            return Some(StateExplanation {
                message: format!(
                    "No worker serves the inbox `{inbox}` now. The store is driven by a `run` or \
                     `watch` command, which drives only its own run, or by a program whose task \
                     filter hangs. The run can start when that process waits or ends."
                ),
                command: format!("longhaul watch {}", row.id),
            });
        }
        let message = match (self.any_worker_serves_inbox(inbox.as_str()), &row.kind) {
            (false, _) => format!(
                "No worker serves the inbox `{inbox}`: add it to `[worker] inboxes` in \
                 longhaul.toml, or to the `--inbox` options of the worker, and restart the worker."
            ),
            (true, Some(kind)) => format!(
                "The workers of the inbox `{inbox}` do not take tasks of the type `{kind}`: restart \
                 one with another `--type`, or without it."
            ),
            (true, None) => format!(
                "The workers of the inbox `{inbox}` do not take tasks without a type: restart one \
                 without `--type`."
            ),
        };
        // Only other settings of the worker help, and no command changes them.
        Some(StateExplanation { message, command: String::new() })
    }
}
