//! A store that lets a crash in before each call does its work, and after it
//! did it but before anybody hears of it.
//!
//! Never: loses anything itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use longhaul_core::change::{LateResult, RuleRow, SandboxRow, SteerRow};
use longhaul_core::id::{LaneKey, NoteId, ResourceKey, RunId, Seq, ThreadKey, WorkerId};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Note, Noted};
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::shelves::{
    Account, Checkpoint, DueTimer, Grown, LaneRow, OutboxDue, Place, Repairs, Shelves, Spend,
    SpendAsk, Tail, WorkerRow,
};
use longhaul_core::port::store::{
    Append, Appended, Author, Beat, ClaimAsk, Claimed, GatesAsk, OpenAsk, Opened, Page, PruneAsk,
    Pruned, ReadAsk, Renewed, RowsAsk, RunRow, Store, StoreError, Watch,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_testkit::sim::driver::Ports;

use crate::suite::sim::luck::wait_once;

/// Another store, with a wait on both sides of every call.
#[derive(Debug)]
pub(super) struct Yielding {
    store: Arc<dyn Store>,
    shelves: Arc<dyn Shelves>,
    /// How many batches drivers have written.
    written: AtomicUsize,
}

impl Yielding {
    pub(super) fn new(ports: &Ports) -> Self {
        Self {
            store: ports.store.clone(),
            shelves: ports.shelves.clone(),
            written: AtomicUsize::new(0),
        }
    }

    /// The shelves without waits.
    pub(super) fn shelves(&self) -> &dyn Shelves {
        &*self.shelves
    }

    /// How many batches drivers have written.
    pub(super) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }
}

/// Waits, works, waits.
async fn around<T>(work: impl Future<Output = T>) -> T {
    wait_once().await;
    let answer = work.await;
    wait_once().await;
    answer
}

#[async_trait]
impl Store for Yielding {
    async fn open(&self, ask: OpenAsk) -> Result<Opened, StoreError> {
        around(self.store.open(ask)).await
    }

    async fn claim(&self, ask: ClaimAsk) -> Result<Vec<Claimed>, StoreError> {
        around(self.store.claim(ask)).await
    }

    async fn renew(&self, beat: Beat) -> Result<Renewed, StoreError> {
        around(self.store.renew(beat)).await
    }

    async fn read(&self, ask: ReadAsk) -> Result<Page, StoreError> {
        around(self.store.read(ask)).await
    }

    async fn row(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        around(self.store.row(run)).await
    }

    async fn rows(&self, ask: RowsAsk) -> Result<Vec<RunRow>, StoreError> {
        around(self.store.rows(ask)).await
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateRow>, StoreError> {
        around(self.store.gates(ask)).await
    }

    async fn prune(&self, ask: PruneAsk) -> Result<Pruned, StoreError> {
        around(self.store.prune(ask)).await
    }

    async fn append(&self, append: Append) -> Result<Appended, StoreError> {
        let drives = matches!(append.author, Author::Driver { .. });
        let work = async {
            let appended = self.store.append(append).await;
            if drives && matches!(appended, Ok(Appended::At { .. })) {
                self.written.fetch_add(1, Ordering::Relaxed);
            }
            appended
        };
        around(work).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.store.watch()
    }
}

#[async_trait]
impl Shelves for Yielding {
    async fn due(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError> {
        around(self.shelves.due(limit)).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        around(self.shelves.next_due()).await
    }

    async fn repair(&self) -> Result<Repairs, StoreError> {
        around(self.shelves.repair()).await
    }

    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        around(self.shelves.blob(hash)).await
    }

    async fn definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        around(self.shelves.definition(hash)).await
    }

    async fn thread(&self, thread: &ThreadKey, limit: usize) -> Result<Vec<Message>, StoreError> {
        around(self.shelves.thread(thread, limit)).await
    }

    async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, StoreError> {
        around(self.shelves.thread_len(thread)).await
    }

    async fn extend_thread(
        &self,
        thread: &ThreadKey,
        messages: Vec<Message>,
    ) -> Result<(), StoreError> {
        around(self.shelves.extend_thread(thread, messages)).await
    }

    async fn remember(&self, resource: &ResourceKey, note: NewNote) -> Result<Noted, StoreError> {
        around(self.shelves.remember(resource, note)).await
    }

    async fn recall(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        around(self.shelves.recall(resource, query, limit)).await
    }

    async fn notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        around(self.shelves.notes(resource, after, limit)).await
    }

    async fn forget_note(&self, note: NoteId) -> Result<bool, StoreError> {
        around(self.shelves.forget_note(note)).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError> {
        around(self.shelves.clear_notes(resource)).await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError> {
        around(self.shelves.clear_thread(thread)).await
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError> {
        around(self.shelves.steers(run)).await
    }

    async fn rules(&self, run: RunId) -> Result<Vec<RuleRow>, StoreError> {
        around(self.shelves.rules(run)).await
    }

    async fn sandboxes(&self, run: RunId) -> Result<Vec<SandboxRow>, StoreError> {
        around(self.shelves.sandboxes(run)).await
    }

    async fn account(&self, root: RunId) -> Result<Option<Account>, StoreError> {
        around(self.shelves.account(root)).await
    }

    async fn spend(&self, ask: SpendAsk) -> Result<Vec<Spend>, StoreError> {
        around(self.shelves.spend(ask)).await
    }

    async fn lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        around(self.shelves.lane(lane)).await
    }

    async fn lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError> {
        around(self.shelves.lanes(after, limit)).await
    }

    async fn heads(&self, worker: WorkerId) -> Result<Vec<(RunId, Seq)>, StoreError> {
        around(self.shelves.heads(worker)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        around(self.shelves.workers()).await
    }

    async fn keep_late(&self, run: RunId, late: LateResult) -> Result<(), StoreError> {
        around(self.shelves.keep_late(run, late)).await
    }

    async fn late(&self, run: RunId) -> Result<Vec<LateResult>, StoreError> {
        around(self.shelves.late(run)).await
    }

    async fn tail(&self, after: Place, limit: usize) -> Result<Tail, StoreError> {
        around(self.shelves.tail(after, limit)).await
    }

    async fn grown(&self, after: Place, limit: usize) -> Result<Grown, StoreError> {
        around(self.shelves.grown(after, limit)).await
    }

    async fn end(&self) -> Result<Place, StoreError> {
        around(self.shelves.end()).await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxDue>, StoreError> {
        around(self.shelves.outbox(limit)).await
    }

    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> Result<(), StoreError> {
        around(self.shelves.settle_outbox(id, again)).await
    }

    async fn block_bucket(&self, account: &str, span: Millis) -> Result<(), StoreError> {
        around(self.shelves.block_bucket(account, span)).await
    }

    async fn bucket(&self, account: &str) -> Result<Option<Timestamp>, StoreError> {
        around(self.shelves.bucket(account)).await
    }

    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> Result<(), StoreError> {
        around(self.shelves.save_checkpoint(run, at)).await
    }

    async fn checkpoint(&self, run: RunId, fold: &str) -> Result<Option<Checkpoint>, StoreError> {
        around(self.shelves.checkpoint(run, fold)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        around(self.shelves.now()).await
    }
}
