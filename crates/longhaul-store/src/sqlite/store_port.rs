//! Implements the trait `Store`: journals and the ready queue.

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
use longhaul_core::port::store::{
    AppendRequest, AppendResult, Claim, CreateRunsOutcome, CreateRunsRequest, GateFilter,
    Heartbeat, HeartbeatAck, JournalAuthor, JournalPage, JournalReadRequest, PruneOutcome,
    PruneRequest, RunClaimRequest, RunFilter, RunRow, Store, StoreError, StoreWatcher,
};

use crate::sqlite::append::{EncodedAppendRequest, append_events};
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::{claim, gate, heartbeat, journal, new_run, prune, run_list, run_row};

#[async_trait]
impl Store for SqliteStore {
    async fn create_runs(
        &self,
        request: CreateRunsRequest,
    ) -> Result<CreateRunsOutcome, StoreError> {
        self.run_command(move |tx| new_run::create_runs(tx, &request)).await
    }

    async fn claim_runs(&self, request: RunClaimRequest) -> Result<Vec<Claim>, StoreError> {
        self.require_driver_process("claim runs")?;
        self.run_command(move |tx| claim::claim_runs(tx, &request)).await
    }

    async fn peek_queue(&self, request: PeekRequest) -> Result<Vec<QueuePosition>, StoreError> {
        self.run_query(move |tx| claim::peek_queue(tx, &request)).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        self.require_driver_process("send heartbeats")?;
        self.run_command(move |tx| heartbeat::record_heartbeat(tx, &heartbeat)).await
    }

    async fn read_journal(&self, request: JournalReadRequest) -> Result<JournalPage, StoreError> {
        self.run_query(move |tx| journal::read_journal_page(tx, request)).await
    }

    async fn append_to_journal(&self, request: AppendRequest) -> Result<AppendResult, StoreError> {
        if let JournalAuthor::Driver { .. } = request.author {
            self.require_driver_process("append as a run's driver")?;
        }
        match EncodedAppendRequest::encode_append_request(request)
            .map_err(|error| error.into_store_error(&self.location))?
        {
            Ok(append) => self.run_command(move |tx| append_events(tx, &append)).await,
            Err(refusal) => Ok(AppendResult::Refused(refusal)),
        }
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.run_query(move |tx| run_row::get_run_row(tx, run)).await
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.run_query(move |tx| run_list::list_run_rows(tx, &filter)).await
    }

    async fn list_gates(&self, filter: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        self.run_query(move |tx| gate::list_gates(tx, &filter)).await
    }

    fn watch_for_changes(&self) -> Box<dyn StoreWatcher> {
        self.changes.subscribe()
    }

    async fn prune_old_data(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError> {
        self.require_driver_process("prune")?;
        let steps = self.run_query(move |tx| prune::plan_prune_steps(tx, request)).await?;
        let mut pruned = PruneOutcome::default();
        // Each step is a separate command, so that appends can run in between.
        for step in steps {
            let outcome = self
                .run_command_without_notifying_watchers(move |tx| {
                    prune::run_prune_step(tx, request, &step)
                })
                .await?;
            pruned.runs += outcome.runs;
            pruned.blobs += outcome.blobs;
            pruned.idempotency_keys += outcome.idempotency_keys;
        }
        Ok(pruned)
    }
}
