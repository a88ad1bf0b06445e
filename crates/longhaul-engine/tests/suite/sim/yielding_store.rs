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
use longhaul_core::note::{NewNote, Note, NoteOutcome};
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::records::{
    BudgetAccount, ChangedRuns, Checkpoint, DueTimer, GlobalPage, GlobalSeq, LaneRow, ModelUsage,
    OutboxItem, RecordStore, Repairs, UsageQuery, WorkerRow,
};
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, Claim, ClaimRequest, GateFilter, Heartbeat, HeartbeatAck,
    JournalPage, OpenOutcome, OpenRequest, PruneOutcome, PruneRequest, ReadRequest, RunFilter,
    RunRow, Store, StoreError, Watch,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_testkit::sim::driver::SimServices;

use crate::suite::sim::random::yield_once;

/// Another store, with a wait on both sides of every call.
#[derive(Debug)]
pub(super) struct YieldingStore {
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
    /// How many batches drivers have written.
    commits: AtomicUsize,
}

impl YieldingStore {
    pub(super) fn new(ports: &SimServices) -> Self {
        Self {
            store: ports.store.clone(),
            records: ports.records.clone(),
            commits: AtomicUsize::new(0),
        }
    }

    /// The shelves without waits.
    pub(super) fn records(&self) -> &dyn RecordStore {
        &*self.records
    }

    /// How many batches drivers have written.
    pub(super) fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }
}

/// Waits, works, waits.
async fn yield_around<T>(work: impl Future<Output = T>) -> T {
    yield_once().await;
    let answer = work.await;
    yield_once().await;
    answer
}

#[async_trait]
impl Store for YieldingStore {
    async fn open_runs(&self, ask: OpenRequest) -> Result<OpenOutcome, StoreError> {
        yield_around(self.store.open_runs(ask)).await
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Claim>, StoreError> {
        yield_around(self.store.claim(ask)).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        yield_around(self.store.heartbeat(beat)).await
    }

    async fn read(&self, ask: ReadRequest) -> Result<JournalPage, StoreError> {
        yield_around(self.store.read(ask)).await
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        yield_around(self.store.get_run(run)).await
    }

    async fn list_runs(&self, ask: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        yield_around(self.store.list_runs(ask)).await
    }

    async fn list_gates(&self, ask: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        yield_around(self.store.list_gates(ask)).await
    }

    async fn prune(&self, ask: PruneRequest) -> Result<PruneOutcome, StoreError> {
        yield_around(self.store.prune(ask)).await
    }

    async fn append(&self, append: AppendRequest) -> Result<Appended, StoreError> {
        let drives = matches!(append.author, Author::Driver { .. });
        let work = async {
            let appended = self.store.append(append).await;
            if drives && matches!(appended, Ok(Appended::At { .. })) {
                self.commits.fetch_add(1, Ordering::Relaxed);
            }
            appended
        };
        yield_around(work).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.store.watch()
    }
}

#[async_trait]
impl RecordStore for YieldingStore {
    async fn due_timers(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError> {
        yield_around(self.records.due_timers(limit)).await
    }

    async fn next_timer_due(&self) -> Result<Option<Timestamp>, StoreError> {
        yield_around(self.records.next_timer_due()).await
    }

    async fn repair(&self) -> Result<Repairs, StoreError> {
        yield_around(self.records.repair()).await
    }

    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        yield_around(self.records.blob(hash)).await
    }

    async fn definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        yield_around(self.records.definition(hash)).await
    }

    async fn thread_messages(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<Vec<Message>, StoreError> {
        yield_around(self.records.thread_messages(thread, limit)).await
    }

    async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, StoreError> {
        yield_around(self.records.thread_len(thread)).await
    }

    async fn extend_thread(
        &self,
        thread: &ThreadKey,
        messages: Vec<Message>,
    ) -> Result<(), StoreError> {
        yield_around(self.records.extend_thread(thread, messages)).await
    }

    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewNote,
    ) -> Result<NoteOutcome, StoreError> {
        yield_around(self.records.add_note(resource, note)).await
    }

    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        yield_around(self.records.search_notes(resource, query, limit)).await
    }

    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        yield_around(self.records.list_notes(resource, after, limit)).await
    }

    async fn delete_note(&self, note: NoteId) -> Result<bool, StoreError> {
        yield_around(self.records.delete_note(note)).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError> {
        yield_around(self.records.clear_notes(resource)).await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError> {
        yield_around(self.records.clear_thread(thread)).await
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError> {
        yield_around(self.records.steers(run)).await
    }

    async fn rules(&self, run: RunId) -> Result<Vec<RuleRow>, StoreError> {
        yield_around(self.records.rules(run)).await
    }

    async fn sandboxes(&self, run: RunId) -> Result<Vec<SandboxRow>, StoreError> {
        yield_around(self.records.sandboxes(run)).await
    }

    async fn budget_account(&self, root: RunId) -> Result<Option<BudgetAccount>, StoreError> {
        yield_around(self.records.budget_account(root)).await
    }

    async fn usage_by_model(&self, ask: UsageQuery) -> Result<Vec<ModelUsage>, StoreError> {
        yield_around(self.records.usage_by_model(ask)).await
    }

    async fn lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        yield_around(self.records.lane(lane)).await
    }

    async fn lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError> {
        yield_around(self.records.lanes(after, limit)).await
    }

    async fn claimed_runs(&self, worker: WorkerId) -> Result<Vec<(RunId, Seq)>, StoreError> {
        yield_around(self.records.claimed_runs(worker)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        yield_around(self.records.workers()).await
    }

    async fn save_late_result(&self, run: RunId, late: LateResult) -> Result<(), StoreError> {
        yield_around(self.records.save_late_result(run, late)).await
    }

    async fn late_results(&self, run: RunId) -> Result<Vec<LateResult>, StoreError> {
        yield_around(self.records.late_results(run)).await
    }

    async fn read_all(&self, after: GlobalSeq, limit: usize) -> Result<GlobalPage, StoreError> {
        yield_around(self.records.read_all(after, limit)).await
    }

    async fn changed_since(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<ChangedRuns, StoreError> {
        yield_around(self.records.changed_since(after, limit)).await
    }

    async fn last_global_seq(&self) -> Result<GlobalSeq, StoreError> {
        yield_around(self.records.last_global_seq()).await
    }

    async fn due_outbox(&self, limit: usize) -> Result<Vec<OutboxItem>, StoreError> {
        yield_around(self.records.due_outbox(limit)).await
    }

    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> Result<(), StoreError> {
        yield_around(self.records.settle_outbox(id, again)).await
    }

    async fn block_provider(&self, account: &str, span: Millis) -> Result<(), StoreError> {
        yield_around(self.records.block_provider(account, span)).await
    }

    async fn provider_blocked_until(&self, account: &str) -> Result<Option<Timestamp>, StoreError> {
        yield_around(self.records.provider_blocked_until(account)).await
    }

    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> Result<(), StoreError> {
        yield_around(self.records.save_checkpoint(run, at)).await
    }

    async fn checkpoint(&self, run: RunId, fold: &str) -> Result<Option<Checkpoint>, StoreError> {
        yield_around(self.records.checkpoint(run, fold)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        yield_around(self.records.now()).await
    }
}
