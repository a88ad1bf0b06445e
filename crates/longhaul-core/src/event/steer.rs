//! Facts about messages for a run in flight.
//!
//! Never: silence. A message is delivered, dropped or withdrawn, and says so.

use serde::{Deserialize, Serialize};

use crate::id::SteerId;

/// When a message is to reach the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// When the calls of this turn are done.
    #[default]
    AfterBatch,
    /// Before the next call begins; the calls not begun are skipped.
    BeforeNextTool,
    /// Now: what runs is cut off.
    Interrupt,
    /// When the run would stop.
    FollowUp,
}

/// A message as it was taken in, or as it was changed before it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerMessage {
    /// Which.
    pub steer: SteerId,
    /// What it says.
    pub text: String,
    /// When it is to be read.
    #[serde(default)]
    pub delivery: Delivery,
    /// Who wrote or changed it.
    pub by: String,
}

/// It was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerWithdrawn {
    /// Which.
    pub steer: SteerId,
    /// Who took it back.
    pub by: String,
}

/// The model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerDelivered {
    /// Which.
    pub steer: SteerId,
    /// After this turn and before the next.
    pub after_turn: u32,
    /// It was the answer to an open question, not a message of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_answer: bool,
}

/// It was never read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerDropped {
    /// Which.
    pub steer: SteerId,
    /// Why, in a sentence.
    pub reason: String,
}
