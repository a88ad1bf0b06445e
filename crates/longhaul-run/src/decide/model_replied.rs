//! Records a model reply or the interruption of a reply. The usage of a discarded reply is recorded
//! too.

use longhaul_core::change::{BudgetHoldSettlement, RowChange, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::turn::{ModelCallPurpose, TurnCompleted, TurnFailed, TurnInterrupted};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::policy::spend_cap::CapHold;
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, MicroUsd, Usage};

use crate::advance::advance_run;
use crate::decision::{Decision, RecordResult};
use crate::input::{InterruptedReply, ModelReply};
use crate::policy::output::final_output;
use crate::rejection::Rejection;
use crate::state::stage::{RunStage, RunningModelCall};

/// Usage and cost of a model call that has ended, and the budget reserved for it.
pub(super) struct ModelCallCharge {
    held: BudgetAmount,
    held_caps: Vec<CapHold>,
    usage: Usage,
    /// Cost of the model call, as reported by the provider or else computed from the price list.
    /// `None` means that the price is unknown.
    pub(super) cost: Option<MicroUsd>,
    turns: u32,
}

impl ModelCallCharge {
    /// Computes the charge for the model call that is running.
    pub(super) fn new(
        decision: &Decision<'_>,
        usage: Usage,
        cost: Option<MicroUsd>,
    ) -> Result<Self, Rejection> {
        let running = running_model_call(decision)?;
        let zero_cost = (usage.total_tokens() == 0).then_some(MicroUsd::ZERO);
        let pricing = decision.control.pricing_of_running_call(running);
        let list_price_cost = pricing.price.map(|price| price.cost(usage));
        let held_caps = running.caps.clone();
        let cost = cost.or(list_price_cost).or(zero_cost);
        Ok(Self { held: running.hold, held_caps, usage, cost, turns: 0 })
    }

    fn spent(&self) -> BudgetAmount {
        let micro_usd = self.cost.unwrap_or_default();
        BudgetAmount { micro_usd, tokens: self.usage.total_tokens() }
    }

    /// Releases the budget reserved for the model call, charges the actual cost, and records the
    /// call's usage.
    pub(super) fn settle(self, decision: &mut Decision<'_>, model: String, active: Millis) {
        let (held, spent) = (self.held, self.spent());
        let settlement = BudgetHoldSettlement { held, spent, lost: BudgetAmount::default() };
        decision.settle_holds(settlement, &self.held_caps);
        let Self { usage, cost, turns, .. } = self;
        let row = UsageRow { model, usage, cost, turns, active };
        decision.add_row_change(RowChange::AddUsage(row));
    }
}

/// Returns the model call that the run's current worker is running, or an error if there is none.
pub(super) fn running_model_call<'a>(
    decision: &'a Decision<'_>,
) -> Result<&'a RunningModelCall, Rejection> {
    if let RunStage::ModelRunning(running) = &decision.control.stage
        && running.epoch == decision.control.driver.epoch
    {
        return Ok(running);
    }
    Err(decision.invalid_state("a model's reply"))
}

pub(super) fn record_reply(decision: &mut Decision<'_>, model_reply: ModelReply) -> RecordResult {
    let response = model_reply.response;
    let mut charge = ModelCallCharge::new(decision, response.usage, response.cost)?;
    let turn = running_model_call(decision)?.number;
    if decision.control.stop.cancel.is_some() {
        return record_discarded_reply(decision, charge, model_reply.active);
    }
    let mut turn_completed = Box::new(TurnCompleted {
        turn,
        reply: response.reply,
        stop: response.stop,
        usage: response.usage,
        cost: charge.cost,
        model: response.model.clone(),
        active: model_reply.active,
        calls: model_reply.calls,
        output_check: model_reply.output_check,
        output: None,
    });
    turn_completed.output = response.output.or_else(|| final_output(&turn_completed));
    decision.record_event(Event::TurnCompleted(turn_completed))?;
    charge.turns = 1;
    charge.settle(decision, response.model, model_reply.active);
    advance_run(decision)
}

pub(super) fn record_interrupted_reply(
    decision: &mut Decision<'_>,
    interrupted: InterruptedReply,
) -> RecordResult {
    let charge = ModelCallCharge::new(decision, interrupted.usage, interrupted.cost)?;
    let RunningModelCall { number: turn, purpose, .. } = *running_model_call(decision)?;
    // A summary has no partial text to keep. It starts again after the message is delivered.
    if decision.control.stop.cancel.is_some() || purpose == ModelCallPurpose::Compact {
        return record_discarded_reply(decision, charge, interrupted.active);
    }
    decision.record_event(Event::TurnInterrupted(TurnInterrupted {
        turn,
        text: interrupted.text,
        usage: interrupted.usage,
        cost: charge.cost,
        active: interrupted.active,
    }))?;
    let model = decision.run.transcript.current_model().to_owned();
    charge.settle(decision, model, interrupted.active);
    advance_run(decision)
}

/// Records the end of a model call whose reply is discarded, because the run was cancelled or a
/// compaction was interrupted. The usage of the call is counted.
pub(super) fn record_discarded_reply(
    decision: &mut Decision<'_>,
    charge: ModelCallCharge,
    active: Millis,
) -> RecordResult {
    let reason = match decision.control.stop.cancel {
        Some(_) => "the run was cancelled",
        None => "interrupted by a message",
    };
    let mut failure = Failure::new(FailureClass::Stopped, reason);
    failure.usage = Some(charge.usage);
    let failed = FailedCall { failure, cost: charge.cost, active, fallback_model: None };
    record_failed_call(decision, charge, failed)?;
    advance_run(decision)
}

/// A model call that ended without a reply, or whose reply is discarded.
pub(super) struct FailedCall {
    pub(super) failure: Failure,
    /// Cost that the provider reported or that is known otherwise.
    pub(super) cost: Option<MicroUsd>,
    pub(super) active: Millis,
    /// Model to use instead. `None` means that the run keeps its model.
    pub(super) fallback_model: Option<String>,
}

/// Records a failed model call, releases the budget reserved for it and charges the actual cost.
pub(super) fn record_failed_call(
    decision: &mut Decision<'_>,
    charge: ModelCallCharge,
    failed: FailedCall,
) -> RecordResult {
    let running = running_model_call(decision)?;
    let (turn, attempt) = (running.number, running.attempt);
    let model = match charge.usage.total_tokens() {
        0 => String::new(),
        _ => running.called_model(decision.run.transcript.current_model()).to_owned(),
    };
    let FailedCall { failure, cost, active, fallback_model } = failed;
    let charged = charge.spent();
    let failed = TurnFailed { turn, attempt, failure, active, charged, cost, fallback_model };
    decision.record_event(Event::TurnFailed(failed))?;
    charge.settle(decision, model, active);
    Ok(())
}
