//! Events about gates, i.e. questions and approvals that wait for a person or a program.
//!
//! Invariant: a gate is closed only once.

use serde::{Deserialize, Serialize};

use crate::id::GateId;
use crate::policy::gate::{Answer, GateSpec, GateTimeoutAction};
use crate::raw::{Hash, RawJson};

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
    /// Changes that the answer makes to the content of the gate. `None` unless its decision is
    /// `edit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<GateEdit>,
}

/// Changes that an answer makes to the content that a gate was raised with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateEdit {
    /// Digest (hash) of the content as the person edited it, which also covers the digest of the
    /// original content. `None` if the gate has no digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
    /// Values that differ from the original content.
    pub diff: Vec<EditedValue>,
}

/// A value that a person changed, added or removed.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditedValue {
    /// Position of the value in the content, as a JSON Pointer such as `/files/name`.
    pub path: String,
    /// Original value. `None` means that the value was added.
    #[serde(default, deserialize_with = "RawJson::deserialize_null_as_some")]
    pub before: Option<RawJson>,
    /// New value. `None` means that the value was removed.
    #[serde(default, deserialize_with = "RawJson::deserialize_null_as_some")]
    pub after: Option<RawJson>,
}

/// A gate's timeout passed without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateExpired {
    pub gate: GateId,
    /// Action that is taken because nobody answered in time.
    pub on_timeout: GateTimeoutAction,
    /// Content as an approver last edited it, which the action `approve` approves. `None` means
    /// that nobody edited the content, or that the action does not approve it.
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
