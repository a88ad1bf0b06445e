//! Store rows of the messages that are queued for a run.

use serde::{Deserialize, Serialize};

use crate::event::steer::{SteerDelivery, SteerMessage};
use crate::id::SteerId;

/// A person's message that is queued for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerRow {
    /// Id of the queued message.
    pub steer: SteerId,
    /// Text of the queued message.
    pub text: String,
    /// Point at which the message is delivered to the model.
    pub delivery: SteerDelivery,
    /// Principal that wrote or edited the message.
    pub by: String,
    /// Delivery status of the message.
    pub status: SteerStatus,
}

impl SteerRow {
    /// Returns the row of a message that is queued now.
    pub fn queued(message: &SteerMessage) -> Self {
        let SteerMessage { steer, text, delivery, by, .. } = message.clone();
        Self { steer, text, delivery, by, status: SteerStatus::Queued }
    }
}

/// Maximum number of queued messages per run.
pub const STEERS_MAX: usize = 64;

/// Delivery status of a message that was queued for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SteerStatus {
    /// The message was not delivered yet.
    Queued,
    /// The message was delivered to the model.
    Delivered {
        /// Number of the last turn before the delivery.
        after_turn: u32,
    },
    /// The message was discarded without being delivered.
    Dropped {
        /// Reason for discarding the message.
        reason: String,
    },
    /// The message was withdrawn before its delivery.
    Withdrawn,
}

/// An update of a message that was queued for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteerUpdate {
    /// Id of the queued message to update.
    pub steer: SteerId,
    /// New text of the message and new delivery point. `None` leaves both unchanged.
    pub edit: Option<(String, SteerDelivery)>,
    /// New delivery status of the message.
    pub status: SteerStatus,
}
