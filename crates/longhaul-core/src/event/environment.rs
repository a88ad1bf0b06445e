//! Events about timers, child runs, verdicts about the result, budgets, remembered approvals,
//! sandboxes, summaries of the conversation, chain steps and progress.

use serde::{Deserialize, Serialize};

use crate::id::{AgentName, CallId, RuleId, RunId, SandboxId, TimerId};
use crate::message::Message;
use crate::policy::budget::{BudgetCap, BudgetRaise};
use crate::policy::effect_facts::FileEffect;
use crate::policy::gate::{AnswerScope, RulePattern};
use crate::port::sandbox::Isolation;
use crate::raw::{BlobRef, is_default};
use crate::status::RunOutcome;
use crate::text_macros::string_enum;
use crate::time::Millis;
use crate::usage::{BudgetAmount, MicroUsd, Usage};

/// A timer of the run fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerFired {
    pub timer: TimerId,
}

/// A child run was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStarted {
    pub child: RunId,
    /// Agent that executes the child run.
    pub agent: AgentName,
    /// Tool call that started the child run. `None` means that the child run grades the result of
    /// the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Whether the run continues while the child runs, instead of waiting for its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

/// A child run of this run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnded {
    pub child: RunId,
    /// Outcome of the child run. A long text is truncated.
    pub outcome: RunOutcome,
    /// Full text of the child's result, if `outcome` has only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// Principals that added work to the child run, for example with a message, but not to this
    /// run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submitters: Vec<String>,
}

/// The result of the run was graded against the rubric of its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeGraded {
    /// Number of the grading round, from 1. A person's message to the run restarts the count.
    pub round: u32,
    /// Verdict about the result.
    pub verdict: GradingVerdict,
    /// What is missing in the result, or why there is no verdict.
    pub note: String,
    /// Run that graded the result. `None` means that no such run could be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
}

string_enum! {
    /// Verdict of a grading run about the result of a run.
    pub enum GradingVerdict {
        /// The result meets the rubric.
        Satisfied = "satisfied",
        /// The result does not meet the rubric.
        NotSatisfied = "not_satisfied",
        /// The grading run gave no verdict, so the result counts as not checked.
        GraderFailed = "grader_failed",
    }
}

/// The budget hold (reserved amount) of a model request that never completed was released, and the
/// assumed usage of the request was charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSettled {
    /// Number of the turn that sent the request.
    pub turn: u32,
    /// Money and tokens that were held (reserved) for the request.
    pub held: BudgetAmount,
    /// Money and tokens that were charged to the budget for the request.
    pub charged: BudgetAmount,
}

/// Most of a budget cap is used, so the agent is told to finish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWarned {
    /// Budget cap that is almost used up.
    pub cap: BudgetCap,
    /// Message that tells the agent to finish.
    pub message: String,
}

/// A budget cap was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReached {
    pub cap: BudgetCap,
    /// Current cap of the whole tree of runs, in millionths of a US dollar or tokens, if the tree
    /// has reached it. `None` means that a cap of the run alone was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_cap: Option<u64>,
    /// Amount by which the cap is too low for the next model call, in millionths of a US dollar or
    /// tokens. 0 if it is unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub missing: u64,
}

impl BudgetReached {
    /// Creates the event for a reached cap that applies to the run alone.
    pub const fn of_run(cap: BudgetCap) -> Self {
        Self { cap, tree_cap: None, missing: 0 }
    }
}

/// Budget caps were raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRaised {
    /// New values of the raised caps.
    pub raise: BudgetRaise,
    /// Principal that raised the caps.
    pub by: String,
}

/// An approval was remembered, so similar calls need no new approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleAdded {
    /// Id of the remembered approval.
    pub rule: RuleId,
    /// Pattern of the calls that are approved.
    pub pattern: RulePattern,
    /// Principal that gave the approval.
    pub by: String,
    /// Other principals whose votes were needed for the approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_voters: Vec<String>,
    /// Whether the approval applies to this run, to its agent or to the project.
    #[serde(default = "run_scope", skip_serializing_if = "is_run_scope")]
    pub scope: AnswerScope,
}

const fn run_scope() -> AnswerScope {
    AnswerScope::Run
}

fn is_run_scope(scope: &AnswerScope) -> bool {
    *scope == run_scope()
}

/// A tool call needed no new approval, because a remembered approval covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleUsed {
    /// Id of the remembered approval.
    pub rule: RuleId,
    /// Tool call that the remembered approval covers.
    pub call: CallId,
    /// Principal that gave the approval.
    pub by: String,
    /// Whether the approval applies to this run, to its agent or to the project.
    pub scope: AnswerScope,
}

/// A remembered approval was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRevoked {
    /// Id of the revoked approval.
    pub rule: RuleId,
    /// Principal that revoked the approval.
    pub by: String,
}

/// The state of a sandbox changed.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxEvent {
    /// Id of the sandbox whose state changed.
    pub sandbox: SandboxId,
    /// Name of the sandbox provider, such as `local`.
    pub provider: String,
    /// Identifier that the provider uses for the sandbox. Empty until the sandbox was created.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub handle: String,
    /// Machine that the sandbox is bound to. `None` means any machine.
    pub host: Option<String>,
    /// How well the sandbox is isolated. `None` until the sandbox was created.
    pub isolation: Option<Isolation>,
    /// Time without use after which the runtime stops the sandbox. `None` means never.
    pub idle_stop: Option<Millis>,
    /// Time for which the files of the sandbox are kept after the end of its run. `None` means for
    /// ever.
    pub keep: Option<Millis>,
    /// Number of claims on earlier owners of the sandbox, i.e. earlier steps of a chain. The epoch
    /// of a command in the sandbox is the sum of this number and the epoch of the claim.
    #[serde(skip_serializing_if = "is_default")]
    pub earlier_epochs: u64,
    /// Why the state changed, as a text for people. `None` means that a tool call needed it.
    pub reason: Option<String>,
}

/// A person ran a command in a sandbox of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxCommandRun {
    pub sandbox: SandboxId,
    /// Program and arguments, with secrets redacted.
    pub command: Vec<String>,
    /// Principal that ran the command.
    pub by: String,
}

/// The files of the sandbox were compared with the last snapshot of them, after a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSaved {
    /// Number of the turn after which the files were saved.
    pub turn: u32,
    #[serde(flatten)]
    pub files: SavedFiles,
}

/// What was saved of the files of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum SavedFiles {
    /// The files are the same as in the last snapshot.
    Unchanged,
    Snapshot(Box<WorkspaceSnapshot>),
    /// Nothing was saved, for this reason.
    Skipped {
        reason: String,
    },
}

/// Files of a sandbox, as a git commit that builds on earlier snapshots of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSnapshot {
    /// Commit whose tree has the files.
    pub commit: String,
    /// Git pack with the objects that neither an earlier snapshot of the run nor the clone of its
    /// repository has.
    pub pack: BlobRef,
    /// Files that differ from the last snapshot. Bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileEffect>,
    /// Number of further files that differ.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more_files: usize,
    /// Start of the difference from the last snapshot, as a unified diff. `None` means no
    /// difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<BlobRef>,
}

/// The older part of the conversation was replaced by a summary. The journal still contains the
/// replaced messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCompacted {
    /// Number of messages that the summary replaces, from the start of the conversation.
    pub replaced: usize,
    /// Messages of the summary, which take the place of the replaced messages.
    pub summary: Vec<Message>,
    /// Tokens used for writing the summary.
    pub usage: Usage,
    /// Cost of writing the summary. `None` means that the cost is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// Model that wrote the summary.
    pub model: String,
    /// Duration of the model request that wrote the summary.
    pub active: Millis,
}

/// The next step of a chain started. Recorded in the journal of the previous step's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStepStarted {
    /// Index of the step in the chain, from 0.
    pub step: usize,
    /// Agent that executes the step.
    pub agent: AgentName,
    /// Run that executes the step.
    pub run: RunId,
}

/// The agent reported its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressReported {
    /// Progress of the run in percent, from 0 to 100.
    pub percent: u8,
    /// Description of the progress, written by the agent.
    pub message: String,
}
