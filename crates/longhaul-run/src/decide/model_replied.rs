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
use crate::decide::release::invalid_state_rejection;
use crate::decision::DecisionBuilder;
use crate::input::{InterruptedReply, ModelReply};
use crate::policy::final_output::final_output;
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
    pub(super) fn for_running_call(
        decision: &DecisionBuilder<'_>,
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

    /// Releases the budget reserved for the model call, charges the actual cost, and records the
    /// call's usage.
    pub(super) fn settle_held_budget(
        self,
        decision: &mut DecisionBuilder<'_>,
        model: String,
        active: Millis,
    ) {
        let spent = BudgetAmount {
            micro_usd: self.cost.unwrap_or_default(),
            tokens: self.usage.total_tokens(),
        };
        let settlement =
            BudgetHoldSettlement { held: self.held, spent, lost: BudgetAmount::default() };
        decision.settle_holds_of_model_call(settlement, &self.held_caps);
        decision.add_row_change(RowChange::AddUsage(UsageRow {
            model,
            usage: self.usage,
            cost: self.cost,
            turns: self.turns,
            active,
        }));
    }
}

/// Returns the model call that the run's current worker is running, or an error if there is none.
pub(super) fn running_model_call<'a>(
    decision: &'a DecisionBuilder<'_>,
) -> Result<&'a RunningModelCall, Rejection> {
    if let RunStage::ModelRunning(running) = &decision.control.stage
        && running.epoch == decision.control.epoch
    {
        return Ok(running);
    }
    Err(invalid_state_rejection(decision, "a model's reply"))
}

pub(super) fn record_reply(
    decision: &mut DecisionBuilder<'_>,
    model_reply: ModelReply,
) -> Result<(), Rejection> {
    let response = model_reply.response;
    let mut charge = ModelCallCharge::for_running_call(decision, response.usage, response.cost)?;
    let turn = running_model_call(decision)?.turn;
    if decision.control.cancel.is_some() {
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
    charge.settle_held_budget(decision, response.model, model_reply.active);
    advance_run(decision)
}

pub(super) fn record_interrupted_reply(
    decision: &mut DecisionBuilder<'_>,
    interrupted: InterruptedReply,
) -> Result<(), Rejection> {
    let charge = ModelCallCharge::for_running_call(decision, interrupted.usage, interrupted.cost)?;
    let RunningModelCall { turn, purpose, .. } = *running_model_call(decision)?;
    // A summary has no partial text to keep. It starts again after the message is delivered.
    if decision.control.cancel.is_some() || purpose == ModelCallPurpose::Compact {
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
    charge.settle_held_budget(decision, model, interrupted.active);
    advance_run(decision)
}

/// Records the end of a model call whose reply is discarded, because the run was cancelled or a
/// compaction was interrupted. The usage of the call is counted.
pub(super) fn record_discarded_reply(
    decision: &mut DecisionBuilder<'_>,
    charge: ModelCallCharge,
    active: Millis,
) -> Result<(), Rejection> {
    let running = running_model_call(decision)?;
    let (turn, attempt) = (running.turn, running.attempt);
    let model = running.called_model(decision.run.transcript.current_model()).to_owned();
    let reason = match decision.control.cancel {
        Some(_) => "the run was cancelled",
        None => "interrupted by a message",
    };
    let mut failure = Failure::new(FailureClass::Stopped, reason);
    failure.usage = Some(charge.usage);
    let charged = BudgetAmount {
        micro_usd: charge.cost.unwrap_or_default(),
        tokens: charge.usage.total_tokens(),
    };
    decision.record_event(Event::TurnFailed(TurnFailed {
        turn,
        attempt,
        failure,
        active,
        charged,
        cost: charge.cost,
        fallback_model: None,
    }))?;
    charge.settle_held_budget(decision, model, active);
    advance_run(decision)
}
