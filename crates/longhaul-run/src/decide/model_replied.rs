//! The model replied, or was cut off by a person.
//!
//! Never: throws away what was paid for without saying so.

use longhaul_core::change::{Change, Settlement, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::turn::{ModelCallPurpose, TurnCompleted, TurnFailed, TurnInterrupted};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, MicroUsd, Usage};

use crate::advance::advance;
use crate::decide::release::invalid_state;
use crate::decision::DecisionBuilder;
use crate::input::{InterruptedReply, ModelReply};
use crate::policy::final_output::final_output;
use crate::rejection::Rejection;
use crate::state::stage::{ModelRunning, Stage};

/// A call that ended and what it was paid with.
pub(super) struct CallCharge {
    held: Hold,
    usage: Usage,
    /// What was charged; where the provider does not say it, the list price.
    pub(super) cost: Option<MicroUsd>,
    turns: u32,
}

impl CallCharge {
    /// The end of the call in flight.
    pub(super) fn new(
        draft: &DecisionBuilder<'_>,
        usage: Usage,
        cost: Option<MicroUsd>,
    ) -> Result<Self, Rejection> {
        let asking = expect_model_call(draft)?;
        let free = (usage.tokens() == 0).then_some(MicroUsd::ZERO);
        let tariff = draft.control.pricing_for(asking);
        let listed = tariff.price.map(|price| price.cost(usage));
        Ok(Self { held: asking.hold, usage, cost: cost.or(listed).or(free), turns: 0 })
    }

    /// Gives back what was held and counts what was used.
    pub(super) fn settle(self, draft: &mut DecisionBuilder<'_>, model: String, active: Millis) {
        let spent = Hold { micro_usd: self.cost.unwrap_or_default(), tokens: self.usage.tokens() };
        let settlement = Settlement { held: self.held, spent, lost: Hold::default() };
        draft.change(Change::Settle(settlement));
        draft.change(Change::AddUsage(UsageRow {
            model,
            usage: self.usage,
            cost: self.cost,
            turns: self.turns,
            active,
        }));
    }
}

/// The call in flight, if this driver has one.
pub(super) fn expect_model_call<'a>(
    draft: &'a DecisionBuilder<'_>,
) -> Result<&'a ModelRunning, Rejection> {
    if let Stage::ModelRunning(asking) = &draft.control.stage
        && asking.epoch == draft.control.epoch
    {
        return Ok(asking);
    }
    Err(invalid_state(draft, "a model's reply"))
}

pub(super) fn record_reply(
    draft: &mut DecisionBuilder<'_>,
    replied: ModelReply,
) -> Result<(), Rejection> {
    let answered = replied.response;
    let mut paid = CallCharge::new(draft, answered.usage, answered.cost)?;
    let turn = expect_model_call(draft)?.turn;
    if draft.control.cancel.is_some() {
        return record_stopped(draft, paid, replied.active);
    }
    let mut done = Box::new(TurnCompleted {
        turn,
        reply: answered.reply,
        stop: answered.stop,
        usage: answered.usage,
        cost: paid.cost,
        model: answered.model.clone(),
        active: replied.active,
        calls: replied.calls,
        output_check: replied.output_check,
        output: None,
    });
    done.output = final_output(&done);
    draft.record(Event::TurnCompleted(done))?;
    paid.turns = 1;
    paid.settle(draft, answered.model, replied.active);
    advance(draft)
}

pub(super) fn record_interruption(
    draft: &mut DecisionBuilder<'_>,
    cut: InterruptedReply,
) -> Result<(), Rejection> {
    let paid = CallCharge::new(draft, cut.usage, cut.cost)?;
    let ModelRunning { turn, purpose, .. } = *expect_model_call(draft)?;
    // Summing up has no words to keep: it begins anew when the message is read.
    if draft.control.cancel.is_some() || purpose == ModelCallPurpose::Compact {
        return record_stopped(draft, paid, cut.active);
    }
    draft.record(Event::TurnInterrupted(TurnInterrupted {
        turn,
        text: cut.text,
        usage: cut.usage,
        cost: paid.cost,
        active: cut.active,
    }))?;
    let model = draft.run.transcript.model().to_owned();
    paid.settle(draft, model, cut.active);
    advance(draft)
}

/// After a cancel only closing facts pass: the reply is not needed any more,
/// what it used is counted.
pub(super) fn record_stopped(
    draft: &mut DecisionBuilder<'_>,
    paid: CallCharge,
    active: Millis,
) -> Result<(), Rejection> {
    let asking = expect_model_call(draft)?;
    let (turn, attempt) = (asking.turn, asking.attempt);
    let model = asking.model_or(draft.run.transcript.model()).to_owned();
    let why = match draft.control.cancel {
        Some(_) => "the run was cancelled",
        None => "a person wrote",
    };
    let mut failure = Failure::new(FailureClass::Stopped, why);
    failure.usage = Some(paid.usage);
    let charged = Hold { micro_usd: paid.cost.unwrap_or_default(), tokens: paid.usage.tokens() };
    draft.record(Event::TurnFailed(TurnFailed {
        turn,
        attempt,
        failure,
        active,
        charged,
        cost: paid.cost,
        fallback_model: None,
    }))?;
    paid.settle(draft, model, active);
    advance(draft)
}
