//! The store port: journals and the ready queue. Each method is one transaction.
//!
//! A store neither interprets events nor decides anything. It persists what it is given and refuses
//! writes that are based on outdated state.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::chain::ChainRow;
use crate::change::{JournalBatch, NewRun};
use crate::event::codec::EventCodecError;
use crate::event::entry::JournalEntry;
use crate::event::environment::ProgressReported;
use crate::id::{
    AgentName, Epoch, GateId, InboxName, LaneKey, ResourceKey, RunId, Seq, ThreadKey, WorkerId,
};
use crate::policy::gate::{GateRow, GateStatus};
use crate::policy::spend_cap::CapRefusal;
pub use crate::port::append_refusal::AppendRefusalReason;
pub use crate::port::queue::BusyLane;
use crate::port::queue::{PeekRequest, QueuePosition, RunsToClaim};
pub use crate::port::run_filter::{RunCounts, RunFilter, RunSort};
use crate::raw::Hash;
pub use crate::request::IdempotencyRecord;
use crate::status::Status;
use crate::time::{Millis, Timestamp};
use crate::usage::{MicroUsd, Usage};
use crate::wait::WaitKind;

/// Persistent store of journals and the ready queue.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Creates all given runs or none of them. They are durable when the call returns.
    async fn create_runs(
        &self,
        request: CreateRunsRequest,
    ) -> Result<CreateRunsOutcome, StoreError>;

    /// Claims ready runs for a worker: from each inbox the same number, in queue order. Each claim
    /// raises the run's epoch and appends `run.claimed`. A worker that is not live gets no runs.
    async fn claim_runs(&self, request: RunClaimRequest) -> Result<Vec<Claim>, StoreError>;

    /// Lists ready runs of an inbox in queue order, without claiming them.
    async fn peek_queue(&self, request: PeekRequest) -> Result<Vec<QueuePosition>, StoreError>;

    /// Records a worker's heartbeat and makes the runs of dead workers ready again.
    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatAck, StoreError>;

    /// Reads the entries of a journal after a given sequence number.
    async fn read_journal(&self, request: JournalReadRequest) -> Result<JournalPage, StoreError>;

    /// Appends a batch of events and row changes to a journal, unless the batch is based on an
    /// outdated state of the journal.
    async fn append_to_journal(&self, append: AppendRequest) -> Result<AppendResult, StoreError>;

    /// Returns the row of a run. Returns `None` if the run does not exist.
    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Lists the rows of runs in the order of the filter.
    async fn list_runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError>;

    /// Lists gates, newest first.
    async fn list_gates(&self, filter: GateFilter) -> Result<Vec<GateRow>, StoreError>;

    /// Returns a watcher that reports changes made by this or another process.
    fn watch_for_changes(&self) -> Box<dyn StoreWatcher>;

    /// Deletes runs that ended long ago and blobs that nothing refers to.
    async fn prune_old_data(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError>;
}

/// Watcher that waits for changes of the store.
#[async_trait]
pub trait StoreWatcher: Send + std::fmt::Debug {
    /// Waits until the store has changed since the last call. May return without a change, but
    /// never misses a change.
    async fn wait_for_change(&mut self) -> Result<(), StoreError>;
}

#[derive(Debug, Clone)]
pub struct CreateRunsRequest {
    /// Runs to create, with their tasks and first events.
    pub runs: Vec<NewRun>,
    /// Agent definitions and other blobs that the runs refer to.
    pub blobs: Vec<crate::change::Blob>,
    /// Idempotency key of the request. `None` means that each repetition creates new runs.
    pub idempotency: Option<IdempotencyRecord>,
}

/// Outcome of a request to create runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateRunsOutcome {
    Created(Vec<RunId>),
    /// An earlier attempt of the request has already created these runs.
    Existing(Vec<RunId>),
    /// The idempotency key was already used for a different request.
    KeyReused,
    /// The lane contains the maximum number of runs.
    LaneFull(LaneKey),
    /// The lane is busy, and the entry policy of the new run does not let it queue in the lane.
    LaneBusy(BusyLane),
    /// A spend cap that refuses tasks is reached.
    OverCap(Box<CapRefusal>),
}

/// Request of a worker to claim runs.
#[derive(Debug, Clone)]
pub struct RunClaimRequest {
    pub worker: WorkerId,
    /// Inboxes to claim from. If `limit` is not a multiple of their number, the first ones get more
    /// runs.
    pub inboxes: Vec<InboxName>,
    /// Task types to claim. Empty means all types.
    pub types: Vec<String>,
    /// Restricts the claim to these runs, whatever their inbox and type. Those that are not ready
    /// are skipped. `None` means the first runs of the inboxes.
    pub only: Option<RunsToClaim>,
    /// Maximum number of runs to claim.
    pub limit: usize,
    /// Highest version of the event format that the worker can read.
    pub format: u32,
    /// Machine that the worker runs on. `None` means that runs that are bound to one machine are
    /// left out.
    pub host: Option<String>,
}

/// A claim, i.e. a worker's exclusive right to drive a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub run: RunId,
    /// Epoch (fencing token) of the claim.
    pub epoch: Epoch,
    /// Last sequence number of the journal, including the `run.claimed` event.
    pub last_seq: Seq,
}

/// Heartbeat by which a worker reports that it is alive.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// Worker that sends the heartbeat.
    pub worker: WorkerId,
    /// Machine the worker runs on.
    pub host: String,
    /// Version of the program that the worker runs.
    pub build: String,
    /// Inboxes from which the worker claims runs.
    pub inboxes: Vec<InboxName>,
    /// Task types that the worker claims. Empty means all types.
    pub types: Vec<String>,
    /// Whether the worker is draining: it finishes its runs and claims no new runs.
    pub draining: bool,
    /// Time without a heartbeat after which the worker counts as dead.
    pub ttl: Millis,
}

/// Response of the store to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatAck {
    /// Liveness of the worker. A dead worker has lost its claims on runs and needs a new id.
    pub liveness: WorkerLiveness,
    /// Number of runs of dead workers that became ready again.
    pub reaped: usize,
    /// Current time of the store's clock.
    pub now: Timestamp,
}

/// Whether a worker is live, draining or dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerLiveness {
    /// The worker may claim runs.
    Live,
    /// The worker finishes its runs and claims no new runs.
    Draining,
    /// The worker sent no heartbeat within its TTL (time to live).
    Dead,
}

/// Request to read a part of a journal.
#[derive(Debug, Clone, Copy)]
pub struct JournalReadRequest {
    pub run: RunId,
    /// Read entries after this sequence number.
    pub after: Seq,
    /// Maximum number of entries to read.
    pub limit: usize,
}

/// Page of consecutive entries of a journal.
#[derive(Debug, Clone)]
pub struct JournalPage {
    /// Journal entries in order, without gaps.
    pub entries: Vec<JournalEntry>,
    /// Last sequence number of the journal at the time of reading.
    pub last_seq: Seq,
    /// Current time of the store's clock.
    pub now: Timestamp,
}

/// Request to append a batch to a journal.
#[derive(Debug, Clone)]
pub struct AppendRequest {
    /// Run whose journal is extended.
    pub run: RunId,
    /// Author of the batch, and which state of the journal the batch is based on.
    pub author: JournalAuthor,
    /// Events and row changes to write.
    pub batch: JournalBatch,
}

/// Author of a batch for a journal. Each kind of author may write under different conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalAuthor {
    /// The worker that drives the run. It must hold the current epoch and have read the journal up
    /// to `after`.
    Driver {
        /// Worker that drives the run.
        worker: WorkerId,
        /// Epoch (fencing token) that the worker holds.
        epoch: Epoch,
        /// Last sequence number that the worker has read.
        after: Seq,
    },
    /// A process that does not drive the run. Its events are accepted until the run has ended.
    Outsider,
    /// A process that ends or pauses a run that no worker drives. It must have read the journal up
    /// to `after`.
    Closer {
        /// Last sequence number that the process has read.
        after: Seq,
    },
}

/// Outcome of a request to append a batch to a journal.
#[derive(Debug, Clone, PartialEq)]
pub enum AppendResult {
    /// The batch was committed.
    Committed {
        /// Sequence number of the last appended event.
        seq: Seq,
        /// Current time of the store's clock.
        now: Timestamp,
    },
    /// Other processes have appended events: read the new events, apply them and decide again.
    Conflict,
    /// Another worker has claimed the run. The author of the batch must not write any more.
    Fenced,
    /// The run has ended, so its journal can't grow any more.
    RunEnded,
    RunNotFound,
    /// A row change was refused, so nothing was written.
    Refused(AppendRefusalReason),
}

/// Stored row of a run, as shown in lists. All of it is derived from the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRow {
    pub id: RunId,
    /// Agent that executes the run.
    pub agent: AgentName,
    /// Hash of the agent definition that the run uses, even if the agent's file changes later.
    pub definition: Hash,
    pub status: Status,
    /// Reason for parking the run, if it is parked.
    pub reason: Option<String>,
    /// Error code of the run, if it failed.
    pub code: Option<String>,
    /// Inbox that the run is queued in.
    pub inbox: InboxName,
    /// Lane of the run. `None` if it has no lane.
    pub lane: Option<LaneKey>,
    /// Thread of the run, i.e. the conversation whose memory it shares. `None` if it has no thread.
    pub thread: Option<ThreadKey>,
    /// Resource (person or thing) that the thread is about. `None` if there is none.
    pub resource: Option<ResourceKey>,
    /// Type of the task, by which lists and workers can filter. `None` if the task has no type.
    pub kind: Option<String>,
    /// Priority of the run in the queue: higher values first.
    pub priority: i32,
    /// Parent run, which started this run. `None` for a root run.
    pub parent: Option<RunId>,
    /// Root of the tree of runs that this run belongs to.
    pub root: RunId,
    /// Position of the run in its chain. `None` if it belongs to no chain.
    pub chain: Option<ChainRow>,
    /// Principal that submitted the run. `None` if it is not recorded.
    pub submitter: Option<String>,
    /// First words of the task, on one line.
    pub title: String,
    /// Tags of the task, for searching.
    pub tags: Vec<String>,
    /// Progress that the agent reported last. `None` if it has reported none.
    pub progress: Option<ProgressReported>,
    /// Current epoch (fencing token) of the run.
    pub epoch: Epoch,
    /// Worker that currently drives the run. `None` if no worker does.
    pub worker: Option<WorkerId>,
    /// Last sequence number of the run's journal.
    pub last_seq: Seq,
    /// Number of turns that the run has completed.
    pub turns: u32,
    /// Tokens used by the run so far.
    pub usage: Usage,
    /// Cost of the run so far. `None` means that the cost of some call is unknown.
    pub cost: Option<MicroUsd>,
    /// Active time (without waits) of the run so far.
    pub active: Millis,
    /// Time at which the run was submitted.
    pub created_at: Timestamp,
    /// Time at which a worker first claimed the run. `None` if no worker has.
    pub started_at: Option<Timestamp>,
    /// Time at which the run ended. `None` if it has not ended.
    pub finished_at: Option<Timestamp>,
}

impl RunRow {
    /// Returns whether the run is open and only a person can let it continue.
    pub fn waits_for_person(&self) -> bool {
        let kind = self.reason.as_deref().and_then(WaitKind::from_code);
        let is_asking = kind.is_some_and(|kind| WaitKind::NEEDS_PERSON.contains(&kind));
        self.status == Status::Blocked || (self.status == Status::Waiting && is_asking)
    }

    /// Returns whether another run has started this run as its child. The run of a chain step is no
    /// child.
    pub const fn is_child(&self) -> bool {
        self.parent.is_some() && self.chain.is_none()
    }
}

/// Filter for listing gates.
#[derive(Debug, Clone, Default)]
pub struct GateFilter {
    /// Restricts the list to this gate. `None` means no restriction.
    pub gate: Option<GateId>,
    /// Restricts the list to gates of this run. `None` means no restriction.
    pub run: Option<RunId>,
    /// Restricts the list to gates with this status. `None` means no restriction.
    pub status: Option<GateStatus>,
    /// Restricts the list to gates with this tag. `None` means no restriction.
    pub tag: Option<String>,
    /// Continues after this gate in the newest-first order: only older gates are listed. `None`
    /// means from the newest gate.
    pub after: Option<GateId>,
    /// Maximum number of gates to list.
    pub limit: usize,
}

impl GateFilter {
    /// Returns a filter for at most `limit` open gates of this run, or of all runs.
    pub fn open(run: Option<RunId>, limit: usize) -> Self {
        Self { run, status: Some(GateStatus::Open), limit, ..Self::default() }
    }
}

/// Time after its last heartbeat for which a dead worker is remembered, so that a worker that was
/// suspended learns that it is dead.
pub const DEAD_WORKER_TTL: Millis = Millis::from_secs(24 * 60 * 60);

/// Request to delete old data.
#[derive(Debug, Clone, Copy)]
pub struct PruneRequest {
    /// Delete runs that ended longer ago than this.
    pub runs_older_than: Millis,
    /// Delete unreferenced blobs that were last used longer ago than this.
    pub blobs_older_than: Millis,
    /// Maximum number of runs to delete at once, to keep the transaction short.
    pub limit: usize,
}

/// Numbers of records that were deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneOutcome {
    /// Number of deleted runs.
    pub runs: usize,
    /// Number of deleted blobs.
    pub blobs: usize,
    /// Number of deleted idempotency keys.
    pub idempotency_keys: usize,
}

/// Failure of the store itself. Failures of runs are never reported as this error.
///
/// `location` is the path or URL of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full. Acknowledged data is safe, but no new work can start.
    #[error("the disk that holds the store `{location}` is full")]
    DiskFull { location: String },
    /// The store is not writable.
    #[error("the store `{location}` can't be written: {reason}")]
    ReadOnly { location: String, reason: String },
    /// The store is corrupt or not a Longhaul store.
    #[error("`{location}` is corrupt or not a Longhaul store: {reason}")]
    Corrupt { location: String, reason: String },
    /// The schema of the store is newer than this build.
    #[error(
        "`{location}` has schema version {found}, this build supports {known}: use a newer longhaul"
    )]
    NewerSchema { location: String, found: u32, known: u32 },
    /// Another process already executes the runs of this store. Only one process at a time may do
    /// so.
    #[error("the store `{location}` is driven by {holder}: only one process can execute its runs")]
    AlreadyDriven { location: String, holder: String },
    /// This process opened the store without the right to execute runs, so it may not claim runs or
    /// repair rows. `verb` is what was attempted, such as `claim runs`.
    #[error("this process can't {verb}: it is not the one that executes the runs of `{location}`")]
    NotDriver { location: String, verb: &'static str },
    /// Another process kept the store locked for too long.
    #[error(
        "the store `{location}` was busy for too long, because another process writes to it: \
         try again"
    )]
    Busy { location: String },
    /// The store URL can't be opened by this build.
    #[error("the store `{url}` can't be opened by this build: {reason}")]
    InvalidUrl { url: String, reason: String },
    /// A journal contains an event that this build can't decode.
    #[error("event {seq} in the journal of {run} can't be read")]
    InvalidEvent {
        /// Run whose journal contains the event.
        run: RunId,
        /// Sequence number of the event.
        seq: Seq,
        /// Reason why the event can't be decoded.
        #[source]
        source: EventCodecError,
    },
    /// The store was closed, or failed in a way that leaves its state unknown.
    #[error("the store `{location}` is closed: {reason}")]
    Closed { location: String, reason: String },
    /// The database failed in any other way.
    #[error("the store `{location}` failed")]
    Database {
        /// Path or URL of the store that failed.
        location: String,
        /// Underlying database error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
