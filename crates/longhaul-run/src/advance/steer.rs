//! Delivers queued messages to the model, or to the tool call that asks a person. Messages are
//! never delivered between the results of a turn.

use longhaul_core::change::{GateTransition, GateUpdate, RowChange, SteerStatus, SteerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::gate::GateAnswer;
use longhaul_core::event::steer::SteerDelivered;
use longhaul_core::id::SteerId;
use longhaul_core::policy::gate::{Answer, GateDecision};

use crate::decision::{Decision, RecordResult};
use crate::policy::check_question_answer;
use crate::rejection::Rejection;
use crate::state::control::QueuedSteer;

/// Delivers every queued message that matches `predicate` to the model. Returns whether a message
/// matched.
pub(super) fn deliver_steers(
    decision: &mut Decision<'_>,
    predicate: impl Fn(&QueuedSteer) -> bool,
) -> Result<bool, Rejection> {
    let steers = decision.control.people.steers.iter();
    let due: Vec<_> = steers.filter(|steer| predicate(steer)).map(|steer| steer.id).collect();
    for steer in &due {
        record_steer_delivery(decision, *steer, None)?;
    }
    Ok(!due.is_empty())
}

/// Delivers the oldest message that answers the first open question as the result of the call that
/// asked, and closes the question as answered by the writer of the message. Returns whether there
/// was such a message.
pub(super) fn answer_question_with_steer(decision: &mut Decision<'_>) -> Result<bool, Rejection> {
    let control = &decision.control;
    let Some((_, question)) = control.first_open_question() else { return Ok(false) };
    let gate = question.id;
    let found = control.people.steers.iter().filter(|steer| steer.answers).find_map(|steer| {
        let checked = check_question_answer(question, &steer.text).ok()?;
        Some((steer.id, steer.by.clone(), checked))
    });
    let Some((steer, by, text)) = found else { return Ok(false) };
    record_steer_delivery(decision, steer, Some(text.clone()))?;
    let answer = Answer::new(GateDecision::Answer(text), by);
    let transition = GateTransition::AnsweredByMessage(answer.clone());
    decision.record_event(Event::GateAnswered(GateAnswer { gate, answer, edit: None }))?;
    let update = GateUpdate { gate, seen_answers: None, transition };
    decision.add_row_change(RowChange::UpdateGate(update));
    Ok(true)
}

/// Records that the run has read a message. `answer` is the answer that the message gives to a
/// question. `None` means that the message is for the model.
fn record_steer_delivery(
    decision: &mut Decision<'_>,
    steer: SteerId,
    answer: Option<String>,
) -> RecordResult {
    let after_turn = decision.control.turn;
    let delivered = SteerDelivered { steer, after_turn, as_answer: answer.is_some(), answer };
    decision.record_event(Event::SteerDelivered(delivered))?;
    let status = SteerStatus::Delivered { after_turn };
    decision.add_row_change(RowChange::UpdateSteer(SteerUpdate { steer, edit: None, status }));
    Ok(())
}
