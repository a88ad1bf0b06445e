//! Submits and shows batches: runs that are submitted together and execute in parallel or one after
//! another.

use longhaul_api::batch::BatchView;
use longhaul_api::task::Task;
use longhaul_core::id::{BatchId, RunId};
use longhaul_core::task::{EarliestStart, RunBatchMode, RunBatchPosition};
use longhaul_run::Rejection;

use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::handle::submit::{SubmitOutcome, check_task_count, run_creation_request};
use crate::replay::replay_run_state;
use crate::view::created_run_view;

impl Longhaul {
    /// Submits tasks as a batch: all of them or none. The idempotency key of the first task covers
    /// the whole batch.
    pub async fn submit_batch(&self, tasks: Vec<Task>, mode: RunBatchMode) -> Result<BatchView> {
        check_task_count(tasks.len())?;
        let idempotency = self.idempotency_record(&tasks, Some(mode));
        let id = BatchId::from_bits(self.services.ids.next_id_bits());
        let ids: Vec<RunId> = tasks.iter().map(|_| self.new_run_id()).collect();
        let mut built = Vec::with_capacity(tasks.len());
        for (index, (mut task, run)) in tasks.into_iter().zip(ids.iter().copied()).enumerate() {
            let mut position = RunBatchPosition { id, mode, next: None };
            if mode == RunBatchMode::Sequential {
                position.next = ids.get(index + 1).copied();
                task.start = start_condition_in_sequential_batch(index, task.start)?;
            }
            built.push(self.build_new_run(task, run, Some(position))?);
        }
        let views = built.iter().map(|(run, _)| created_run_view(run, self.services.clock.now()));
        let runs = views.collect::<Result<_, _>>()?;
        match self.create_runs(run_creation_request(built, idempotency)).await? {
            SubmitOutcome::Created(_) => Ok(BatchView { id, mode, runs }),
            SubmitOutcome::Existing(runs) => {
                let first = runs.first().ok_or(Error::BatchNotFound(id))?;
                let (first, _) = replay_run_state(&self.services, *first).await?;
                let existing = first.task().batch.ok_or(Error::IdempotencyKeyReused)?;
                self.batch(existing.id).await
            }
            // Tasks of a batch are never added to other runs.
            SubmitOutcome::Added(_) => Err(Error::BatchNotFound(id)),
        }
    }

    /// Returns a batch with its runs, in the order in which they were submitted.
    pub async fn batch(&self, batch: BatchId) -> Result<BatchView> {
        let ids = self.services.records.runs_of_batch(batch).await?;
        let first = ids.first().ok_or(Error::BatchNotFound(batch))?;
        let (first, _) = replay_run_state(&self.services, *first).await?;
        let mode = first.task().batch.map_or(RunBatchMode::default(), |position| position.mode);
        let mut runs = Vec::with_capacity(ids.len());
        let mut workers = None;
        for run in ids {
            runs.push(self.get_run_with_worker_cache(run, &mut workers).await?);
        }
        Ok(BatchView { id: batch, mode, runs })
    }
}

/// Returns the start condition of a task in a sequential batch: each task but the first starts
/// after the one before it. Fails if a task other than the first has a start time.
fn start_condition_in_sequential_batch(
    index: usize,
    start: EarliestStart,
) -> Result<EarliestStart> {
    match (index, start) {
        (0, start) => Ok(start),
        (_, EarliestStart::Now | EarliestStart::AfterBatch) => Ok(EarliestStart::AfterBatch),
        (_, EarliestStart::At(_)) => {
            let reason = "only the first task of a sequential batch can have a start time";
            Err(Rejection::InvalidTask(reason.to_owned()).into())
        }
    }
}
