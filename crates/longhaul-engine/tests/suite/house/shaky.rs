//! A store that fails on order, before it has done its work or after it.
//!
//! Never: by itself. Without an order it is the store behind it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
use longhaul_testkit::mem_store::MemStore;

/// How a call of the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Somebody else holds it, and nothing was done.
    Busy,
    /// The disk is full, and nothing was done.
    Full,
    /// It is broken, and nothing was done.
    Broken,
    /// It was done, and the answer was lost.
    Lost,
}

impl Fault {
    fn error(self) -> StoreError {
        let at = "a shaky store".to_owned();
        match self {
            Self::Busy | Self::Lost => StoreError::Busy { at },
            Self::Full => StoreError::Full { at },
            Self::Broken => StoreError::Database {
                at,
                source: "the disk made a noise".into(),
            },
        }
    }
}

/// A store in memory that fails on order.
#[derive(Debug)]
pub(crate) struct Shaky {
    behind: MemStore,
    /// When a driver writes a fact of this kind, its append fails so.
    appends: Mutex<VecDeque<(&'static str, Fault)>>,
    /// So often a driver that only moves rows finds that others have written.
    crowds: AtomicUsize,
    claims: Mutex<VecDeque<Fault>>,
    reads: Mutex<VecDeque<Fault>>,
    /// Definitions are not found.
    pub(crate) hides_definitions: AtomicBool,
}

impl Shaky {
    pub(crate) fn new(behind: MemStore) -> Self {
        Self {
            behind,
            appends: Mutex::default(),
            crowds: AtomicUsize::new(0),
            claims: Mutex::default(),
            reads: Mutex::default(),
            hides_definitions: AtomicBool::new(false),
        }
    }

    /// The next append of a driver with a fact of this kind fails so.
    pub(crate) fn fail_append(&self, kind: &'static str, fault: Fault) {
        self.appends.lock().unwrap().push_back((kind, fault));
    }

    /// So often a driver that only moves rows finds that others have written.
    pub(crate) fn crowd(&self, count: usize) {
        self.crowds.store(count, Ordering::SeqCst);
    }

    /// Whether others have written just before this append.
    fn is_crowded(&self, append: &Append) -> bool {
        let fewer = |count: usize| count.checked_sub(1);
        append.batch.events.is_empty()
            && matches!(append.author, Author::Driver { .. })
            && self
                .crowds
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer)
                .is_ok()
    }

    /// The next claim that finds a run fails so.
    pub(crate) fn fail_claim(&self, fault: Fault) {
        self.claims.lock().unwrap().push_back(fault);
    }

    /// The next reads fail so.
    pub(crate) fn fail_reads(&self, fault: Fault, count: usize) {
        let faults = std::iter::repeat_n(fault, count);
        self.reads.lock().unwrap().extend(faults);
    }

    /// Whether every fault that was ordered has happened.
    pub(crate) fn has_failed(&self) -> bool {
        let appends = self.appends.lock().unwrap().is_empty();
        appends && self.claims.lock().unwrap().is_empty() && self.reads.lock().unwrap().is_empty()
    }

    fn fault_of(&self, append: &Append) -> Option<Fault> {
        let Author::Driver { .. } = append.author else {
            return None;
        };
        let mut appends = self.appends.lock().unwrap();
        let (kind, fault) = *appends.front()?;
        let holds = append.batch.events.iter().any(|event| event.kind() == kind);
        holds.then(|| appends.pop_front()).map(|_| fault)
    }
}

#[async_trait]
impl Store for Shaky {
    async fn open(&self, ask: OpenAsk) -> Result<Opened, StoreError> {
        self.behind.open(ask).await
    }

    async fn claim(&self, ask: ClaimAsk) -> Result<Vec<Claimed>, StoreError> {
        let fault = self.claims.lock().unwrap().front().copied();
        if let Some(fault) = fault.filter(|fault| *fault != Fault::Lost) {
            self.claims.lock().unwrap().pop_front();
            return Err(fault.error());
        }
        let claimed = self.behind.claim(ask).await?;
        match fault.filter(|_| !claimed.is_empty()) {
            Some(fault) => {
                self.claims.lock().unwrap().pop_front();
                Err(fault.error())
            }
            None => Ok(claimed),
        }
    }

    async fn renew(&self, beat: Beat) -> Result<Renewed, StoreError> {
        self.behind.renew(beat).await
    }

    async fn read(&self, ask: ReadAsk) -> Result<Page, StoreError> {
        let fault = self.reads.lock().unwrap().pop_front();
        match fault {
            Some(fault) => Err(fault.error()),
            None => self.behind.read(ask).await,
        }
    }

    async fn row(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.behind.row(run).await
    }

    async fn rows(&self, ask: RowsAsk) -> Result<Vec<RunRow>, StoreError> {
        self.behind.rows(ask).await
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateRow>, StoreError> {
        self.behind.gates(ask).await
    }

    async fn prune(&self, ask: PruneAsk) -> Result<Pruned, StoreError> {
        self.behind.prune(ask).await
    }

    async fn append(&self, append: Append) -> Result<Appended, StoreError> {
        if self.is_crowded(&append) {
            return Ok(Appended::MovedOn);
        }
        match self.fault_of(&append) {
            None => self.behind.append(append).await,
            Some(Fault::Lost) => {
                self.behind.append(append).await?;
                Err(Fault::Lost.error())
            }
            Some(fault) => Err(fault.error()),
        }
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.behind.watch()
    }
}

#[async_trait]
impl Shelves for Shaky {
    async fn due(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError> {
        self.behind.due(limit).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.behind.next_due().await
    }

    async fn repair(&self) -> Result<Repairs, StoreError> {
        self.behind.repair().await
    }

    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        self.behind.blob(hash).await
    }

    async fn definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        if self.hides_definitions.load(Ordering::SeqCst) {
            return Ok(None);
        }
        self.behind.definition(hash).await
    }

    async fn thread(&self, thread: &ThreadKey, limit: usize) -> Result<Vec<Message>, StoreError> {
        self.behind.thread(thread, limit).await
    }

    async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, StoreError> {
        self.behind.thread_len(thread).await
    }

    async fn extend_thread(
        &self,
        thread: &ThreadKey,
        messages: Vec<Message>,
    ) -> Result<(), StoreError> {
        self.behind.extend_thread(thread, messages).await
    }

    async fn remember(&self, resource: &ResourceKey, note: NewNote) -> Result<Noted, StoreError> {
        self.behind.remember(resource, note).await
    }

    async fn recall(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.behind.recall(resource, query, limit).await
    }

    async fn notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.behind.notes(resource, after, limit).await
    }

    async fn forget_note(&self, note: NoteId) -> Result<bool, StoreError> {
        self.behind.forget_note(note).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError> {
        self.behind.clear_notes(resource).await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError> {
        self.behind.clear_thread(thread).await
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError> {
        self.behind.steers(run).await
    }

    async fn rules(&self, run: RunId) -> Result<Vec<RuleRow>, StoreError> {
        self.behind.rules(run).await
    }

    async fn sandboxes(&self, run: RunId) -> Result<Vec<SandboxRow>, StoreError> {
        self.behind.sandboxes(run).await
    }

    async fn account(&self, root: RunId) -> Result<Option<Account>, StoreError> {
        self.behind.account(root).await
    }

    async fn spend(&self, ask: SpendAsk) -> Result<Vec<Spend>, StoreError> {
        self.behind.spend(ask).await
    }

    async fn lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        self.behind.lane(lane).await
    }

    async fn lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError> {
        self.behind.lanes(after, limit).await
    }

    async fn heads(&self, worker: WorkerId) -> Result<Vec<(RunId, Seq)>, StoreError> {
        Shelves::heads(&self.behind, worker).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.behind.workers().await
    }

    async fn keep_late(&self, run: RunId, late: LateResult) -> Result<(), StoreError> {
        self.behind.keep_late(run, late).await
    }

    async fn late(&self, run: RunId) -> Result<Vec<LateResult>, StoreError> {
        self.behind.late(run).await
    }

    async fn tail(&self, after: Place, limit: usize) -> Result<Tail, StoreError> {
        self.behind.tail(after, limit).await
    }

    async fn grown(&self, after: Place, limit: usize) -> Result<Grown, StoreError> {
        self.behind.grown(after, limit).await
    }

    async fn end(&self) -> Result<Place, StoreError> {
        self.behind.end().await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxDue>, StoreError> {
        self.behind.outbox(limit).await
    }

    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> Result<(), StoreError> {
        self.behind.settle_outbox(id, again).await
    }

    async fn block_bucket(&self, account: &str, span: Millis) -> Result<(), StoreError> {
        self.behind.block_bucket(account, span).await
    }

    async fn bucket(&self, account: &str) -> Result<Option<Timestamp>, StoreError> {
        self.behind.bucket(account).await
    }

    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> Result<(), StoreError> {
        self.behind.save_checkpoint(run, at).await
    }

    async fn checkpoint(&self, run: RunId, fold: &str) -> Result<Option<Checkpoint>, StoreError> {
        self.behind.checkpoint(run, fold).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.behind.now().await
    }
}
