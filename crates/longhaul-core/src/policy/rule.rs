//! Remembered approvals, which people give with the scope of an answer, so that similar calls need
//! no new approval.
//!
//! Invariant: a remembered approval covers exactly the pattern of the approval rule (in the agent
//! file) that raised the gate, never more.

use serde::{Deserialize, Serialize};

use crate::glob;
use crate::id::{AgentName, GateId, RuleId, RunId};
use crate::policy::gate::{AnswerScope, GateRule, GateRuleAction, RulePattern};
use crate::time::Timestamp;

/// Maximum number of active remembered approvals in a store that apply to more than one run.
pub const RULES_MAX: usize = 1_000;

impl GateRule {
    /// Returns whether a glob of the rule matches the text. If one of them is too long to be
    /// compared, the rule matches unless it allows the call.
    pub fn matches_glob(&self, glob: &str, text: &str) -> bool {
        let is_restriction = self.action != GateRuleAction::Allow;
        glob::matches(glob, text).unwrap_or(is_restriction)
    }

    /// Returns whether the rule's `match` matches this text of a call of its tool.
    pub fn matches_text(&self, text: &str) -> bool {
        self.match_glob.as_ref().is_none_or(|glob| self.matches_glob(glob, text))
    }
}

/// Runs to which a remembered approval applies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RememberedApprovalScope {
    /// The remembered approval applies to this run.
    Run(RunId),
    /// The remembered approval applies to all runs of the agent with this name.
    Agent(AgentName),
    /// The remembered approval applies to all runs of the project.
    Project,
}

impl RememberedApprovalScope {
    /// Returns the scope that a person chooses in the answer to a gate to have the approval
    /// remembered with this scope.
    pub const fn answer_scope(&self) -> AnswerScope {
        match self {
            Self::Run(_) => AnswerScope::Run,
            Self::Agent(_) => AnswerScope::Agent,
            Self::Project => AnswerScope::Project,
        }
    }

    /// Returns the run to which the remembered approval is limited. `None` means that it applies to
    /// many runs.
    pub const fn run(&self) -> Option<RunId> {
        match self {
            Self::Run(run) => Some(*run),
            Self::Agent(_) | Self::Project => None,
        }
    }

    /// Returns the agent to which the remembered approval is limited. `None` if it applies to one
    /// run or to the whole project.
    pub const fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Agent(agent) => Some(agent),
            Self::Run(_) | Self::Project => None,
        }
    }
}

/// Stored row of a remembered approval. Later calls that match its pattern need no new approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedApprovalRow {
    pub rule: RuleId,
    /// Runs to which the approval applies.
    pub scope: RememberedApprovalScope,
    /// Pattern of the calls that are approved.
    pub pattern: RulePattern,
    /// Principal that gave the approval.
    pub by: String,
    /// Other principals whose votes were needed for the approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_voters: Vec<String>,
    pub at: Timestamp,
    /// Run in which the approval was given. It may have been deleted since.
    pub run: RunId,
    /// Gate that the approval answered. It may have been deleted since.
    pub gate: GateId,
    /// Number of tool calls that needed no new approval because of this one.
    pub used: u64,
    /// Time at which the approval last covered a tool call. `None` means that it has covered none.
    pub last_used: Option<Timestamp>,
    /// Who revoked the approval, and when. `None` means that it is active.
    pub revoked: Option<RememberedApprovalRevocation>,
}

/// Who revoked a remembered approval, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedApprovalRevocation {
    /// Principal that revoked the approval.
    pub by: String,
    /// Time at which the approval was revoked.
    pub at: Timestamp,
}

/// A remembered approval that covers a tool call. It is journaled with the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedApproval {
    pub rule: RuleId,
    /// Whether the approval applies to the run, the agent or the project.
    pub scope: AnswerScope,
    /// Pattern of the calls that are approved.
    pub pattern: RulePattern,
    /// Principal that gave the approval.
    pub by: String,
    /// Other principals whose votes were needed for the approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_voters: Vec<String>,
}

impl RememberedApprovalRow {
    /// Returns whether the approval rests on a vote of this principal.
    pub fn has_voter(&self, principal: &str) -> bool {
        self.by == principal || self.other_voters.iter().any(|voter| voter == principal)
    }
}

impl From<RememberedApprovalRow> for RememberedApproval {
    fn from(row: RememberedApprovalRow) -> Self {
        let scope = row.scope.answer_scope();
        let RememberedApprovalRow { rule, pattern, by, other_voters, .. } = row;
        Self { rule, scope, pattern, by, other_voters }
    }
}

/// Filter for the list of remembered approvals.
#[derive(Debug, Clone, Default)]
pub struct RememberedApprovalFilter {
    /// Lists only the remembered approval with this id, active or not. `None` means all.
    pub rule: Option<RuleId>,
    /// Whether revoked approvals and approvals of ended runs are listed too.
    pub include_inactive: bool,
    /// Lists only approvals that are older than this one, because the list is newest first. `None`
    /// means from the newest.
    pub after: Option<RuleId>,
    /// Maximum number of remembered approvals in the list.
    pub limit: usize,
}
