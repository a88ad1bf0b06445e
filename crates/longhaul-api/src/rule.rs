//! Remembered approvals in responses. A person adds one by approving a call for a whole run, agent
//! or project.

use longhaul_core::id::{GateId, RuleId, RunId};
use longhaul_core::policy::gate::{AnswerScope, RulePattern};
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An approval that is remembered: similar calls need no new approval.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Rule)]
pub struct RuleView {
    /// Id of the rule (the remembered approval).
    pub id: RuleId,
    /// Whether the rule applies to one run, to all runs of an agent, or to all runs of the project.
    pub scope: AnswerScope,
    /// Agent to whose runs the rule applies. `None` if the scope is not `agent`.
    pub agent: Option<String>,
    /// Pattern of the calls that the rule allows, copied from the agent's rule that required the
    /// approval.
    pub pattern: RulePattern,
    /// Name of the person who gave the approval.
    pub by: String,
    /// Time at which the approval was given.
    pub at: Timestamp,
    /// Run in which the approval was given. A rule with the scope `run` applies to this run only.
    pub run: RunId,
    /// Gate at which the approval was given.
    pub gate: GateId,
    /// Number of calls that needed no new approval because of the rule.
    pub used: u64,
    /// Time of the last call that needed no new approval because of the rule. `None` means that
    /// there was none.
    pub last_used_at: Option<Timestamp>,
    /// Who revoked the rule, and when. `None` means that nobody has revoked it.
    pub revoked: Option<RevocationView>,
}

/// Who revoked a rule (a remembered approval), and when.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Revocation)]
pub struct RevocationView {
    /// Name of the person who revoked the rule.
    pub by: String,
    /// Time at which the rule was revoked.
    pub at: Timestamp,
}
