//! Submits a task whose lane may be busy. The `lane_busy` setting of its agent then decides what
//! happens: for example, the task waits, is refused, or is added to a run of the lane as a message.
//!
//! Invariant: no task is lost. The store decides whether the lane is busy in the transaction that
//! would create the run. A message that arrives too late for a run is submitted again.

use longhaul_core::change::{Blob, NewRun, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::policy::LaneBusyPolicy;
use longhaul_core::port::store::{
    AppendRefusalReason, AppendRequest, AppendResult, BusyLane, CreateRunsOutcome,
    IdempotencyRecord, JournalAuthor, RunRow,
};
use longhaul_core::task::TaskSpec;
use longhaul_run::DecisionContext;
use longhaul_run::commands::{RunCommand, decide_command};
use longhaul_run::submit::lane_entry;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::guard::template;
use crate::handle::Longhaul;
use crate::handle::submit::{SubmitOutcome, lane_busy_error, run_creation_request};
use crate::prompt::event_text;

/// Maximum number of attempts to add a task as a message to a run of its busy lane. After that the
/// task waits for the lane.
const ATTEMPTS_MAX: usize = 16;

/// Outcome of an attempt to add a task as a message to an existing run of its lane.
enum AddMessageOutcome {
    /// The text of the task was added to this run.
    Added(RunId),
    /// The run has ended or started meanwhile, so the caller tries again with the current state of
    /// the lane.
    Outdated,
    /// The task can't be added to a run and must wait for its lane.
    Impossible,
}

impl Longhaul {
    /// Creates the run of a task, or adds the task to an existing run if its lane is busy.
    pub(super) async fn create_run_or_add_message(
        &self,
        new: &NewRun,
        definitions: &[Blob],
        idempotency: Option<IdempotencyRecord>,
    ) -> Result<SubmitOutcome> {
        let enqueue =
            || run_creation_request(vec![(new.clone(), definitions.to_vec())], idempotency.clone());
        let agent = self.get_agent(new.task.agent.as_str()).ok();
        let Some(agent) = agent.filter(|agent| agent.lane_busy != LaneBusyPolicy::Enqueue) else {
            return self.create_runs(enqueue()).await;
        };
        for _ in 0..ATTEMPTS_MAX {
            let mut request = self.add_cap_reservations(enqueue()).await?;
            for run in &mut request.runs {
                run.lane_entry =
                    lane_entry(agent.lane_busy, self.services.agents.defaults.collect_window);
            }
            let busy = match self.services.store.create_runs(request).await? {
                CreateRunsOutcome::LaneBusy(busy) => busy,
                outcome @ (CreateRunsOutcome::Created(_)
                | CreateRunsOutcome::Existing(_)
                | CreateRunsOutcome::KeyReused
                | CreateRunsOutcome::LaneFull(_)
                | CreateRunsOutcome::OverCap(_)) => {
                    return self.to_submit_outcome(outcome);
                }
            };
            if agent.lane_busy == LaneBusyPolicy::Reject {
                return Err(lane_busy_error(busy));
            }
            match self.add_message_to_run(&agent, new, &busy, idempotency.as_ref()).await? {
                AddMessageOutcome::Added(run) => return Ok(SubmitOutcome::Added(run)),
                AddMessageOutcome::Outdated => {}
                AddMessageOutcome::Impossible => break,
            }
        }
        self.create_runs(enqueue()).await
    }

    /// Adds a task as a message to the run that holds the lane, or to the run that waits for it.
    async fn add_message_to_run(
        &self,
        agent: &Agent,
        new: &NewRun,
        busy: &BusyLane,
        idempotency: Option<&IdempotencyRecord>,
    ) -> Result<AddMessageOutcome> {
        let is_collecting = agent.lane_busy == LaneBusyPolicy::Collect;
        let target = if is_collecting { Some(busy.last) } else { busy.holder };
        // A Rust function reads no messages.
        let Some(run) = target.filter(|_| !agent.fixed_model) else {
            return Ok(AddMessageOutcome::Impossible);
        };
        let Some(row) = self.services.store.get_run(run).await? else {
            return Ok(AddMessageOutcome::Outdated);
        };
        if row.status.is_terminal() || (is_collecting && row.epoch.0 > 0) {
            return Ok(AddMessageOutcome::Outdated);
        }
        let first = self.read_run_journal(run, Seq::START, 1).await?;
        match first.first().map(|entry| &entry.event) {
            Some(Event::RunCreated(created)) if differs_in_text_only(&new.task, &created.task) => {}
            Some(_) | None => return Ok(AddMessageOutcome::Impossible),
        }
        // The waiting run must not have started when it gets the message, so the append names the
        // last event of the run.
        let author = match is_collecting {
            true => JournalAuthor::Closer { after: row.last_seq },
            false => JournalAuthor::Outsider,
        };
        let Some(mut request) = self.message_append_request(agent, new, &row, author).await? else {
            return Ok(AddMessageOutcome::Impossible);
        };
        request.batch.changes.extend(idempotency.cloned().map(RowChange::SaveSubmitKey));
        Ok(match self.services.append_and_notify(request).await? {
            AppendResult::Committed { .. } => AddMessageOutcome::Added(run),
            AppendResult::Refused(AppendRefusalReason::SteersFull) => AddMessageOutcome::Impossible,
            // A key that was used in the meantime is found by the next attempt.
            AppendResult::Conflict
            | AppendResult::Fenced
            | AppendResult::RunEnded
            | AppendResult::RunNotFound
            | AppendResult::Refused(_) => AddMessageOutcome::Outdated,
        })
    }

    /// Returns the request that appends the text of a task to a run as a message. `None` if the text
    /// can't be a message.
    async fn message_append_request(
        &self,
        agent: &Agent,
        new: &NewRun,
        row: &RunRow,
        author: JournalAuthor,
    ) -> Result<Option<AppendRequest>> {
        let task = &new.task;
        let values = template::template_values(&task.input, &task.context);
        let text =
            event_text::task_text(agent, task, &values).map_err(|reason| Error::Template {
                agent: agent.name.to_string(),
                template_name: "the event text",
                reason,
            })?;
        let message = SteerMessage {
            steer: SteerId::from_bits(new.id.bits()),
            text,
            delivery: SteerDelivery::default(),
            by: task.submitter.clone().unwrap_or_default(),
            is_task: true,
        };
        let ctx = DecisionContext::new(self.store_time().await?);
        let command = self.redact_command(RunCommand::Steer(message));
        // An empty text, or one that is too long for a message, stays a task of its own.
        let batch = decide_command(row.id, row.status, command, ctx).ok();
        Ok(batch.map(|batch| AppendRequest { run: row.id, author, batch }))
    }
}

/// Whether a task can be a message to the run of another task. A message is only a text, so the rest
/// of the task must be the same. Otherwise the task would get the conversation, the context or the
/// budget of another task, or lose its own.
fn differs_in_text_only(task: &TaskSpec, task_of_run: &TaskSpec) -> bool {
    let is_alone = |task: &TaskSpec| task.chain.is_none();
    (is_alone(task) && is_alone(task_of_run) && task.history.is_empty())
        && fields_besides_text(task) == fields_besides_text(task_of_run)
}

fn fields_besides_text(task: &TaskSpec) -> impl PartialEq {
    (
        (&task.agent, &task.inbox, &task.model, &task.policy.budget),
        (&task.thread, &task.resource, &task.context),
        (&task.actor, &task.links, &task.metadata, &task.tags, &task.source),
    )
}
