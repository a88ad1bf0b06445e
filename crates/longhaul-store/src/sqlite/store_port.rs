//! The port of journal and queue, verb by verb.
//!
//! Never: more than handing a verb to the writer or the readers.

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, Claim, ClaimRequest, GateFilter, Heartbeat, HeartbeatAck,
    JournalPage, OpenOutcome, OpenRequest, PruneOutcome, PruneRequest, ReadRequest, RunFilter,
    RunRow, Store, StoreError, Watch,
};

use crate::sqlite::append::{EncodedAppend, append};
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::{claim, gate, heartbeat, journal, new_run, prune, run_row};

#[async_trait]
impl Store for SqliteStore {
    async fn open_runs(&self, ask: OpenRequest) -> Result<OpenOutcome, StoreError> {
        self.write(move |tx| new_run::open_runs(tx, &ask)).await
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Claim>, StoreError> {
        self.require_driver("claim runs")?;
        self.write(move |tx| claim::claim(tx, &ask)).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        self.require_driver("renew a worker")?;
        self.write(move |tx| heartbeat::heartbeat(tx, &beat)).await
    }

    async fn read(&self, ask: ReadRequest) -> Result<JournalPage, StoreError> {
        self.read_with(move |tx| journal::read_page(tx, ask)).await
    }

    async fn append(&self, ask: AppendRequest) -> Result<Appended, StoreError> {
        if let Author::Driver { .. } = ask.author {
            self.require_driver("append as a run's driver")?;
        }
        match EncodedAppend::new(ask).map_err(|fault| fault.into_store_error(&self.at))? {
            Ok(growth) => self.write(move |tx| append(tx, &growth)).await,
            Err(refused) => Ok(Appended::Refused(refused)),
        }
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.read_with(move |tx| run_row::row(tx, run)).await
    }

    async fn list_runs(&self, ask: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.read_with(move |tx| run_row::rows(tx, &ask)).await
    }

    async fn list_gates(&self, ask: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        self.read_with(move |tx| gate::gates(tx, &ask)).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.changes.subscribe()
    }

    async fn prune(&self, ask: PruneRequest) -> Result<PruneOutcome, StoreError> {
        self.require_driver("prune")?;
        let steps = self.read_with(move |tx| prune::plan_steps(tx, ask)).await?;
        let mut pruned = PruneOutcome::default();
        // Each step is a command of its own: appends come between.
        for step in steps {
            let done = self.write_silent(move |tx| prune::run_step(tx, ask, &step)).await?;
            pruned.runs += done.runs;
            pruned.blobs += done.blobs;
            pruned.idempotency_keys += done.idempotency_keys;
        }
        Ok(pruned)
    }
}
