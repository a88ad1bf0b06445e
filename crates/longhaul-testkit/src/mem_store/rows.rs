//! The rows of the store in memory, table by table.
//!
//! Never: a rule about them.

use std::sync::Arc;

use longhaul_core::change::{
    LateResult, OutboxRow, RuleRow, SandboxRow, SteerRow, TimerKind, UsageRow,
};
use longhaul_core::id::{
    Epoch, GateId, InboxName, LaneKey, ResourceKey, RuleId, RunId, SandboxId, Seq, ThreadKey,
    TimerId, WorkerId,
};
use longhaul_core::message::Message;
use longhaul_core::note::Note;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::auth::{
    IdempotencyKey, KeyRow, LinkRow, StoredResponse, TokenKind, TokenRow,
};
use longhaul_core::port::records::{BudgetAccount, Checkpoint, GlobalSeq};
use longhaul_core::port::store::WorkerLiveness;
use longhaul_core::raw::Hash;
use longhaul_core::request::RequestEffect;
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::{MicroUsd, Usage};

use crate::mem_store::table::Table;

macro_rules! tables {
    ($($name:ident: $key:ty => $row:ty,)*) => {
        /// Everything that the store holds.
        #[derive(Debug, Default)]
        pub(crate) struct Tables {
            $(pub(crate) $name: Table<$key, $row>,)*
            /// Counts rows that have no key of their own. Never falls.
            pub(crate) last_row_id: u64,
        }

        impl Tables {
            /// What was done stands. Says whether anything was.
            pub(crate) fn commit(&mut self) -> bool {
                let mut touched = false;
                $(touched |= self.$name.commit();)*
                touched
            }

            /// What was done since the last `commit` never was.
            pub(crate) fn rollback(&mut self) {
                $(self.$name.rollback();)*
            }
        }
    };
}

tables! {
    heads: RunId => Head,
    ready: ReadyKey => (),
    journal: (RunId, Seq) => JournalRow,
    global_log: GlobalSeq => (RunId, Seq),
    lanes: LaneKey => Lane,
    lane_members: (LaneKey, u64) => RunId,
    gates: GateId => GateRow,
    timers: TimerId => Timer,
    due: (Timestamp, TimerId) => (),
    steers: (RunId, u64) => SteerRow,
    slots: SandboxId => String,
    slot_waits: (String, RunId) => SlotWait,
    accounts: RunId => BudgetAccount,
    usage: u64 => UsageEntry,
    outbox: u64 => OutboxEntry,
    threads: (ThreadKey, u64) => Message,
    notes: (ResourceKey, u64) => StoredNote,
    blobs: Hash => StoredBlob,
    blob_refs: (RunId, Hash) => (),
    definitions: Hash => Arc<[u8]>,
    sandboxes: SandboxId => SandboxRow,
    rules: (RunId, RuleId) => RuleRow,
    idempotency_keys: (String, String) => IdempotentOpen,
    workers: WorkerId => Worker,
    late_results: (RunId, u64) => LateResult,
    checkpoints: RunId => Checkpoint,
    blocked_providers: String => Timestamp,
    api_keys: u64 => KeyRow,
    tokens: (TokenKind, Hash) => TokenRow,
    links: Hash => LinkRow,
    requests: IdempotencyKey => IdempotentRequest,
}

impl Tables {
    /// The next number for a row that has no key of its own.
    pub(crate) fn next_row_id(&mut self) -> u64 {
        self.last_row_id += 1;
        self.last_row_id
    }
}

/// A place in a queue: inbox, rank (the highest priority has the lowest), pass, run.
pub(crate) type ReadyKey = (InboxName, i64, u64, RunId);

/// A run's hot row and its cold one together.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) task: Arc<TaskSpec>,
    pub(crate) state: State,
    pub(crate) epoch: Epoch,
    pub(crate) last_seq: Seq,
    pub(crate) format: u32,
    /// The lane it takes: none for a step, which lives in its root's.
    pub(crate) lane: Option<LaneKey>,
    /// Its place in the lane while it is in it.
    pub(crate) lane_position: Option<u64>,
    pub(crate) totals: RunTotals,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

/// Where a head stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Leased(WorkerId),
    Parked { reason: &'static str, blocked: bool },
    LaneWait,
    Paused,
    Ended { status: Status, code: Option<String> },
}

impl State {
    pub(crate) const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// The state's name, as dumps show it.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Leased(_) => "leased",
            Self::Parked { .. } => "parked",
            Self::LaneWait => "lane_wait",
            Self::Paused => "paused",
            Self::Ended { .. } => "ended",
        }
    }
}

/// What a run has used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunTotals {
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<MicroUsd>,
    pub(crate) active: Millis,
}

/// A fact as it is stored: encoded.
#[derive(Debug, Clone)]
pub(crate) struct JournalRow {
    pub(crate) at: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) kind: &'static str,
    pub(crate) version: u16,
    pub(crate) body: StoredBody,
    /// Where it stands in the order of writing.
    pub(crate) global_seq: GlobalSeq,
}

/// A body that stands in its line, or elsewhere because it is long.
#[derive(Debug, Clone)]
pub(crate) enum StoredBody {
    Inline(Arc<str>),
    Blob(Hash),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    pub(crate) head: Option<RunId>,
    pub(crate) depth: u32,
    pub(crate) next_position: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Timer {
    pub(crate) run: RunId,
    pub(crate) due: Timestamp,
    pub(crate) kind: TimerKind,
}

#[derive(Debug, Clone)]
pub(crate) struct SlotWait {
    pub(crate) priority: i32,
    pub(crate) since: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) struct UsageEntry {
    pub(crate) run: RunId,
    pub(crate) root: RunId,
    pub(crate) at: Timestamp,
    pub(crate) row: UsageRow,
}

#[derive(Debug, Clone)]
pub(crate) struct OutboxEntry {
    pub(crate) run: RunId,
    pub(crate) row: OutboxRow,
    pub(crate) attempts: u32,
    pub(crate) next_at: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) struct StoredBlob {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) touched_at: Timestamp,
}

/// A note under its writer's key.
#[derive(Debug, Clone)]
pub(crate) struct StoredNote {
    pub(crate) key: String,
    pub(crate) note: Note,
}

/// A request that was carried out under a key.
#[derive(Debug, Clone)]
pub(crate) struct IdempotentOpen {
    pub(crate) body: Hash,
    pub(crate) runs: Vec<RunId>,
    pub(crate) until: Timestamp,
}

/// A request that must count once.
#[derive(Debug, Clone)]
pub(crate) struct IdempotentRequest {
    pub(crate) body: Hash,
    pub(crate) until: Timestamp,
    pub(crate) lease_until: Timestamp,
    /// None: it still runs.
    pub(crate) response: Option<StoredResponse>,
    pub(crate) effect: Option<RequestEffect>,
}

#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) host: String,
    pub(crate) build: String,
    pub(crate) liveness: WorkerLiveness,
    pub(crate) heartbeat_at: Timestamp,
    pub(crate) live_since: Timestamp,
    pub(crate) ttl: Millis,
}

impl Worker {
    /// Whether its heartbeat is stale: too old, or from the future.
    pub(crate) fn is_stale(&self, now: Timestamp) -> bool {
        !self.heartbeat_at.is_within(self.ttl, now)
    }
}
