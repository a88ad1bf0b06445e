//! Messages reach the model, or the call that asked for words.
//!
//! Never: in the middle of a turn's results.

use longhaul_core::change::{Change, SteerStatus, SteerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::steer::SteerDelivered;
use longhaul_core::id::SteerId;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;

/// Gives the model every message that `wanted` picks; whether there was one.
pub(super) fn deliver(
    draft: &mut DecisionBuilder<'_>,
    wanted: impl Fn(&crate::state::control::QueuedSteer) -> bool,
) -> Result<bool, Rejection> {
    let due: Vec<SteerId> =
        draft.control.steers.iter().filter(|steer| wanted(steer)).map(|steer| steer.id).collect();
    for steer in &due {
        record_delivery(draft, *steer, false)?;
    }
    Ok(!due.is_empty())
}

/// The oldest message that came while somebody was asked is what the asking
/// call gets; whether there was one.
pub(super) fn answer_with_oldest(draft: &mut DecisionBuilder<'_>) -> Result<bool, Rejection> {
    let mut steers = draft.control.steers.iter();
    match steers.find(|steer| steer.answers).map(|steer| steer.id) {
        Some(steer) => record_delivery(draft, steer, true).map(|()| true),
        None => Ok(false),
    }
}

fn record_delivery(
    draft: &mut DecisionBuilder<'_>,
    steer: SteerId,
    as_answer: bool,
) -> Result<(), Rejection> {
    let after_turn = draft.control.turn;
    draft.record(Event::SteerDelivered(SteerDelivered { steer, after_turn, as_answer }))?;
    let status = SteerStatus::Delivered { after_turn };
    draft.change(Change::UpdateSteer(SteerUpdate { steer, edit: None, status }));
    Ok(())
}
