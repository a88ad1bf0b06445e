//! Delivers queued messages to the model, or to the tool call that asks a person. Messages are
//! never delivered between the results of a turn.

use longhaul_core::change::{Change, SteerStatus, SteerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::steer::SteerDelivered;
use longhaul_core::id::SteerId;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::state::control::QueuedSteer;

/// Delivers every queued message that matches `predicate` to the model. Returns whether a message
/// matched.
pub(super) fn deliver_steers(
    decision: &mut DecisionBuilder<'_>,
    predicate: impl Fn(&QueuedSteer) -> bool,
) -> Result<bool, Rejection> {
    let due: Vec<SteerId> = decision
        .control
        .steers
        .iter()
        .filter(|steer| predicate(steer))
        .map(|steer| steer.id)
        .collect();
    for steer in &due {
        record_steer_delivery(decision, *steer, false)?;
    }
    Ok(!due.is_empty())
}

/// Delivers the oldest message that answers a question as the result of the call that asked.
/// Returns whether there was such a message.
pub(super) fn answer_question_with_steer(
    decision: &mut DecisionBuilder<'_>,
) -> Result<bool, Rejection> {
    let control = &decision.control;
    let answers = |steer: &&QueuedSteer| steer.answers && control.is_valid_answer(&steer.text);
    match control.steers.iter().find(answers).map(|steer| steer.id) {
        Some(steer) => record_steer_delivery(decision, steer, true).map(|()| true),
        None => Ok(false),
    }
}

fn record_steer_delivery(
    decision: &mut DecisionBuilder<'_>,
    steer: SteerId,
    as_answer: bool,
) -> Result<(), Rejection> {
    let after_turn = decision.control.turn;
    decision.record_event(Event::SteerDelivered(SteerDelivered {
        steer,
        after_turn,
        as_answer,
    }))?;
    let status = SteerStatus::Delivered { after_turn };
    decision.add_row_change(Change::UpdateSteer(SteerUpdate { steer, edit: None, status }));
    Ok(())
}
