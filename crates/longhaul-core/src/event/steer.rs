//! Events about messages that people send to a run while it is in progress.
//!
//! Invariant: every queued message is eventually delivered, dropped or withdrawn.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::SteerId;

/// Point at which a message is delivered to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Delivery)]
pub enum SteerDelivery {
    /// Deliver the message after the calls of the current turn.
    #[default]
    AfterBatch,
    /// Deliver the message before the next call starts. Calls that have not started are skipped.
    BeforeNextTool,
    /// Deliver the message immediately, interrupting the model request or calls in progress.
    Interrupt,
    /// Deliver the message only when the run would otherwise end.
    FollowUp,
}

/// A message for the run was queued, or a queued message was edited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerMessage {
    /// Id of the queued message.
    pub steer: SteerId,
    /// Text of the queued message.
    pub text: String,
    /// Point at which the message is delivered to the model.
    #[serde(default)]
    pub delivery: SteerDelivery,
    /// Principal that wrote or edited the message.
    pub by: String,
    /// Whether the message is a task that was added to the run because its lane was busy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_task: bool,
}

/// A message was withdrawn before its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerWithdrawn {
    /// Id of the withdrawn message.
    pub steer: SteerId,
    /// Principal that withdrew the message.
    pub by: String,
}

/// A message was delivered to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerDelivered {
    /// Id of the delivered message.
    pub steer: SteerId,
    /// Number of the last turn before the delivery.
    pub after_turn: u32,
    /// Whether the message was used as the answer to an open question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_answer: bool,
    /// The answer to record for the message, if it was used as an answer: the option that it names,
    /// the completed form or its text. `None` in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// A message was discarded without being delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerDropped {
    /// Id of the discarded message.
    pub steer: SteerId,
    /// Reason why the message was discarded, as a sentence.
    pub reason: String,
}
