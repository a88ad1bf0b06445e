//! What stands beside journal and queue: timers, threads, notes, definitions, blobs,
//! accounts, checkpoints, and the counters that must stay 0.
//!
//! Never: lets a journal grow. Only `Store::append` does.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::change::{LateResult, OutboxRow, RuleRow, SandboxRow, SteerRow, TimerKind};
use crate::event::entry::Entry;
use crate::id::{LaneKey, NoteId, ResourceKey, RunId, Seq, ThreadKey, TimerId, WorkerId};
use crate::message::Message;
use crate::note::{NewNote, Note, NoteOutcome};
use crate::policy::gate::OnTimeout;
use crate::port::store::{StoreError, WorkerLiveness};
use crate::raw::Hash;
use crate::time::{Millis, Timestamp};
use crate::usage::{Hold, MicroUsd, Usage};

/// The rows beside the journal.
#[async_trait]
pub trait RecordStore: Send + Sync + std::fmt::Debug {
    /// Timers that are due, the longest due first.
    async fn due_timers(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError>;

    /// When the next timer is due.
    async fn next_timer_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Mends rows that crossed each other, and counts what it found.
    async fn repair(&self) -> Result<Repairs, StoreError>;

    /// A blob's content, if it is kept.
    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError>;

    /// A definition's content, if it is kept.
    async fn definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError>;

    /// The newest messages of a thread, oldest first.
    async fn thread_messages(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<Vec<Message>, StoreError>;

    /// How many messages a thread has.
    async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, StoreError>;

    /// Adds to a thread what no run has said.
    async fn extend_thread(
        &self,
        thread: &ThreadKey,
        messages: Vec<Message>,
    ) -> Result<(), StoreError>;

    /// Forgets a thread.
    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError>;

    /// Keeps a note about a resource. The same key again changes nothing.
    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewNote,
    ) -> Result<NoteOutcome, StoreError>;

    /// The notes of a resource that have any word of `query`: those that fit best
    /// first, and of those that fit alike the newest. Without a word in it the
    /// newest. The query is a stranger's text: nothing in it is an instruction.
    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError>;

    /// The notes of a resource, the newest first, after one of them.
    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError>;

    /// Forgets a note; false: there is none.
    async fn delete_note(&self, note: NoteId) -> Result<bool, StoreError>;

    /// Forgets all notes of a resource, and says how many there were.
    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError>;

    /// The messages for a run, in order of arrival.
    async fn steers(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError>;

    /// The approvals that a run remembers.
    async fn rules(&self, run: RunId) -> Result<Vec<RuleRow>, StoreError>;

    /// The sandboxes of a run.
    async fn sandboxes(&self, run: RunId) -> Result<Vec<SandboxRow>, StoreError>;

    /// The account of a tree of runs.
    async fn budget_account(&self, root: RunId) -> Result<Option<BudgetAccount>, StoreError>;

    /// What was used, by model.
    async fn usage_by_model(&self, ask: UsageQuery) -> Result<Vec<ModelUsage>, StoreError>;

    /// A lane as it stands.
    async fn lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError>;

    /// Lanes with anybody in them, in the order of their names, after one of them.
    async fn lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError>;

    /// The runs in a worker's hands and the last place of each journal, so that
    /// it sees with one look which of them others have written to.
    async fn claimed_runs(&self, worker: WorkerId) -> Result<Vec<(RunId, Seq)>, StoreError>;

    /// The workers that are known.
    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError>;

    /// Whether anybody drives now. A store that only knows signs of life goes by
    /// them; one that knows better says so.
    async fn has_driver(&self) -> Result<bool, StoreError> {
        let workers = self.workers().await?;
        Ok(workers.iter().any(|worker| worker.liveness == WorkerLiveness::Live))
    }

    /// Keeps a result that came when its run had ended.
    async fn save_late_result(&self, run: RunId, late: LateResult) -> Result<(), StoreError>;

    /// Results that came late.
    async fn late_results(&self, run: RunId) -> Result<Vec<LateResult>, StoreError>;

    /// What was written to all journals after a place, in the order of writing.
    async fn read_all(&self, after: GlobalSeq, limit: usize) -> Result<GlobalPage, StoreError>;

    /// Which journals have grown after a place, without what was written.
    async fn changed_since(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<ChangedRuns, StoreError>;

    /// The place of what was written last.
    async fn last_global_seq(&self) -> Result<GlobalSeq, StoreError>;

    /// Messages to the outside that are due.
    async fn due_outbox(&self, limit: usize) -> Result<Vec<OutboxItem>, StoreError>;

    /// A message was delivered, or is to be tried again after a while.
    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> Result<(), StoreError>;

    /// A provider's account may not be asked before this span is over.
    async fn block_provider(&self, account: &str, span: Millis) -> Result<(), StoreError>;

    /// Until when a provider's account may not be asked.
    async fn provider_blocked_until(&self, account: &str) -> Result<Option<Timestamp>, StoreError>;

    /// Keeps a fold, as a cache.
    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> Result<(), StoreError>;

    /// The newest fold that this build made.
    async fn checkpoint(&self, run: RunId, fold: &str) -> Result<Option<Checkpoint>, StoreError>;

    /// The store's time.
    async fn now(&self) -> Result<Timestamp, StoreError>;
}

/// A timer whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTimer {
    /// Which.
    pub timer: TimerId,
    /// Whom it tells.
    pub run: RunId,
    /// What it tells.
    pub kind: TimerKind,
    /// Since when it is due.
    pub due: Timestamp,
    /// The run has ended: there is nobody to tell.
    pub run_ended: bool,
    /// For a gate's timer: what its silence means, if it is still open.
    pub gate_on_timeout: Option<OnTimeout>,
}

/// What a repair found. Each is a count that must stay 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repairs {
    /// Ready runs that stood in no queue.
    pub ready_without_row: u64,
    /// Runs in a queue that are not ready.
    pub row_without_ready: u64,
    /// Parked runs with nothing that could wake them.
    pub parked_without_waker: u64,
    /// Lanes whose head has ended.
    pub lane_stuck: u64,
    /// Open gates of ended runs.
    pub gate_of_ended: u64,
    /// Seats without a sandbox that runs or starts.
    pub slot_leaked: u64,
}

impl Repairs {
    /// Whether everything was in order.
    pub fn is_clean(self) -> bool {
        self == Self::default()
    }
}

/// The account of a tree of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetAccount {
    /// The money cap.
    pub cap_micro_usd: Option<MicroUsd>,
    /// The token cap.
    pub cap_tokens: Option<u64>,
    /// What was used.
    pub spent: Hold,
    /// What counts as used although nobody knows.
    pub lost: Hold,
    /// What is set aside for calls in flight.
    pub held: Hold,
}

/// Which usage.
#[derive(Debug, Clone, Copy, Default)]
pub struct UsageQuery {
    /// Of this tree.
    pub root: Option<RunId>,
    /// Since this point.
    pub since: Option<Timestamp>,
}

/// What one model used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelUsage {
    /// The model.
    pub model: String,
    /// Tokens.
    pub usage: Usage,
    /// Money, as far as it is known.
    pub cost: MicroUsd,
    /// Calls whose cost is not known.
    pub unpriced: u64,
}

/// A lane as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    /// Which.
    pub lane: LaneKey,
    /// The run that holds it.
    pub head: Option<RunId>,
    /// How many runs are in it, the head included.
    pub depth: u32,
}

/// A worker as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// Which.
    pub worker: WorkerId,
    /// Where.
    pub host: String,
    /// Which build.
    pub build: String,
    /// How it stands.
    pub liveness: WorkerLiveness,
    /// Its last sign of life.
    pub heartbeat_at: Timestamp,
    /// Silent for longer than this, it counts as dead.
    pub ttl: Millis,
    /// The runs in its hands.
    pub runs: u64,
}

/// A place in the order in which a store took facts in, over all journals. It
/// only ever rises, also when what stood there is forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GlobalSeq(pub u64);

/// Facts of all journals, in the order of writing.
#[derive(Debug, Clone, Default)]
pub struct GlobalPage {
    /// Each with its place.
    pub entries: Vec<(GlobalSeq, Entry)>,
}

/// Journals that have grown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedRuns {
    /// Which, and their last place among what was looked at; each once.
    pub runs: Vec<(RunId, Seq)>,
    /// So far was looked.
    pub end: GlobalSeq,
}

/// A message that should leave now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxItem {
    /// Which.
    pub id: u64,
    /// Whose run.
    pub run: RunId,
    /// Where to and what.
    pub row: OutboxRow,
    /// How often it was tried.
    pub attempts: u32,
}

/// A fold kept as a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Up to here.
    pub seq: Seq,
    /// The hash of the code that made it: another build's is dropped.
    pub fold_hash: String,
    /// The fold.
    pub state: Vec<u8>,
}
