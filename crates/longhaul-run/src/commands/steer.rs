//! Commands that queue, edit and withdraw messages to a run.

use longhaul_core::change::{JournalBatch, RowChange, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::steer::{SteerMessage, SteerWithdrawn};
use longhaul_core::id::SteerId;

use crate::rejection::Rejection;

/// Maximum size of a message to a run in bytes.
const STEER_BYTES_MAX: usize = 64 * 1024;

pub(super) fn queue_steer(message: SteerMessage) -> Result<JournalBatch, Rejection> {
    check_steer_text(&message.text)?;
    let row = SteerRow {
        steer: message.steer,
        text: message.text.clone(),
        delivery: message.delivery,
        by: message.by.clone(),
        status: SteerStatus::Queued,
    };
    Ok(JournalBatch {
        events: vec![Event::SteerQueued(message)],
        changes: vec![RowChange::QueueSteer(row)],
    })
}

pub(super) fn edit_steer_message(message: SteerMessage) -> Result<JournalBatch, Rejection> {
    check_steer_text(&message.text)?;
    let change = SteerUpdate {
        steer: message.steer,
        edit: Some((message.text.clone(), message.delivery)),
        status: SteerStatus::Queued,
    };
    Ok(JournalBatch {
        events: vec![Event::SteerChanged(message)],
        changes: vec![RowChange::UpdateSteer(change)],
    })
}

pub(super) fn withdraw_steer(steer: SteerId, by: String) -> JournalBatch {
    let change = SteerUpdate { steer, edit: None, status: SteerStatus::Withdrawn };
    JournalBatch {
        events: vec![Event::SteerWithdrawn(SteerWithdrawn { steer, by })],
        changes: vec![RowChange::UpdateSteer(change)],
    }
}

fn check_steer_text(text: &str) -> Result<(), Rejection> {
    if text.trim().is_empty() {
        return Err(Rejection::Empty("a message"));
    }
    if text.len() > STEER_BYTES_MAX {
        return Err(Rejection::TooLong { text_name: "a message", max: STEER_BYTES_MAX });
    }
    Ok(())
}
