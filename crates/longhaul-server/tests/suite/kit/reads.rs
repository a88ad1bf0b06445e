//! A store whose reads of journals wait at a door of the test.

use std::sync::Mutex;

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::store::{
    Append, Appended, Beat, ClaimAsk, Claimed, GatesAsk, OpenAsk, Opened, Page, PruneAsk, Pruned,
    ReadAsk, Renewed, RowsAsk, RunRow, Store, StoreError, Watch,
};
use longhaul_testkit::door::Door;
use longhaul_testkit::mem_store::MemStore;

/// A store in memory; a read of a journal waits at the door, if there is one.
#[derive(Debug)]
pub(crate) struct GatedReads {
    store: MemStore,
    door: Mutex<Option<Door>>,
}

impl GatedReads {
    pub(crate) fn new(store: MemStore) -> Self {
        Self {
            store,
            door: Mutex::default(),
        }
    }

    /// Puts a new door, which is shut, before all later reads.
    pub(crate) fn shut(&self) -> Door {
        let door = Door::shut();
        *self.door.lock().unwrap() = Some(door.clone());
        door
    }
}

#[async_trait]
impl Store for GatedReads {
    async fn open(&self, ask: OpenAsk) -> Result<Opened, StoreError> {
        self.store.open(ask).await
    }

    async fn claim(&self, ask: ClaimAsk) -> Result<Vec<Claimed>, StoreError> {
        self.store.claim(ask).await
    }

    async fn renew(&self, beat: Beat) -> Result<Renewed, StoreError> {
        self.store.renew(beat).await
    }

    async fn read(&self, ask: ReadAsk) -> Result<Page, StoreError> {
        let door = self.door.lock().unwrap().clone();
        if let Some(door) = door {
            door.pass().await;
        }
        self.store.read(ask).await
    }

    async fn append(&self, append: Append) -> Result<Appended, StoreError> {
        self.store.append(append).await
    }

    async fn row(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.store.row(run).await
    }

    async fn rows(&self, ask: RowsAsk) -> Result<Vec<RunRow>, StoreError> {
        self.store.rows(ask).await
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateRow>, StoreError> {
        self.store.gates(ask).await
    }

    async fn prune(&self, ask: PruneAsk) -> Result<Pruned, StoreError> {
        self.store.prune(ask).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.store.watch()
    }
}
