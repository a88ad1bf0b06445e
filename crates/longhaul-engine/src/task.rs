//! A task as the caller submits it. The `Longhaul` handle adds ids and the settings of the agent
//! file.

use std::collections::BTreeMap;

use longhaul_core::chain::ChainSpec;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::raw::RawJson;
use longhaul_core::task::{EarliestStart, TaskSource};
use serde::Serialize;

use crate::agent::BudgetPatch;

/// A unit of work for an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    /// Name of the agent that works on the task.
    pub agent: String,
    /// Chain whose steps work on the task, instead of the agent. `None` means the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<TaskChain>,
    /// Input of the task: a text or any JSON.
    pub input: RawJson,
    /// Context values that the runtime injects into tool calls. The model can neither see nor set
    /// them.
    pub context: BTreeMap<String, RawJson>,
    /// Earlier conversation that the run starts with.
    pub history: Vec<Message>,
    /// Model to use instead of the agent's models. `None` means the agent's models.
    pub model: Option<String>,
    /// Inbox in which the run is queued. `None` means the default inbox.
    pub inbox: Option<InboxName>,
    /// Type of the task, by which lists of runs are filtered and workers select the runs that they
    /// claim.
    pub kind: Option<String>,
    /// Whether the task reports an event of the type `kind`. The agent then reads a text about the
    /// event instead of the plain input.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub event: bool,
    /// Priority of the run in the queue. Runs with a higher value are driven first.
    pub priority: i32,
    /// Lane of the run; only one run of a lane is driven at a time. `None` means the lane of the
    /// agent file.
    pub lane: Option<LaneKey>,
    /// Conversation (thread) that the run belongs to.
    pub thread: Option<ThreadKey>,
    /// Person or thing that the conversation is about.
    pub resource: Option<ResourceKey>,
    /// Earliest time at which the run may start.
    pub start: EarliestStart,
    /// Budget caps of the run, which override those of the agent.
    pub budget: BudgetPatch,
    /// Person or program that submits the task, such as `cli:anna`.
    pub submitter: Option<String>,
    /// Further submitters of the task, such as the person who created its schedule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_submitters: Vec<String>,
    /// Principal for which spend caps per key count the run. `None` means the submitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_to: Option<String>,
    /// Person or system on whose behalf the run acts, in a form chosen by the caller.
    pub actor: Option<RawJson>,
    /// Ids of related objects in other systems.
    pub links: Option<RawJson>,
    /// Labels by which the run can be found.
    pub tags: Vec<String>,
    /// Arbitrary data that is returned with the run.
    pub metadata: Option<RawJson>,
    /// Idempotency key of the submit: submits with the same key return the same run.
    pub idempotency_key: Option<String>,
    /// Task in an external inbox from which this task was created, if any. The run is then queued
    /// in an inbox of the same name, each external task is submitted once, and the end of the run
    /// is put into the outbox for the external inbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<TaskSource>,
}

/// Chain whose steps execute a task, one run per step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskChain {
    /// Name or steps of the chain.
    pub chain: ChainChoice,
    /// Name of the only step to run. `None` means all steps.
    pub step: Option<String>,
    /// Whether the results of all steps are approved automatically, not only those of steps with
    /// `auto_approve`. A result that needs several approvers, or one who is not the submitter,
    /// still waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub auto_approve: bool,
}

impl TaskChain {
    /// Creates the reference to a whole chain: all its steps run, and only the results of steps
    /// with `auto_approve` are approved automatically.
    pub fn new(chain: impl Into<ChainChoice>) -> Self {
        Self { chain: chain.into(), step: None, auto_approve: false }
    }
}

/// Chain given by its name in the project or by its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum ChainChoice {
    /// The project's chain with this name.
    Named(String),
    /// A chain without a name, with these steps.
    Inline(ChainSpec),
}

impl From<&str> for ChainChoice {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<ChainSpec> for ChainChoice {
    fn from(spec: ChainSpec) -> Self {
        Self::Inline(spec)
    }
}

impl Task {
    /// Creates a task for all steps of this chain, with defaults for everything else.
    pub fn for_chain(chain: impl Into<ChainChoice>, input: impl Serialize) -> Self {
        Self { chain: Some(TaskChain::new(chain)), ..Self::new("", input) }
    }

    /// Creates a task with this agent and input, and defaults for everything else.
    pub fn new(agent: impl Into<String>, input: impl Serialize) -> Self {
        Self {
            agent: agent.into(),
            chain: None,
            input: RawJson::from_serialize(&input),
            context: BTreeMap::new(),
            history: Vec::new(),
            model: None,
            inbox: None,
            kind: None,
            event: false,
            priority: 0,
            lane: None,
            thread: None,
            resource: None,
            start: EarliestStart::Now,
            budget: BudgetPatch::default(),
            submitter: None,
            other_submitters: Vec::new(),
            charged_to: None,
            actor: None,
            links: None,
            tags: Vec::new(),
            metadata: None,
            idempotency_key: None,
            source: None,
        }
    }
}
