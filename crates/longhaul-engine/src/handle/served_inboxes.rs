//! Which inboxes the live workers serve, and explanations of queued runs that no worker starts.

use longhaul_core::id::{InboxName, LaneKey, RunId};
use longhaul_core::port::records::WorkerRow;
use longhaul_core::port::store::{RunRow, WorkerLiveness};
use longhaul_core::status::Status;
use longhaul_core::wait::WaitReason;
use longhaul_run::explain::{StateExplanation, explain_run_state};

use crate::error::Result;
use crate::handle::Longhaul;
use crate::replay::replay_run_state;

/// The live workers of a store, each with the inboxes and types that it serves.
#[derive(Debug)]
pub(super) struct LiveWorkers(Vec<WorkerRow>);

impl Longhaul {
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
                    return Ok(Some(paused_lane_explanation(lane)));
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

impl LiveWorkers {
    pub(super) fn has_no_worker(&self) -> bool {
        self.0.is_empty()
    }

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

fn paused_lane_explanation(lane: &LaneKey) -> StateExplanation {
    StateExplanation {
        message: format!("The lane `{lane}` is paused."),
        command: format!("longhaul lanes resume {lane}"),
    }
}
