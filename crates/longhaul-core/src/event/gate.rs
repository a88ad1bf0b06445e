//! Events about gates, i.e. questions and approvals that wait for a person or a program.
//!
//! Invariant: a gate is closed only once.

use serde::{Deserialize, Serialize};

use crate::id::GateId;
use crate::policy::gate::{Answer, GateSpec, GateTimeoutAction};
use crate::raw::RawJson;

/// A gate was raised: a person or program is asked for an approval or an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRaised {
    /// Gate that was raised, with its question.
    pub gate: GateSpec,
}

/// A gate received an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateAnswer {
    /// Id of the gate that received the answer.
    pub gate: GateId,
    /// Answer that the gate received.
    pub answer: Answer,
}

/// A gate's timeout passed without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateExpired {
    /// Id of the gate that expired.
    pub gate: GateId,
    /// Action that is taken because nobody answered in time.
    pub on_timeout: GateTimeoutAction,
    /// Newest edit among the votes, which the action `approve` then approves. `None` means that
    /// nobody edited the content, or that the action does not approve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<RawJson>,
}

/// A gate was withdrawn, or its approvers were reminded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateNotice {
    /// Id of the gate that was withdrawn or whose approvers were reminded.
    pub gate: GateId,
    /// Reason for the withdrawal or the reminder, as a sentence.
    pub reason: String,
    /// Person or group that the reminder is for. `None` means the approvers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}
