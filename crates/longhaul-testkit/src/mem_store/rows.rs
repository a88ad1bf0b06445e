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
use longhaul_core::port::keyring::{KeyRow, LinkRow, PassKind, PassRow, Reply, ReplyKey};
use longhaul_core::port::shelves::{Account, Checkpoint, Place};
use longhaul_core::port::store::Standing;
use longhaul_core::raw::Hash;
use longhaul_core::request::Effect;
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::{Micros, Usage};

use crate::mem_store::table::Table;

macro_rules! tables {
    ($($name:ident: $key:ty => $row:ty,)*) => {
        /// Everything that the store holds.
        #[derive(Debug, Default)]
        pub(crate) struct Tables {
            $(pub(crate) $name: Table<$key, $row>,)*
            /// Counts rows that have no key of their own. Never falls.
            pub(crate) counted: u64,
        }

        impl Tables {
            /// What was done stands. Says whether anything was.
            pub(crate) fn keep(&mut self) -> bool {
                let mut touched = false;
                $(touched |= self.$name.keep();)*
                touched
            }

            /// What was done since the last `keep` never was.
            pub(crate) fn undo(&mut self) {
                $(self.$name.undo();)*
            }
        }
    };
}

tables! {
    heads: RunId => Head,
    ready: ReadyKey => (),
    journal: (RunId, Seq) => Line,
    places: Place => (RunId, Seq),
    lanes: LaneKey => Lane,
    members: (LaneKey, u64) => RunId,
    gates: GateId => GateRow,
    timers: TimerId => Timer,
    due: (Timestamp, TimerId) => (),
    steers: (RunId, u64) => SteerRow,
    seats: SandboxId => String,
    seat_waits: (String, RunId) => SeatWait,
    accounts: RunId => Account,
    usage: u64 => Used,
    outbox: u64 => Letter,
    threads: (ThreadKey, u64) => Message,
    notes: (ResourceKey, u64) => Noticed,
    blobs: Hash => Content,
    blob_refs: (RunId, Hash) => (),
    definitions: Hash => Arc<[u8]>,
    sandboxes: SandboxId => SandboxRow,
    rules: (RunId, RuleId) => RuleRow,
    keys: (String, String) => Remembered,
    workers: WorkerId => Worker,
    late: (RunId, u64) => LateResult,
    checkpoints: RunId => Checkpoint,
    buckets: String => Timestamp,
    doors: u64 => KeyRow,
    passes: (PassKind, Hash) => PassRow,
    links: Hash => LinkRow,
    replies: ReplyKey => Request,
}

impl Tables {
    /// The next number for a row that has no key of its own.
    pub(crate) fn count(&mut self) -> u64 {
        self.counted += 1;
        self.counted
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
    pub(crate) last: Seq,
    pub(crate) format: u32,
    /// The lane it takes: none for a step, which lives in its root's.
    pub(crate) lane: Option<LaneKey>,
    /// Its place in the lane while it is in it.
    pub(crate) place: Option<u64>,
    pub(crate) sums: Sums,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

/// Where a head stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Leased(WorkerId),
    Parked {
        reason: &'static str,
        blocked: bool,
    },
    LaneWait,
    Paused,
    Ended {
        status: Status,
        code: Option<String>,
    },
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
pub(crate) struct Sums {
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<Micros>,
    pub(crate) active: Millis,
}

/// A fact as it is stored: encoded.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) at: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) kind: &'static str,
    pub(crate) version: u16,
    pub(crate) body: Text,
    /// Where it stands in the order of writing.
    pub(crate) place: Place,
}

/// A body that stands in its line, or elsewhere because it is long.
#[derive(Debug, Clone)]
pub(crate) enum Text {
    Here(Arc<str>),
    Spilled(Hash),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    pub(crate) head: Option<RunId>,
    pub(crate) depth: u32,
    pub(crate) next_place: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Timer {
    pub(crate) run: RunId,
    pub(crate) due: Timestamp,
    pub(crate) what: TimerKind,
}

#[derive(Debug, Clone)]
pub(crate) struct SeatWait {
    pub(crate) priority: i32,
    pub(crate) since: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) struct Used {
    pub(crate) run: RunId,
    pub(crate) root: RunId,
    pub(crate) at: Timestamp,
    pub(crate) row: UsageRow,
}

#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) run: RunId,
    pub(crate) row: OutboxRow,
    pub(crate) attempts: u32,
    pub(crate) next_at: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) touched_at: Timestamp,
}

/// A note under its writer's key.
#[derive(Debug, Clone)]
pub(crate) struct Noticed {
    pub(crate) key: String,
    pub(crate) note: Note,
}

/// A request that was carried out under a key.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub(crate) body: Hash,
    pub(crate) runs: Vec<RunId>,
    pub(crate) until: Timestamp,
}

/// A request that must count once.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) body: Hash,
    pub(crate) until: Timestamp,
    pub(crate) lease_until: Timestamp,
    /// None: it still runs.
    pub(crate) reply: Option<Reply>,
    pub(crate) effect: Option<Effect>,
}

#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) host: String,
    pub(crate) build: String,
    pub(crate) standing: Standing,
    pub(crate) beat_at: Timestamp,
    pub(crate) in_touch_since: Timestamp,
    pub(crate) ttl: Millis,
}

impl Worker {
    /// Whether its heartbeat is stale: too old, or from the future.
    pub(crate) fn is_silent(&self, now: Timestamp) -> bool {
        !self.beat_at.is_within(self.ttl, now)
    }
}
