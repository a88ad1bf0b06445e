//! Task specifications: the work of a run, its agent and its policy.
//!
//! A task has no state of its own. In a durable inbox it becomes a run with the same id.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::chain::PositionInChain;
use crate::change::SandboxState;
use crate::event::environment::SandboxEvent;
use crate::id::{AgentName, BatchId, InboxName, LaneKey, ResourceKey, RunId, Seq, ThreadKey};
use crate::message::Message;
use crate::policy::RunPolicy;
use crate::raw::{Hash, RawJson, is_default};
use crate::repo::RepoSource;
use crate::time::Timestamp;

/// Specification of a run, stored in its journal when the run is created.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Agent that executes the task.
    pub agent: AgentName,
    /// Hash of the agent definition that the run uses, even if the agent's file changes later.
    pub definition: Hash,
    /// Input of the task: a text or any JSON.
    pub input: RawJson,
    /// Context values by name, which the runtime injects into tool calls. The model can neither see
    /// nor set them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
    /// Messages of an earlier conversation, submitted with the task, that the run continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// Model that the task chooses instead of the agent's model. `None` means the agent's model.
    pub model: Option<String>,
    /// Inbox that the task is queued in.
    pub inbox: InboxName,
    /// Type of the task, by which lists and workers can filter. `None` if the task has no type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether the task reports an event to the agent, which then reads a text about the event's
    /// kind and input instead of the plain input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub event: bool,
    /// Priority of the run in the queue: higher values first. It does not change the order of the
    /// runs within a lane.
    #[serde(default)]
    pub priority: i32,
    /// Lane of the run. The runs of a lane are executed one at a time. Only a root run has a lane.
    /// `None` means no lane.
    pub lane: Option<LaneKey>,
    /// Thread of the run, i.e. the conversation whose memory it shares with earlier runs. `None`
    /// means no thread.
    pub thread: Option<ThreadKey>,
    /// Resource (person or thing) that the thread is about. `None` if there is none.
    pub resource: Option<ResourceKey>,
    /// Earliest time at which the run may start.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: EarliestStart,
    /// Limits and rules of the run.
    #[serde(default)]
    pub policy: RunPolicy,
    /// Parent run, which started this run. `None` for a root run.
    pub parent: Option<RunId>,
    /// Root of the tree of runs that this run belongs to. A root run has its own id here.
    pub root: RunId,
    /// Number of runs between this run and its root, including the root. 0 for a root run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    /// Position of the run in a chain. `None` if it belongs to no chain.
    pub chain: Option<Box<PositionInChain>>,
    /// Position of the run in the batch that the task was submitted with. `None` if it belongs to
    /// no batch.
    pub batch: Option<RunBatchPosition>,
    /// Principal that submitted the task, such as `key:ops`. `None` if it is not recorded.
    pub submitter: Option<String>,
    /// Principal for which spend caps per key count the run: who made or fired the schedule that
    /// started it. `None` means the submitter.
    pub charged_to: Option<String>,
    /// Actor on whose behalf the run acts, as stated by the caller. `None` if none was stated.
    pub actor: Option<RawJson>,
    /// Identifiers of related objects in other systems, in a form chosen by the caller. `None` if
    /// there are none.
    pub links: Option<RawJson>,
    /// Tags of the run, for searching.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Arbitrary data of the caller, returned unchanged with the run. `None` if there is none.
    pub metadata: Option<RawJson>,
    /// Task of an external inbox that the run executes. The inbox is notified when the run ends.
    /// `None` if the task comes from no external inbox.
    pub source: Option<TaskSource>,
    /// Sandbox of the previous step of the chain, in which the run continues. `None` means that the
    /// run gets a sandbox of its own when it needs one.
    pub sandbox: Option<Box<InheritedSandbox>>,
    /// Git repository whose files a new sandbox of the run contains. `None` means an empty sandbox.
    pub repo: Option<RepoSource>,
    /// Failed run that this run retries. `None` if this run is no retry.
    pub retry_of: Option<RetriedRun>,
    /// Run that this run, or the run that it retries, was forked from. `None` if there is none.
    pub forked_from: Option<Box<ForkOrigin>>,
    /// Principals other than the submitter that added work to the run before it was created:
    /// those of the run that it retries or of its parent, and who made or fired its schedule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_submitters: Vec<String>,
}

/// Sandbox that a run takes over from the previous step of its chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedSandbox {
    /// Facts about the sandbox, as in the event of its last change.
    #[serde(flatten)]
    pub event: SandboxEvent,
    pub state: SandboxState,
}

/// Task in an external inbox (a task queue outside of Longhaul), from which a run was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSource {
    /// Name of the external inbox.
    pub inbox: InboxName,
    /// Id of the task in the external inbox.
    pub id: String,
}

impl TaskSource {
    /// Returns the name of the outbox endpoint through which an external inbox is notified when its
    /// tasks end: `inbox:NAME`.
    pub fn outbox_endpoint_of_inbox(inbox: &InboxName) -> String {
        format!("inbox:{inbox}")
    }
}

/// A failed run that is retried by another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetriedRun {
    /// Run that failed.
    pub run: RunId,
    /// Number of attempts of the task so far, including those of earlier retries.
    pub attempts: u32,
    /// First run of the task, if the failed run is a retry itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<RunId>,
}

impl RetriedRun {
    /// Returns the first run of the task, which all retries of the task go back to.
    pub fn first_run_of_task(&self) -> RunId {
        self.first.unwrap_or(self.run)
    }
}

/// A run that another run, its fork, goes on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkOrigin {
    pub run: RunId,
    /// Sequence number of the last event that the fork has copied. 1 means that it has copied
    /// nothing and starts from the beginning.
    pub through: Seq,
    /// Root run of the budget account that both runs draw on.
    pub account: RunId,
    /// Whether the fork adds its messages to the thread when it completes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes_thread: bool,
    /// Why the run was forked, as given by the caller. Empty if nothing was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Maximum number of open runs below the root of a tree (a root run and all its descendants). While
/// it is reached, no child run can start.
pub const OPEN_DESCENDANTS_MAX: usize = 32;

impl TaskSpec {
    /// Returns whether the run is a child of another run. The run of a chain step is no child,
    /// although its parent is the run of the previous step.
    pub const fn is_child(&self) -> bool {
        self.parent.is_some() && self.chain.is_none()
    }

    /// Returns the root run whose budget account this root run draws on, because it goes on from an
    /// earlier run. `None` means an account of its own.
    pub fn earlier_account(&self) -> Option<RunId> {
        let forked = self.forked_from.as_ref().map(|origin| origin.account);
        forked.or_else(|| Some(self.retry_of?.first_run_of_task()))
    }

    /// Returns the thread that the run adds its messages to. `None` for a run without a thread, and
    /// for a fork that only reads it.
    pub fn thread_to_write(&self) -> Option<&ThreadKey> {
        let may_write = self.forked_from.as_ref().is_none_or(|origin| origin.writes_thread);
        self.thread.as_ref().filter(|_| may_write)
    }

    /// Creates a task with default settings.
    pub fn new(run: RunId, agent: AgentName, input: RawJson, inbox: InboxName) -> Self {
        Self {
            definition: Hash::digest(agent.as_str().as_bytes()),
            agent,
            input,
            inbox,
            root: run,
            ..Self::default()
        }
    }
}

/// Position of a run in a batch, i.e. among runs that were submitted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBatchPosition {
    pub id: BatchId,
    /// Order in which the runs of the batch are executed.
    pub mode: RunBatchMode,
    /// Run of a sequential batch that starts when this run has completed, and that is cancelled if
    /// this run does not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RunId>,
}

/// Order in which the runs of a batch are executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunBatchMode {
    /// All runs may execute at the same time.
    #[default]
    Parallel,
    /// Each run starts when the run before it has completed. If a run does not complete, the
    /// remaining runs are cancelled.
    Sequential,
}

impl RunBatchMode {
    /// Returns the mode as it is written in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Sequential => "sequential",
        }
    }
}

/// Condition for starting the run of a task: a time, or the end of the previous run of its batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarliestStart {
    /// The task may start as soon as a worker is available.
    #[default]
    Now,
    /// The task may not start before this time.
    At(Timestamp),
    /// The task may start after the previous run of its sequential batch has completed.
    AfterBatch,
}

/// `None` means now.
impl From<Option<Timestamp>> for EarliestStart {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Now, Self::At)
    }
}
