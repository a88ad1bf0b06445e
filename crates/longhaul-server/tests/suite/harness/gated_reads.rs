//! A store whose journal reads wait at a latch of the test.

use std::sync::Mutex;

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
use longhaul_core::port::store::{
    AppendRequest, AppendResult, Claim, CreateRunsOutcome, CreateRunsRequest, GateFilter,
    Heartbeat, HeartbeatAck, JournalPage, JournalReadRequest, PruneOutcome, PruneRequest,
    RunClaimRequest, RunFilter, RunRow, Store, StoreError, StoreWatcher,
};
use longhaul_testkit::latch::Latch;
use longhaul_testkit::mem_store::MemStore;

/// An in-memory store. Journal reads wait at the latch, if there is one.
#[derive(Debug)]
pub(crate) struct GatedReads {
    store: MemStore,
    latch: Mutex<Option<Latch>>,
}

impl GatedReads {
    pub(crate) fn new(store: MemStore) -> Self {
        Self { store, latch: Mutex::default() }
    }

    /// Adds a closed latch for all later reads.
    pub(crate) fn block(&self) -> Latch {
        let latch = Latch::closed();
        *self.latch.lock().unwrap() = Some(latch.clone());
        latch
    }
}

#[async_trait]
impl Store for GatedReads {
    async fn create_runs(
        &self,
        request: CreateRunsRequest,
    ) -> Result<CreateRunsOutcome, StoreError> {
        self.store.create_runs(request).await
    }

    async fn claim_runs(&self, request: RunClaimRequest) -> Result<Vec<Claim>, StoreError> {
        self.store.claim_runs(request).await
    }

    async fn peek_queue(&self, request: PeekRequest) -> Result<Vec<QueuePosition>, StoreError> {
        self.store.peek_queue(request).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        self.store.heartbeat(heartbeat).await
    }

    async fn read_journal(&self, request: JournalReadRequest) -> Result<JournalPage, StoreError> {
        let latch = self.latch.lock().unwrap().clone();
        if let Some(latch) = latch {
            latch.wait().await;
        }
        self.store.read_journal(request).await
    }

    async fn append_to_journal(&self, append: AppendRequest) -> Result<AppendResult, StoreError> {
        self.store.append_to_journal(append).await
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.store.get_run(run).await
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.store.list_runs(filter).await
    }

    async fn list_gates(&self, filter: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        self.store.list_gates(filter).await
    }

    async fn prune_old_data(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError> {
        self.store.prune_old_data(request).await
    }

    fn watch_for_changes(&self) -> Box<dyn StoreWatcher> {
        self.store.watch_for_changes()
    }
}
