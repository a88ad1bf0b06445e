//! Retries failed runs. A retry is a new run, because no event follows the end of a run in its
//! journal. If the failed run has completed a turn, the retry continues from its last event before
//! the end.

use longhaul_core::change::{Blob, NewRun};
use longhaul_core::id::RunId;
use longhaul_core::port::store::{CreateRunsRequest, IdempotencyRecord};
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_run::retry::{RetryPoint, retry_failed_run};

use crate::error::Error;
use crate::handle::{Longhaul, SubmitOutcome};
use crate::replay::replay_journal;

/// Caller name (principal) under which the idempotency keys of retries are stored. It is the same
/// for all callers, so that a failed run is retried only once.
const RETRY_PRINCIPAL: &str = "longhaul:retry";

impl Longhaul {
    /// Creates a new run that continues from the last event before the end of a failed run, with
    /// the agent definition and budget of the failed run. A failed run has at most one retry: a second
    /// call returns the existing run. If the given run has completed and belongs to a chain, the
    /// newest run of the chain is retried.
    pub async fn retry(&self, run: RunId, by: &str) -> Result<SubmitOutcome, Error> {
        let completed = self.run_row(run).await?.status == Status::Completed;
        let newest = self.newest_run_of_chain(run).await?.filter(|_| completed);
        let failed = newest.unwrap_or(run);
        let mut retry_point = RetryPoint::default();
        let (folded, _) = replay_journal(&self.services, failed, None, |run, entry| {
            retry_point.update_from_entry(entry);
            run.apply_without_transcript(entry)
        })
        .await?;
        let new = retry_failed_run(self.new_run_id(), &folded, &retry_point, self.redact(by))?;
        let new = NewRun { lane_depth_max: self.services.agents.defaults.lane_depth_max, ..new };
        let definition = self.services.records.agent_definition(new.task.definition).await?;
        let key = failed.to_string();
        let idempotency = IdempotencyRecord {
            principal: RETRY_PRINCIPAL.to_owned(),
            body_hash: Hash::digest(key.as_bytes()),
            key,
            ttl: None,
        };
        self.create_runs(CreateRunsRequest {
            runs: vec![new],
            blobs: definition.into_iter().map(Blob::new).collect(),
            idempotency: Some(idempotency),
        })
        .await
    }
}
