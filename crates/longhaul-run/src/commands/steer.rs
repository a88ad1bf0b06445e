//! Messages for a run: taken in, changed, taken back.
//!
//! Never: acknowledged before they are durable, or to a run that has ended.

use longhaul_core::change::{Batch, Change, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::steer::{SteerMessage, SteerWithdrawn};
use longhaul_core::id::SteerId;

use crate::rejection::Rejection;

/// The longest message.
const STEER_BYTES_MAX: usize = 64 * 1024;

pub(super) fn queue(queued: SteerMessage) -> Result<Batch, Rejection> {
    check_text(&queued.text)?;
    let row = SteerRow {
        steer: queued.steer,
        text: queued.text.clone(),
        delivery: queued.delivery,
        by: queued.by.clone(),
        status: SteerStatus::Queued,
    };
    Ok(Batch { events: vec![Event::SteerQueued(queued)], changes: vec![Change::QueueSteer(row)] })
}

pub(super) fn change(changed: SteerMessage) -> Result<Batch, Rejection> {
    check_text(&changed.text)?;
    let change = SteerUpdate {
        steer: changed.steer,
        edit: Some((changed.text.clone(), changed.delivery)),
        status: SteerStatus::Queued,
    };
    Ok(Batch {
        events: vec![Event::SteerChanged(changed)],
        changes: vec![Change::UpdateSteer(change)],
    })
}

pub(super) fn withdraw(steer: SteerId, by: String) -> Batch {
    let change = SteerUpdate { steer, edit: None, status: SteerStatus::Withdrawn };
    Batch {
        events: vec![Event::SteerWithdrawn(SteerWithdrawn { steer, by })],
        changes: vec![Change::UpdateSteer(change)],
    }
}

fn check_text(text: &str) -> Result<(), Rejection> {
    if text.trim().is_empty() {
        return Err(Rejection::Empty("a message"));
    }
    if text.len() > STEER_BYTES_MAX {
        return Err(Rejection::TooLong { what: "a message", max: STEER_BYTES_MAX });
    }
    Ok(())
}
