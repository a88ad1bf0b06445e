//! Rows of the in-memory store, table by table.

use std::sync::Arc;

use longhaul_core::change::{LateToolResult, OutboxRow, SandboxRow, SteerRow, TimerKind, UsageRow};
use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::id::{
    AgentName, Epoch, GateId, InboxName, LaneKey, ResourceKey, RuleId, RunId, SandboxId,
    ScheduleName, Seq, ThreadKey, TimerId, WorkerId,
};
use longhaul_core::message::Message;
use longhaul_core::note::MemoryNote;
use longhaul_core::policy::budget::BudgetAccount;
use longhaul_core::policy::effect_key::ClaimedEffectKey;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::policy::rule::RememberedApprovalRow;
use longhaul_core::policy::spend_cap::{CapCounterKey, CapCounterRow, CapWaitRow};
use longhaul_core::port::auth::{
    ApiKeyRow, GateLinkRow, IdempotencyKey, LoginTokenKind, LoginTokenRow, StoredHttpResponse,
};
use longhaul_core::port::queue::QueuePosition;
use longhaul_core::port::records::GlobalSeq;
use longhaul_core::port::store::WorkerLiveness;
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_core::schedule::ScheduleRow;
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::{BudgetAmount, MicroUsd, Usage};
use longhaul_core::wait::WaitKind;

use crate::mem_store::table::Table;

macro_rules! tables {
    ($($name:ident: $key:ty => $row:ty,)*) => {
        /// All tables of the store.
        #[derive(Debug, Default)]
        pub(crate) struct Tables {
            $(pub(crate) $name: Table<$key, $row>,)*
            /// Last number given to a row without a natural key. Never decreases.
            pub(crate) last_row_id: u64,
            /// Highest global sequence number of a deleted event. Never decreases.
            pub(crate) last_deleted_global_seq: GlobalSeq,
        }

        impl Tables {
            /// Commits the changes and returns whether there were any.
            pub(crate) fn commit(&mut self) -> bool {
                let mut changed = false;
                $(changed |= self.$name.commit();)*
                changed
            }

            /// Rolls back the changes since the last commit.
            pub(crate) fn rollback(&mut self) {
                $(self.$name.rollback();)*
            }
        }
    };
}

tables! {
    heads: RunId => Head,
    newest_of_chain: RunId => RunId,
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
    slot_waits: RunId => SlotWait,
    accounts: RunId => BudgetAccount,
    spend: CapCounterKey => CapCounterRow,
    spend_waits: RunId => SpendWait,
    budget_waits: u64 => (RunId, BudgetAmount),
    effect_keys: Hash => ClaimedEffectKey,
    effect_key_waits: (Hash, RunId) => (),
    usage: u64 => UsageEntry,
    outbox: u64 => OutboxEntry,
    threads: (ThreadKey, u64) => Message,
    notes: (ResourceKey, u64) => StoredNote,
    blobs: Hash => StoredBlob,
    blob_refs: (RunId, Hash) => (),
    definitions: Hash => Arc<[u8]>,
    sandboxes: SandboxId => SandboxRow,
    rules: RuleId => RememberedApprovalRow,
    idempotency_keys: (String, String) => IdempotentOpen,
    workers: WorkerId => Worker,
    late_results: (RunId, u64) => LateToolResult,
    checkpoints: RunId => RunCheckpoint,
    schedules: ScheduleName => ScheduleRow,
    blocked_providers: String => Timestamp,
    api_keys: u64 => ApiKeyRow,
    tokens: (LoginTokenKind, Hash) => LoginTokenRow,
    links: Hash => GateLinkRow,
    requests: IdempotencyKey => IdempotentRequest,
}

impl Tables {
    /// Returns the next number for a row without a natural key.
    pub(crate) fn next_row_id(&mut self) -> u64 {
        self.last_row_id += 1;
        self.last_row_id
    }
}

/// Key in the ready queue: an inbox, and a position in its queue.
pub(crate) type ReadyKey = (InboxName, QueuePosition);

/// A run that waits at a spend cap, and since when.
#[derive(Debug, Clone)]
pub(crate) struct SpendWait {
    pub(crate) row: CapWaitRow,
    pub(crate) since: Timestamp,
}

/// State of a run with its task.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) task: Arc<TaskSpec>,
    pub(crate) state: State,
    pub(crate) epoch: Epoch,
    pub(crate) last_seq: Seq,
    pub(crate) format: u32,
    /// Lane of the run. `None` for a step of a chain, which uses the lane of its root.
    pub(crate) lane: Option<LaneKey>,
    /// Position in the lane while the run is in it.
    pub(crate) lane_position: Option<u64>,
    /// How long the run waits for messages after the last one, before it starts.
    pub(crate) collect_window: Option<Millis>,
    pub(crate) totals: RunTotals,
    /// Progress that the agent reported last.
    pub(crate) progress: Option<ProgressReported>,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

/// State of a head.
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
    /// Returns whether the run is parked for this reason.
    pub(crate) fn is_parked_for(&self, kind: WaitKind) -> bool {
        matches!(self, Self::Parked { reason, .. } if *reason == kind.code())
    }

    pub(crate) const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// Returns the name of the state, as in dumps.
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

/// Usage totals of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunTotals {
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<MicroUsd>,
    pub(crate) active: Millis,
}

/// An encoded journal entry.
#[derive(Debug, Clone)]
pub(crate) struct JournalRow {
    pub(crate) at: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) kind: &'static str,
    pub(crate) version: u16,
    pub(crate) body: StoredBody,
    pub(crate) global_seq: GlobalSeq,
}

/// The body of an entry, stored inline or, if it is long, as a blob.
#[derive(Debug, Clone)]
pub(crate) enum StoredBody {
    Inline(Arc<str>),
    Blob(Hash),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    pub(crate) holder: Option<RunId>,
    pub(crate) depth: u32,
    pub(crate) next_position: u64,
    pub(crate) paused: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Timer {
    pub(crate) run: RunId,
    pub(crate) due: Timestamp,
    pub(crate) kind: TimerKind,
}

#[derive(Debug, Clone)]
pub(crate) struct SlotWait {
    pub(crate) provider: String,
    /// Whether a slot is kept for the run.
    pub(crate) woken: bool,
    pub(crate) priority: i32,
    pub(crate) since: Timestamp,
    pub(crate) agent: AgentName,
}

#[derive(Debug, Clone)]
pub(crate) struct UsageEntry {
    pub(crate) run: RunId,
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

/// A note with its writer's key.
#[derive(Debug, Clone)]
pub(crate) struct StoredNote {
    pub(crate) key: String,
    pub(crate) note: MemoryNote,
}

/// A completed request to open runs, with its idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct IdempotentOpen {
    pub(crate) body: Hash,
    pub(crate) runs: Vec<RunId>,
    /// Time at which the key expires. `None` means that it is deleted together with its run.
    pub(crate) until: Option<Timestamp>,
}

/// An idempotent HTTP request.
#[derive(Debug, Clone)]
pub(crate) struct IdempotentRequest {
    pub(crate) body: Hash,
    pub(crate) until: Timestamp,
    pub(crate) lease_until: Timestamp,
    /// Stored response. `None` means that the request is in progress.
    pub(crate) response: Option<StoredHttpResponse>,
    pub(crate) effect: Option<IdempotentRequestEffect>,
}

#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) host: String,
    pub(crate) build: String,
    pub(crate) inboxes: Vec<InboxName>,
    pub(crate) types: Vec<String>,
    pub(crate) liveness: WorkerLiveness,
    pub(crate) heartbeat_at: Timestamp,
    pub(crate) live_since: Timestamp,
    pub(crate) ttl: Millis,
}

impl Worker {
    /// Returns whether the heartbeat is stale: too old, or in the future.
    pub(crate) fn is_stale(&self, now: Timestamp) -> bool {
        !self.heartbeat_at.is_within(self.ttl, now)
    }
}
