//! A store whose reads of journals wait at a door of the test.

use std::sync::Mutex;

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::store::{
    AppendRequest, Appended, Claim, ClaimRequest, GateFilter, Heartbeat, HeartbeatAck, JournalPage,
    OpenOutcome, OpenRequest, PruneOutcome, PruneRequest, ReadRequest, RunFilter, RunRow, Store,
    StoreError, Watch,
};
use longhaul_testkit::latch::Latch;
use longhaul_testkit::mem_store::MemStore;

/// A store in memory; a read of a journal waits at the door, if there is one.
#[derive(Debug)]
pub(crate) struct GatedReads {
    store: MemStore,
    latch: Mutex<Option<Latch>>,
}

impl GatedReads {
    pub(crate) fn new(store: MemStore) -> Self {
        Self { store, latch: Mutex::default() }
    }

    /// Puts a new door, which is shut, before all later reads.
    pub(crate) fn block(&self) -> Latch {
        let door = Latch::new();
        *self.latch.lock().unwrap() = Some(door.clone());
        door
    }
}

#[async_trait]
impl Store for GatedReads {
    async fn open_runs(&self, ask: OpenRequest) -> Result<OpenOutcome, StoreError> {
        self.store.open_runs(ask).await
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Claim>, StoreError> {
        self.store.claim(ask).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        self.store.heartbeat(beat).await
    }

    async fn read(&self, ask: ReadRequest) -> Result<JournalPage, StoreError> {
        let door = self.latch.lock().unwrap().clone();
        if let Some(door) = door {
            door.wait().await;
        }
        self.store.read(ask).await
    }

    async fn append(&self, append: AppendRequest) -> Result<Appended, StoreError> {
        self.store.append(append).await
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.store.get_run(run).await
    }

    async fn list_runs(&self, ask: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.store.list_runs(ask).await
    }

    async fn list_gates(&self, ask: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        self.store.list_gates(ask).await
    }

    async fn prune(&self, ask: PruneRequest) -> Result<PruneOutcome, StoreError> {
        self.store.prune(ask).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.store.watch()
    }
}
