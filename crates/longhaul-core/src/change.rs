//! Changes of rows that go with facts, in the same transaction.
//!
//! Never: a rule. The heart decides which changes go with a fact; a store
//! carries each one out, once, in plain statements.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::event::steer::Delivery;
use crate::id::{BatchId, CallId, GateId, RuleId, RunId, SandboxId, SteerId, ThreadKey, TimerId};
use crate::message::Message;
use crate::policy::budget::BudgetRaise;
use crate::policy::gate::{Answer, GateSpec, RulePattern};
use crate::raw::{BlobRef, Hash};
use crate::request::IdempotencyKey;
use crate::task::TaskSpec;
use crate::time::{Millis, Timestamp};
use crate::usage::{Hold, MicroUsd, Usage};

/// Facts and the changes of rows that go with them: written whole or not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What changes in the rows.
    pub changes: Vec<Change>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.changes.is_empty()
    }

    /// The highest format of its events.
    pub fn format(&self) -> u32 {
        self.events.iter().map(Event::format).max().unwrap_or(0)
    }
}

/// One change of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A run comes to be, with the first facts of its journal.
    OpenRun(Box<NewRun>),
    /// The next step of a chain comes to be inside its root's lane and budget.
    OpenStep(Box<NewRun>),
    /// The run's head moves: it rests, stands still, is free or has ended.
    SetHead(HeadUpdate),
    /// A gate opens.
    RaiseGate(Box<GateSpec>),
    /// An open gate gets an answer or closes. Refused when it is not open.
    UpdateGate(GateUpdate),
    /// A timer is set, or one that was due is spent.
    SetTimer(TimerUpdate),
    /// A message waits for the run. Refused when too many do.
    QueueSteer(SteerRow),
    /// A waiting message changes or is settled. Refused when it is settled already.
    UpdateSteer(SteerUpdate),
    /// A sandbox takes a seat. Refused when none is free.
    AcquireSlot(SandboxSlot),
    /// A sandbox gives its seat back.
    ReleaseSlot(SandboxId),
    /// The run queues for a seat of this provider.
    QueueForSlot(String),
    /// A call's worst case is set aside. Refused when the account does not cover it.
    Hold(Hold),
    /// What was set aside is used, lost or given back.
    Settle(Settlement),
    /// Tokens, money, turns and time are added to the run's sums.
    AddUsage(UsageRow),
    /// A message leaves the house.
    AddOutbox(OutboxRow),
    /// A thread remembers these messages.
    AppendThread(ThreadMessages),
    /// A content is kept under its hash.
    PutBlob(Blob),
    /// A sandbox's row is made or changed.
    SetSandbox(SandboxRow),
    /// A definition is kept under its hash.
    PutDefinition(Blob),
    /// An approval is remembered or forgotten.
    PutRule(RuleRow),
    /// The account's caps are raised.
    SetCap(BudgetRaise),
    /// The request under this key takes effect with this batch. Refused when it has
    /// taken effect before or is not in progress: of two attempts at a request, one
    /// that has outlived its lease and one that has replaced it, only one may do so.
    MarkRequestApplied(IdempotencyKey),
}

/// A run as it comes to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// What it is made of: the store takes its columns from here.
    pub task: TaskSpec,
    /// The first facts, `run.created` among them.
    pub events: Vec<Event>,
    /// The longest the lane may be with this run in it.
    pub lane_depth_max: u32,
}

/// How many runs may stand in one lane unless somebody says otherwise.
pub const LANE_DEPTH_MAX: u32 = 10_000;

/// Where a run's head goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadUpdate {
    /// It rests until a fact wakes it.
    Park {
        /// The word that lists show.
        reason: &'static str,
        /// Whether it is `blocked`, not merely waiting.
        blocked: bool,
        /// It lets go of its lane until it wakes.
        release_lane: bool,
    },
    /// A person has stopped it; only a resume makes it ready.
    Pause,
    /// Its driver lets go of it in good order; any worker may take it.
    Release,
    /// Nothing follows.
    End {
        /// `completed`, `failed` or `cancelled`.
        status: crate::status::Status,
        /// A word for programs when it failed.
        code: Option<String>,
        /// The lane's next run may begin.
        releases_lane: bool,
    },
}

/// A gate's answer or end.
#[derive(Debug, Clone, PartialEq)]
pub struct GateUpdate {
    /// Which gate.
    pub gate: GateId,
    /// What becomes of it.
    pub transition: GateTransition,
}

/// What becomes of an open gate.
#[derive(Debug, Clone, PartialEq)]
pub enum GateTransition {
    /// It stays open with one answer more.
    Voted(Answer),
    /// It has its answer.
    Answered(Answer),
    /// Its time is over.
    Expired,
    /// It is no longer asked.
    Withdrawn,
}

/// Setting and spending timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimerUpdate {
    /// Due after a span or at a point, for this or another run.
    Arm {
        /// Which timer.
        timer: TimerId,
        /// Whom it tells.
        run: RunId,
        /// When.
        due: Due,
        /// What it tells.
        kind: TimerKind,
    },
    /// It has been told. Refused when somebody else has told it.
    Consume(TimerId),
}

/// When a timer is due. The store makes the point of a span and compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// So long from now, by the store's clock.
    After(Millis),
    /// At this point, by the store's clock.
    At(Timestamp),
}

/// What a timer tells its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// A wait is over.
    Wake,
    /// The start time has come.
    Start,
    /// The run before it in its batch has completed.
    BatchNext(BatchId),
    /// The batch was stopped: this run is not needed any more.
    BatchStopped(BatchId),
    /// A gate's deadline.
    GateDeadline(GateId),
    /// A gate's people are to be reminded.
    GateRemind(GateId),
    /// A run that this one asked for has ended.
    ChildEnded(RunId),
    /// The run that asked for this one was cancelled.
    ParentCancelled(RunId),
}

/// A message that waits for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerRow {
    /// Which.
    pub steer: SteerId,
    /// What it says.
    pub text: String,
    /// When it is to be read.
    pub delivery: Delivery,
    /// Who wrote it.
    pub by: String,
    /// How it stands.
    pub status: SteerStatus,
}

/// So many messages may wait for one run.
pub const STEERS_MAX: usize = 64;

/// How a message stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SteerStatus {
    /// Not read yet.
    Queued,
    /// Read after this turn.
    Delivered {
        /// The turn before it.
        after_turn: u32,
    },
    /// Never read.
    Dropped {
        /// Why.
        reason: String,
    },
    /// Taken back.
    Withdrawn,
}

/// A change of a waiting message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteerUpdate {
    /// Which.
    pub steer: SteerId,
    /// New words, if they change.
    pub edit: Option<(String, Delivery)>,
    /// How it stands now.
    pub status: SteerStatus,
}

/// A place among the sandboxes that may run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSlot {
    /// Who sits.
    pub sandbox: SandboxId,
    /// At whose table.
    pub provider: String,
    /// How many places there are.
    pub capacity: u32,
}

/// What becomes of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// What was held.
    pub held: Hold,
    /// What was really used.
    pub spent: Hold,
    /// What counts as used although nobody knows.
    pub lost: Hold,
}

/// One call's usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The model that was used; empty for time alone.
    pub model: String,
    /// Tokens.
    pub usage: Usage,
    /// Money; none: not known.
    pub cost: Option<MicroUsd>,
    /// Turns completed by it: 1 or 0.
    pub turns: u32,
    /// Active time.
    pub active: Millis,
}

/// A message to the world outside, delivered after the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Where to.
    pub endpoint: String,
    /// What it says.
    pub body: String,
}

/// What a thread remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadMessages {
    /// Which thread.
    pub thread: ThreadKey,
    /// What was said.
    pub messages: Vec<Message>,
}

/// A content and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its hash and length.
    pub blob_ref: BlobRef,
    /// Its bytes.
    pub content: std::sync::Arc<[u8]>,
}

impl Blob {
    /// The blob of this content.
    pub fn new(content: impl Into<std::sync::Arc<[u8]>>) -> Self {
        let content = content.into();
        Self { blob_ref: BlobRef::for_content(&content), content }
    }

    /// Its hash.
    pub const fn hash(&self) -> Hash {
        self.blob_ref.hash
    }
}

/// A sandbox as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRow {
    /// Which.
    pub sandbox: SandboxId,
    /// Whose, such as `local`.
    pub provider: String,
    /// The provider's own name for it.
    pub handle: String,
    /// How it stands.
    pub state: SandboxState,
    /// The machine it is bound to.
    pub host: Option<String>,
    /// The run it belongs to.
    pub owner: RunId,
}

/// How a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// Being made.
    Creating,
    /// Being started.
    Starting,
    /// Running.
    Running,
    /// Being stopped.
    Stopping,
    /// Stopped, files kept.
    Stopped,
    /// Gone.
    Deleted,
    /// Not to be found.
    Lost,
}

/// An approval that is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRow {
    /// Which.
    pub rule: RuleId,
    /// What it lets pass.
    pub pattern: RulePattern,
    /// Who said so.
    pub by: String,
    /// It is in force.
    pub active: bool,
}

/// A result that came when the run had ended: kept beside the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateResult {
    /// Of which call.
    pub call: CallId,
    /// What came.
    pub text: String,
}
