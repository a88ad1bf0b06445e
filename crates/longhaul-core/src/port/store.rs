//! The journal and the queue: ten verbs, each one transaction.
//!
//! Never: folds a journal and never decides. A store keeps what it is given
//! and refuses what comes too late.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::change::{Batch, NewRun};
use crate::event::codec::EventCodecError;
use crate::event::entry::Entry;
use crate::id::{
    AgentName, Epoch, GateId, InboxName, LaneKey, ResourceKey, RunId, Seq, ThreadKey, WorkerId,
};
use crate::policy::gate::{GateRow, GateStatus, RecordedAnswer};
use crate::raw::Hash;
use crate::status::Status;
use crate::time::{Millis, Timestamp};
use crate::usage::{MicroUsd, RemainingBudget, Usage};

/// The journal and the queue.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Opens runs: all of them or none. Acknowledged is durable.
    async fn open_runs(&self, ask: OpenRequest) -> Result<OpenOutcome, StoreError>;

    /// Takes ready runs for a worker, in order. Each claim raises the epoch and
    /// writes `run.claimed`. A worker that is not live gets none.
    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Claim>, StoreError>;

    /// Says that a worker lives, and frees the runs of workers that don't.
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAck, StoreError>;

    /// Reads a journal onward from a place.
    async fn read(&self, ask: ReadRequest) -> Result<JournalPage, StoreError>;

    /// Lets a journal grow, if what its author says of it still holds.
    async fn append(&self, append: AppendRequest) -> Result<Appended, StoreError>;

    /// One run's row.
    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Rows of runs, newest first.
    async fn list_runs(&self, ask: RunFilter) -> Result<Vec<RunRow>, StoreError>;

    /// Gates, newest first.
    async fn list_gates(&self, ask: GateFilter) -> Result<Vec<GateRow>, StoreError>;

    /// Tells when something has changed, in this process or another.
    fn watch(&self) -> Box<dyn Watch>;

    /// Forgets what is past its keep: ended runs, blobs without a reference.
    async fn prune(&self, ask: PruneRequest) -> Result<PruneOutcome, StoreError>;
}

/// Waits for the store to change.
#[async_trait]
pub trait Watch: Send + std::fmt::Debug {
    /// Returns when something has changed since the last call. A hint: it may
    /// come without a change, never the other way round.
    async fn changed(&mut self) -> Result<(), StoreError>;
}

/// Runs to open.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The runs.
    pub runs: Vec<NewRun>,
    /// Definitions and blobs that they name.
    pub blobs: Vec<crate::change::Blob>,
    /// Ask once, however often it is sent.
    pub idempotency: Option<Idempotency>,
}

/// A key under which a request counts once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Who asks: another principal's keys are others.
    pub principal: String,
    /// The key.
    pub key: String,
    /// The hash of the whole request.
    pub body_hash: Hash,
    /// How long it is remembered.
    pub ttl: Millis,
}

/// What opening gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenOutcome {
    /// These runs are new.
    Created(Vec<RunId>),
    /// The same request opened these before.
    Existing(Vec<RunId>),
    /// The key was used for another request.
    KeyReused,
    /// The lane is full.
    LaneFull(LaneKey),
}

/// What a worker wants.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who.
    pub worker: WorkerId,
    /// From which inboxes, in this order.
    pub inboxes: Vec<InboxName>,
    /// Of which types; empty: any.
    pub types: Vec<String>,
    /// How many at most.
    pub limit: usize,
    /// The highest event format the worker can read.
    pub format: u32,
    /// The machine, for runs that are bound to one.
    pub host: Option<String>,
}

/// A run in a worker's hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Which run.
    pub run: RunId,
    /// The fence.
    pub epoch: Epoch,
    /// The last place of its journal, the claim's own fact included.
    pub last_seq: Seq,
}

/// A worker's sign of life.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// Who.
    pub worker: WorkerId,
    /// On which machine.
    pub host: String,
    /// Which build.
    pub build: String,
    /// It takes no new runs.
    pub draining: bool,
    /// Silent for longer than this, it counts as dead.
    pub ttl: Millis,
}

/// What a sign of life gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatAck {
    /// How the worker stands. Dead: its runs are gone, it needs a new id.
    pub liveness: WorkerLiveness,
    /// So many runs of dead workers are ready again.
    pub reaped: usize,
    /// The store's time.
    pub now: Timestamp,
}

/// How a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerLiveness {
    /// It may claim.
    Live,
    /// It ends what it has.
    Draining,
    /// It was silent too long.
    Dead,
}

/// A part of a journal.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// Whose.
    pub run: RunId,
    /// After this place.
    pub after: Seq,
    /// So many entries at most.
    pub limit: usize,
}

/// A part of a journal, as it was read.
#[derive(Debug, Clone)]
pub struct JournalPage {
    /// The entries, in order and without a gap.
    pub entries: Vec<Entry>,
    /// The journal's last place at that moment.
    pub last_seq: Seq,
    /// The store's time.
    pub now: Timestamp,
}

/// A growth of a journal.
#[derive(Debug, Clone)]
pub struct AppendRequest {
    /// Whose.
    pub run: RunId,
    /// Who writes and what they know.
    pub author: Author,
    /// What is written.
    pub batch: Batch,
}

/// Who writes, and the condition that this puts on the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The driver: it holds the epoch and has read up to `after`.
    Driver {
        /// Who.
        worker: WorkerId,
        /// The fence it holds.
        epoch: Epoch,
        /// What it has read.
        after: Seq,
    },
    /// Anybody with one of the facts that are accepted in every open state.
    Outsider,
    /// Whoever ends or stills a run that nobody drives, having read up to `after`.
    Closer {
        /// What it has read.
        after: Seq,
    },
}

/// What came of an append.
#[derive(Debug, Clone, PartialEq)]
pub enum Appended {
    /// It stands, and this is its last place.
    At {
        /// The last place.
        seq: Seq,
        /// The store's time.
        now: Timestamp,
    },
    /// Others have written since: read the tail, fold, decide again.
    Conflict,
    /// Another driver has the run: write nothing more.
    Fenced,
    /// The run has ended.
    RunEnded,
    /// There is no such run.
    RunNotFound,
    /// A row says no; nothing was written.
    Refused(Refused),
}

/// Why a row says no.
#[derive(Debug, Clone, PartialEq)]
pub enum Refused {
    /// The account does not cover the hold; this is what is left.
    OverBudget(RemainingBudget),
    /// No seat is free.
    NoSlot,
    /// The lane is full.
    LaneFull(LaneKey),
    /// The gate is closed; the answer that closed it, if one did.
    GateClosed(GateStatus, Option<Box<RecordedAnswer>>),
    /// There is no such gate.
    GateNotFound,
    /// The message was settled before.
    SteerSettled,
    /// Too many messages wait.
    SteersFull,
    /// Somebody else has told this timer.
    TimerConsumed,
    /// An outsider may not state this fact.
    NotAllowedForOutsider(&'static str),
    /// The request has taken effect by another attempt, or is no longer in progress.
    RequestAlreadyApplied,
}

/// A run as lists show it. Everything in it follows from the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// Which run.
    pub id: RunId,
    /// Who does it.
    pub agent: AgentName,
    /// The agent's version.
    pub definition: Hash,
    /// How it stands.
    pub status: Status,
    /// Why it rests.
    pub reason: Option<String>,
    /// A word for programs when it failed.
    pub code: Option<String>,
    /// Where it queues.
    pub inbox: InboxName,
    /// Its lane.
    pub lane: Option<LaneKey>,
    /// Its thread.
    pub thread: Option<ThreadKey>,
    /// Whom its thread is about.
    pub resource: Option<ResourceKey>,
    /// Its type.
    pub kind: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// The run that asked for it.
    pub parent: Option<RunId>,
    /// The run at the top.
    pub root: RunId,
    /// Who submitted it.
    pub submitter: Option<String>,
    /// The fence.
    pub epoch: Epoch,
    /// The worker that drives it now.
    pub worker: Option<WorkerId>,
    /// The last place of its journal.
    pub last_seq: Seq,
    /// Completed turns.
    pub turns: u32,
    /// Tokens.
    pub usage: Usage,
    /// Money; none: of some call it is not known.
    pub cost: Option<MicroUsd>,
    /// Active time.
    pub active: Millis,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it was first claimed.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// Which rows.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only these states; empty: all.
    pub statuses: Vec<Status>,
    /// Only this agent's.
    pub agent: Option<AgentName>,
    /// Only this lane's.
    pub lane: Option<LaneKey>,
    /// Only this tree, its root included.
    pub root: Option<RunId>,
    /// Only runs older than this one.
    pub after: Option<RunId>,
    /// So many at most.
    pub limit: usize,
}

/// Which gates.
#[derive(Debug, Clone, Default)]
pub struct GateFilter {
    /// This one.
    pub gate: Option<GateId>,
    /// Only this run's.
    pub run: Option<RunId>,
    /// Only those that stand so.
    pub status: Option<GateStatus>,
    /// Only gates older than this one.
    pub after: Option<GateId>,
    /// So many at most.
    pub limit: usize,
}

/// What to forget.
#[derive(Debug, Clone, Copy)]
pub struct PruneRequest {
    /// Ended runs older than this.
    pub runs_older_than: Millis,
    /// Blobs without a reference that nobody touched for so long.
    pub blobs_older_than: Millis,
    /// So many runs at most, so that nobody waits for long.
    pub limit: usize,
}

/// What was forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneOutcome {
    /// Runs.
    pub runs: usize,
    /// Blobs.
    pub blobs: usize,
    /// Idempotency keys.
    pub idempotency_keys: usize,
}

/// A fault of the store. What a run did wrong is never here.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full. What was acknowledged stands; nothing new starts.
    #[error("the disk that holds `{at}` is full")]
    DiskFull {
        /// The store.
        at: String,
    },
    /// The store can't be written to.
    #[error("`{at}` can't be written: {why}")]
    ReadOnly {
        /// The store.
        at: String,
        /// What the system says.
        why: String,
    },
    /// The file is damaged, or no database at all.
    #[error("`{at}` is damaged or no Longhaul store: {why}")]
    Corrupt {
        /// The store.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// A newer build has changed the store.
    #[error("`{at}` has schema {found}, this build knows {known}: use a newer longhaul")]
    NewerSchema {
        /// The store.
        at: String,
        /// The schema found.
        found: u32,
        /// The newest this build knows.
        known: u32,
    },
    /// Another process drives this store.
    #[error("`{at}` is driven by {holder}")]
    AlreadyDriven {
        /// The store.
        at: String,
        /// Who, as it wrote itself down.
        holder: String,
    },
    /// This process only looks on: it may not claim, sweep or reap.
    #[error("this process does not drive `{at}`: it can't {verb}")]
    NotDriver {
        /// The store.
        at: String,
        /// What it wanted.
        verb: &'static str,
    },
    /// Somebody else held the store for too long.
    #[error("`{at}` was busy for too long")]
    Busy {
        /// The store.
        at: String,
    },
    /// The store's address is not one this build can open.
    #[error("`{url}` is no store that this build can open: {why}")]
    InvalidUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A journal holds what this build does not know.
    #[error("event {seq} of {run} can't be read")]
    InvalidEvent {
        /// Whose journal.
        run: RunId,
        /// Which place.
        seq: Seq,
        /// Why.
        #[source]
        source: EventCodecError,
    },
    /// The store has been closed, or failed in a way after which nothing is known.
    #[error("the store `{at}` is closed: {why}")]
    Closed {
        /// The store.
        at: String,
        /// Why.
        why: String,
    },
    /// Any other fault of the database.
    #[error("the store `{at}` failed")]
    Database {
        /// The store.
        at: String,
        /// What it says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
