//! A message for a run as answers show it: queued, read, or why not.
//!
//! Never: silence about a message that was taken in.

use std::collections::BTreeMap;

use longhaul_core::change::{SteerRow, SteerStatus};
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A message, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Steer)]
pub struct SteerView {
    /// Which.
    #[schema(schema_with = schema::steer_id)]
    pub id: SteerId,
    /// What it says.
    pub text: String,
    /// When it is to be read.
    #[schema(value_type = DeliveryView)]
    pub delivery: Delivery,
    /// What became of it.
    pub status: SteerState,
    /// The turns it was read between.
    pub between: Option<[u32; 2]>,
    /// How long after it was sent it was settled, in seconds.
    pub after_s: Option<f64>,
    /// Why it was never read.
    pub why: Option<String>,
    /// When it was sent.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub sent_at: Option<Timestamp>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteerState {
    /// It waits to be read.
    Queued,
    /// It was read.
    Delivered,
    /// It was never read.
    Dropped,
    /// It was taken back.
    Withdrawn,
}

/// When a message is to be read: how [`Delivery`] is described.
#[derive(Debug, ToSchema)]
#[schema(as = Delivery, rename_all = "snake_case")]
pub enum DeliveryView {
    /// When the calls of this turn are done.
    AfterBatch,
    /// Before the next call begins; calls that have not begun are skipped.
    BeforeNextTool,
    /// Now: what runs is cut off.
    Interrupt,
    /// When the run would end.
    FollowUp,
}

/// When messages were sent and settled, by the journal.
#[derive(Debug, Clone, Default)]
pub struct SteerTimes {
    sent: BTreeMap<SteerId, Timestamp>,
    settled: BTreeMap<SteerId, Timestamp>,
}

impl SteerTimes {
    /// Takes a fact in.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most facts are about no message")]
    pub fn record(&mut self, entry: &Entry) {
        match &entry.event {
            Event::SteerQueued(queued) => self.sent.insert(queued.steer, entry.at),
            Event::SteerDelivered(read) => self.settled.insert(read.steer, entry.at),
            Event::SteerDropped(dropped) => self.settled.insert(dropped.steer, entry.at),
            Event::SteerWithdrawn(taken) => self.settled.insert(taken.steer, entry.at),
            _ => None,
        };
    }
}

impl SteerView {
    /// The message behind a row.
    pub fn new(row: &SteerRow, times: &SteerTimes) -> Self {
        let (status, between, why) = match &row.status {
            SteerStatus::Queued => (SteerState::Queued, None, None),
            SteerStatus::Delivered { after_turn } => {
                (SteerState::Delivered, Some([*after_turn, after_turn + 1]), None)
            }
            SteerStatus::Dropped { reason: why } => (SteerState::Dropped, None, Some(why.clone())),
            SteerStatus::Withdrawn => (SteerState::Withdrawn, None, None),
        };
        let sent = times.sent.get(&row.steer).copied();
        let settled = times.settled.get(&row.steer).copied();
        let took = sent.zip(settled).map(|(sent, settled)| settled.since(sent));
        Self {
            id: row.steer,
            text: row.text.clone(),
            delivery: row.delivery,
            status,
            between,
            after_s: took.map(|span| span.0 as f64 / 1_000.0),
            why,
            sent_at: sent,
        }
    }
}

/// A message to be sent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerBody {
    /// What it says.
    #[schema(min_length = 1)]
    pub text: String,
    /// When it is to be read.
    #[serde(default)]
    #[schema(value_type = DeliveryView)]
    pub delivery: Delivery,
}

/// What is to be changed about a message.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerChange {
    /// What it says instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub text: Option<String>,
    /// When it is to be read instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DeliveryView>)]
    pub delivery: Option<Delivery>,
}

/// The receipt of a message.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SteerReceipt {
    /// Its id.
    #[schema(schema_with = schema::steer_id)]
    pub id: SteerId,
    /// For which run.
    #[schema(schema_with = schema::run_id)]
    pub run: RunId,
    /// It waits to be read.
    pub status: SteerState,
    /// When it is to be read.
    #[schema(value_type = DeliveryView)]
    pub delivery: Delivery,
}
