//! Messages that people send to runs, in requests and responses.

use std::collections::BTreeMap;

use longhaul_core::change::{SteerRow, SteerStatus};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A message that a person sent to a run, with its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Steer)]
pub struct SteerView {
    /// Id of the message.
    pub id: SteerId,
    /// Text of the message.
    pub text: String,
    /// When the run reads the message: for example immediately, or after the calls of the current
    /// turn.
    pub delivery: SteerDelivery,
    /// Status of the message: queued, delivered, dropped or withdrawn.
    pub status: SteerState,
    /// Numbers of the turns between which the run read the message. `None` if the run has not read
    /// it.
    pub between: Option<[u32; 2]>,
    /// Seconds from sending until the message was read, dropped or withdrawn. `None` if that has
    /// not happened.
    pub after_s: Option<f64>,
    /// Reason why the message was dropped. `None` if it was not dropped.
    pub why: Option<String>,
    /// Time at which the message was sent. `None` if no journal entry about it was found.
    pub sent_at: Option<Timestamp>,
}

/// Status of a message to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteerState {
    /// The message waits until the run reads it.
    Queued,
    /// The run has read the message.
    Delivered,
    /// The run never read the message; `why` has the reason.
    Dropped,
    /// The sender withdrew the message before the run read it.
    Withdrawn,
}

/// Times at which messages to a run were sent, and at which they were read, dropped or withdrawn,
/// taken from the journal.
#[derive(Debug, Clone, Default)]
pub struct SteerMessageTimes {
    sent: BTreeMap<SteerId, Timestamp>,
    settled: BTreeMap<SteerId, Timestamp>,
}

impl SteerMessageTimes {
    /// Records the time of a journal entry, if it says that a message was sent, read, dropped or
    /// withdrawn.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most events are not about a message")]
    pub fn record_steer_event_time(&mut self, entry: &JournalEntry) {
        match &entry.event {
            Event::SteerQueued(queued) => self.sent.insert(queued.steer, entry.at),
            Event::SteerDelivered(delivered) => self.settled.insert(delivered.steer, entry.at),
            Event::SteerDropped(dropped) => self.settled.insert(dropped.steer, entry.at),
            Event::SteerWithdrawn(withdrawn) => self.settled.insert(withdrawn.steer, entry.at),
            _ => None,
        };
    }
}

impl SteerView {
    /// Builds the view of a message from its row in the store and its times in the journal.
    pub fn new(row: &SteerRow, times: &SteerMessageTimes) -> Self {
        let (status, between, reason) = match &row.status {
            SteerStatus::Queued => (SteerState::Queued, None, None),
            SteerStatus::Delivered { after_turn } => {
                (SteerState::Delivered, Some([*after_turn, after_turn + 1]), None)
            }
            SteerStatus::Dropped { reason } => (SteerState::Dropped, None, Some(reason.clone())),
            SteerStatus::Withdrawn => (SteerState::Withdrawn, None, None),
        };
        let sent = times.sent.get(&row.steer).copied();
        let settled = times.settled.get(&row.steer).copied();
        let duration = sent.zip(settled).map(|(sent, settled)| settled.duration_since(sent));
        Self {
            id: row.steer,
            text: row.text.clone(),
            delivery: row.delivery,
            status,
            between,
            after_s: duration.map(|duration| duration.0 as f64 / 1_000.0),
            why: reason,
            sent_at: sent,
        }
    }
}

/// Body of a request that sends a message to a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerBody {
    /// Text of the message.
    #[schema(min_length = 1)]
    pub text: String,
    /// When the run reads the message: for example immediately, or after the calls of the current
    /// turn.
    #[serde(default)]
    pub delivery: SteerDelivery,
}

/// Body of a request that changes a message to a run.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerChange {
    /// New text of the message. `None` keeps the current text.
    #[schema(min_length = 1)]
    pub text: Option<String>,
    /// New time of delivery: when the run reads the message. `None` keeps the current one.
    pub delivery: Option<SteerDelivery>,
}

/// Response to a message that was sent to a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SteerReceipt {
    /// Id of the message.
    pub id: SteerId,
    /// Id of the run that receives the message.
    pub run: RunId,
    /// Status of the message: always `queued`.
    pub status: SteerState,
    /// When the run reads the message: for example immediately, or after the calls of the current
    /// turn.
    pub delivery: SteerDelivery,
    /// Why the message does not answer the question that the run asks. Missing if the run asks
    /// nothing, or the message is a valid answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
