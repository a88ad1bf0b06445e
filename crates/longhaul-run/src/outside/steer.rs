//! Messages for a run: taken in, changed, taken back.
//!
//! Never: acknowledged before they are durable, or to a run that has ended.

use longhaul_core::change::{Batch, Change, SteerMove, SteerRow, SteerStatus};
use longhaul_core::event::Event;
use longhaul_core::event::steer::{SteerMessage, SteerWithdrawn};
use longhaul_core::id::SteerId;

use crate::refusal::Refusal;

/// The longest message.
const STEER_BYTES_MAX: usize = 64 * 1024;

pub(super) fn queue(queued: SteerMessage) -> Result<Batch, Refusal> {
    bounded(&queued.text)?;
    let row = SteerRow {
        steer: queued.steer,
        text: queued.text.clone(),
        delivery: queued.delivery,
        by: queued.by.clone(),
        status: SteerStatus::Queued,
    };
    Ok(Batch {
        events: vec![Event::SteerQueued(queued)],
        changes: vec![Change::QueueSteer(row)],
    })
}

pub(super) fn change(changed: SteerMessage) -> Result<Batch, Refusal> {
    bounded(&changed.text)?;
    let change = SteerMove {
        steer: changed.steer,
        words: Some((changed.text.clone(), changed.delivery)),
        status: SteerStatus::Queued,
    };
    Ok(Batch {
        events: vec![Event::SteerChanged(changed)],
        changes: vec![Change::ChangeSteer(change)],
    })
}

pub(super) fn withdraw(steer: SteerId, by: String) -> Batch {
    let change = SteerMove {
        steer,
        words: None,
        status: SteerStatus::Withdrawn,
    };
    Batch {
        events: vec![Event::SteerWithdrawn(SteerWithdrawn { steer, by })],
        changes: vec![Change::ChangeSteer(change)],
    }
}

fn bounded(text: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::Empty("a message"));
    }
    if text.len() > STEER_BYTES_MAX {
        return Err(Refusal::TooLong {
            what: "a message",
            max: STEER_BYTES_MAX,
        });
    }
    Ok(())
}
