//! Commands that queue, edit and withdraw messages to a run.

use longhaul_core::change::{JournalBatch, RowChange, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::steer::{SteerMessage, SteerWithdrawn};
use longhaul_core::id::SteerId;

use crate::rejection::Rejection;

/// Maximum size of a message to a run in bytes.
const STEER_BYTES_MAX: usize = 64 * 1024;

pub(super) fn queue(message: SteerMessage) -> Result<JournalBatch, Rejection> {
    check_text(&message.text)?;
    let row = RowChange::QueueSteer(SteerRow::queued(&message));
    Ok(JournalBatch { events: vec![Event::SteerQueued(message)], changes: vec![row] })
}

pub(super) fn edit(message: SteerMessage) -> Result<JournalBatch, Rejection> {
    check_text(&message.text)?;
    let (steer, edit) = (message.steer, Some((message.text.clone(), message.delivery)));
    let change = SteerUpdate { steer, edit, status: SteerStatus::Queued };
    let changes = vec![RowChange::UpdateSteer(change)];
    Ok(JournalBatch { events: vec![Event::SteerChanged(message)], changes })
}

pub(super) fn withdraw(steer: SteerId, by: String) -> JournalBatch {
    let change = SteerUpdate { steer, edit: None, status: SteerStatus::Withdrawn };
    let event = Event::SteerWithdrawn(SteerWithdrawn { steer, by });
    JournalBatch { events: vec![event], changes: vec![RowChange::UpdateSteer(change)] }
}

fn check_text(text: &str) -> Result<(), Rejection> {
    if text.trim().is_empty() {
        return Err(Rejection::Empty("a message"));
    }
    if text.len() > STEER_BYTES_MAX {
        return Err(Rejection::TooLong { text_name: "a message", max: STEER_BYTES_MAX });
    }
    Ok(())
}
