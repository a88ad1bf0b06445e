//! Facts about what surrounds a run: time, children, money, rules, sandboxes.
//!
//! Never: facts about turns and calls.

use serde::{Deserialize, Serialize};

use crate::id::{AgentName, CallId, RuleId, RunId, SandboxId, TimerId};
use crate::message::Message;
use crate::policy::budget::{BudgetRaise, Cap};
use crate::policy::gate::RulePattern;
use crate::status::Outcome;
use crate::time::Millis;
use crate::usage::{Hold, MicroUsd, Usage};

/// A time has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerFired {
    /// Which timer.
    pub timer: TimerId,
}

/// A run was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStarted {
    /// Which run.
    pub child: RunId,
    /// Who does it.
    pub agent: AgentName,
    /// The call that asked.
    pub call: CallId,
}

/// A run that was asked for has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnded {
    /// Which run.
    pub child: RunId,
    /// How.
    pub outcome: Outcome,
}

/// What was held for a call that never ended is settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSettled {
    /// Of which turn.
    pub turn: u32,
    /// What was held.
    pub held: Hold,
    /// What counts as used up.
    pub charged: Hold,
}

/// Most of a cap is used: the agent is told to wrap up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWarned {
    /// Which cap.
    pub cap: Cap,
    /// What the agent reads.
    pub message: String,
}

/// A cap is met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReached {
    /// Which cap.
    pub cap: Cap,
}

/// Caps were raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRaised {
    /// To what.
    pub raise: BudgetRaise,
    /// By whom.
    pub by: String,
}

/// An approval is remembered for this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleAdded {
    /// Which rule.
    pub rule: RuleId,
    /// What it lets pass.
    pub pattern: RulePattern,
    /// Who said so.
    pub by: String,
}

/// It is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRevoked {
    /// Which rule.
    pub rule: RuleId,
    /// Who said so.
    pub by: String,
}

/// A sandbox changed its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxEvent {
    /// Which sandbox.
    pub sandbox: SandboxId,
    /// Whose it is, such as `local`.
    pub provider: String,
    /// The provider's own name for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handle: String,
    /// The machine it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The older part of the conversation was summed up; the journal keeps it whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCompacted {
    /// So many messages from the start are replaced.
    pub replaced: usize,
    /// By these.
    pub summary: Vec<Message>,
    /// What summing up used.
    pub usage: Usage,
    /// What it cost; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// The model that did it.
    pub model: String,
    /// How long it took.
    pub active: Millis,
}

/// A step of the chain began or is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStepEvent {
    /// Which step, from 0.
    pub step: usize,
    /// The run that is this step.
    pub run: RunId,
}

/// The agent says how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressReported {
    /// 0 to 100.
    pub percent: u8,
    /// In words.
    pub message: String,
}
