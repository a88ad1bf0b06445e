//! Facts about gates.
//!
//! Never: more than one end of a gate.

use serde::{Deserialize, Serialize};

use crate::id::GateId;
use crate::policy::gate::{Answer, GateSpec, OnTimeout};

/// Somebody is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRaised {
    /// What and whom.
    pub gate: GateSpec,
}

/// Somebody said something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateAnswer {
    /// At which gate.
    pub gate: GateId,
    /// What.
    pub answer: Answer,
}

/// Nobody answered in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateExpired {
    /// At which gate.
    pub gate: GateId,
    /// What that means.
    pub on_timeout: OnTimeout,
}

/// A gate was withdrawn, or its people reminded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateNotice {
    /// Which gate.
    pub gate: GateId,
    /// Why, in a sentence.
    pub reason: String,
}
