//! Facts about a call: started, ended, or in doubt.
//!
//! Never: two ends. A call has one result, and it is final.

use serde::{Deserialize, Serialize};

use crate::id::{CallId, Epoch};
use crate::message::Part;
use crate::policy::effect::InDoubtPolicy;
use crate::raw::BlobRef;
use crate::time::{Millis, Timestamp};

/// A call is about to begin. Durable before it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// Which call.
    pub call: CallId,
    /// Which start of it, from 1.
    pub attempt: u32,
    /// It does nothing but wait, and ends then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A call says how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolProgress {
    /// Which call.
    pub call: CallId,
    /// How far.
    pub message: String,
    /// How far in percent, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

/// What a tool gave back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// What the model is shown.
    pub content: Vec<Part>,
    /// The whole of it, where that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
}

impl ToolOutput {
    /// An output of one text.
    pub fn text(text: impl Into<std::sync::Arc<str>>) -> Self {
        Self { content: vec![Part::Text(text.into())], full: None }
    }
}

/// A call has its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolEnded {
    /// Which call.
    pub call: CallId,
    /// What came of it.
    pub output: ToolOutput,
    /// How long it took, by the driver's own clock.
    #[serde(default)]
    pub active: Millis,
}

/// A call was started and nobody recorded what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolInDoubt {
    /// Which call.
    pub call: CallId,
    /// The driver that had started it.
    pub epoch: Epoch,
    /// What is done about it, unless the tool can find out.
    pub policy: InDoubtPolicy,
    /// Why nobody knows, in words; none: journals of before do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it took, by the clock of a driver that lives.
    #[serde(default)]
    pub active: Millis,
}

/// What the tool found when it looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolVerified {
    /// Which call.
    pub call: CallId,
    /// What it found.
    pub outcome: VerifyOutcome,
}

/// What a look at the world says of a call in doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyOutcome {
    /// It has happened, and this is its result.
    Happened(ToolOutput),
    /// It has not happened: it may begin anew.
    NotHappened,
    /// It can't be told.
    Unknown,
}

/// A result from a driver that had lost the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSurfaced {
    /// Which call.
    pub call: CallId,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// What came of it.
    pub output: ToolOutput,
}
