//! Messages reach the model, or the call that asked for words.
//!
//! Never: in the middle of a turn's results.

use longhaul_core::change::{Change, SteerMove, SteerStatus};
use longhaul_core::event::Event;
use longhaul_core::event::steer::SteerDelivered;
use longhaul_core::id::SteerId;

use crate::draft::Draft;
use crate::refusal::Refusal;

/// Gives the model every message that `wanted` picks; whether there was one.
pub(super) fn deliver(
    draft: &mut Draft<'_>,
    wanted: impl Fn(&crate::state::control::QueuedSteer) -> bool,
) -> Result<bool, Refusal> {
    let due: Vec<SteerId> = draft
        .control
        .steers
        .iter()
        .filter(|steer| wanted(steer))
        .map(|steer| steer.id)
        .collect();
    for steer in &due {
        hand_over(draft, *steer, false)?;
    }
    Ok(!due.is_empty())
}

/// The oldest message that came while somebody was asked is what the asking
/// call gets; whether there was one.
pub(super) fn answer_with_first(draft: &mut Draft<'_>) -> Result<bool, Refusal> {
    let mut steers = draft.control.steers.iter();
    match steers.find(|steer| steer.answers).map(|steer| steer.id) {
        Some(steer) => hand_over(draft, steer, true).map(|()| true),
        None => Ok(false),
    }
}

fn hand_over(draft: &mut Draft<'_>, steer: SteerId, as_answer: bool) -> Result<(), Refusal> {
    let after_turn = draft.control.turn;
    draft.record(Event::SteerDelivered(SteerDelivered {
        steer,
        after_turn,
        as_answer,
    }))?;
    let status = SteerStatus::Delivered { after_turn };
    draft.change(Change::ChangeSteer(SteerMove {
        steer,
        words: None,
        status,
    }));
    Ok(())
}
