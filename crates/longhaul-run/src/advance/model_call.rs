//! Decides whether the model can be called now, and which events must be recorded first.

use std::ops::ControlFlow;

use longhaul_core::change::RowChange;
use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetried;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::policy::budget::{BudgetAccount, BudgetCap};
use longhaul_core::status::{RunError, WaitReason};

use crate::advance::outage::park_while_provider_is_blocked;
use crate::advance::park::{park_run, park_run_with_timer};
use crate::advance::steer::deliver_steers;
use crate::advance::turn_start::{exhausted_cap_even_without_new_messages, start_turn};
use crate::advance::{finish, runtime_message};
use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::state::stage::{PendingModelCall, ProviderOutage, RunStage};

/// Maximum number of model calls per turn, whatever the reasons of their failures, except for calls
/// that failed during an outage of the provider. Without a limit, a request that kills its worker
/// would be sent forever.
const TURN_ATTEMPTS_MAX: u32 = 64;

/// Default share of the context window in percent at which the conversation is compacted, before a
/// provider rejects it as too long.
const COMPACTION_THRESHOLD_PERCENT: u8 = 85;

/// The conversation is compacted again only after it has grown by the context window divided by
/// this number.
const COMPACTION_GROWTH_DIVISOR: u64 = 8;

/// Minimum number of messages in a conversation that is compacted.
const COMPACTION_MESSAGES_MIN: usize = 4;

pub(super) fn advance_model_call(
    decision: &mut DecisionBuilder<'_>,
) -> Result<ControlFlow<()>, Rejection> {
    let RunStage::ModelPending(pending) = &decision.control.stage else {
        return Ok(ControlFlow::Continue(()));
    };
    let pending = pending.clone();
    if let Some(error) = runtime_message::invalid_output_error(&decision.control) {
        return finish::fail_run(decision, error);
    }
    if let Some(cap) = decision.control.exhausted_cap
        && !may_shared_cap_have_been_raised(decision)
    {
        return park_until_budget_cap_is_raised(decision, cap);
    }
    let has_new_message =
        decision.control.steers.iter().any(|steer| steer.delivery != SteerDelivery::FollowUp);
    let may_compact = pending.must_compact || !pending.compacted && needs_compaction(decision);
    if has_new_message
        && !may_compact
        && let Some(exhausted) = exhausted_cap_even_without_new_messages(decision)
    {
        // Messages that the model can't read yet stay queued, so that they can be edited.
        let cap = exhausted.cap;
        decision.record_event(Event::BudgetReached(exhausted))?;
        return park_until_budget_cap_is_raised(decision, cap);
    }
    if !has_new_message && let Some(wait) = wait_reason_before_model_call(&pending) {
        return park_run_with_timer(decision, wait.0, wait.1);
    }
    if let Some(attempt) = pending.retry_attempt {
        decision.record_event(Event::RunRetried(RunRetried { attempt }))?;
        return Ok(ControlFlow::Continue(()));
    }
    if deliver_steers(decision, |steer| steer.delivery != SteerDelivery::FollowUp)? {
        // A person who writes to the run wants the model to read it now.
        decision.ctx.provider_blocked_until = None;
        return Ok(ControlFlow::Continue(()));
    }
    if let Some(flow) = park_while_provider_is_blocked(decision, &pending)? {
        return Ok(flow);
    }
    if pending.attempts.saturating_sub(pending.outage_attempts) >= TURN_ATTEMPTS_MAX {
        let message = format!("{TURN_ATTEMPTS_MAX} model calls of one turn got no reply");
        let hint = "find out why workers die or calls fail, then retry the run";
        return finish::fail_run(decision, RunError::new("lost", message, hint));
    }
    let control = &decision.control;
    let loop_error = runtime_message::repeated_calls_error(control)
        .or_else(|| runtime_message::no_progress_error(control));
    if let Some(error) = loop_error {
        return finish::fail_run(decision, error);
    }
    if pending.must_compact && pending.compacted {
        let message = "the conversation is too long for the model, even after compaction";
        let hint = "use a model with a larger context window";
        return finish::fail_run(decision, RunError::new("context_overflow", message, hint));
    }
    let must_compact = pending.must_compact || !pending.compacted && needs_compaction(decision);
    if must_compact && let Some(error) = runtime_message::repeated_compaction_error(control) {
        return finish::fail_run(decision, error);
    }
    let purpose = if must_compact { ModelCallPurpose::Compact } else { ModelCallPurpose::Turn };
    start_turn(decision, purpose)
}

/// Returns whether the exhausted cap is one of the budget that the run shares with other runs, and
/// may have been raised through another run since. This run's journal does not show such a raise.
fn may_shared_cap_have_been_raised(decision: &DecisionBuilder<'_>) -> bool {
    let DecisionBuilder { control, ctx, .. } = decision;
    let is_at_cap =
        ctx.budget_account.is_some_and(|account| control.is_shared_cap_still_exhausted(&account));
    control.exhausted_shared_cap_and_value().is_some() && !is_at_cap
}

fn park_until_budget_cap_is_raised(
    decision: &mut DecisionBuilder<'_>,
    cap: BudgetCap,
) -> Result<ControlFlow<()>, Rejection> {
    let flow = park_run(decision, WaitReason::Budget(cap))?;
    if let Some(BudgetAccount { cap_micro_usd: micro_usd, cap_tokens: tokens, .. }) =
        decision.ctx.budget_account
    {
        decision.add_row_change(RowChange::WaitForHigherCaps { micro_usd, tokens });
    }
    Ok(flow)
}

/// Returns whether the context window is nearly full and a compaction would help. A conversation
/// that could not be compacted is not tried again until it has grown.
fn needs_compaction(decision: &DecisionBuilder<'_>) -> bool {
    let control = &decision.control;
    let estimate_tokens = |bytes| control.pricing.estimate_input_tokens(bytes);
    let window = control.pricing.window_tokens;
    let current_tokens = estimate_tokens(control.transcript_bytes);
    let growth = current_tokens.saturating_sub(estimate_tokens(control.compaction.remaining_bytes));
    let policy = control.compaction_policy.as_ref();
    let percent =
        policy.and_then(|policy| policy.at_percent).unwrap_or(COMPACTION_THRESHOLD_PERCENT);
    u128::from(current_tokens) * 100 >= u128::from(window) * u128::from(percent)
        && growth >= window / COMPACTION_GROWTH_DIVISOR
        && decision.run.transcript.messages().len() >= COMPACTION_MESSAGES_MIN
}

/// Returns why the next model call is delayed, and the timer that ends the delay. `None` means that
/// the model can be called now.
fn wait_reason_before_model_call(
    pending: &PendingModelCall,
) -> Option<(WaitReason, longhaul_core::id::TimerId)> {
    let sleep = pending.pending_timer.filter(|sleep| !sleep.fired)?;
    let until = sleep.until;
    let wait = match pending.outage {
        Some(ProviderOutage { since, class, .. }) => WaitReason::Outage { since, until, class },
        None if pending.rate_limited => WaitReason::RateLimit(until),
        None => WaitReason::Retry(until),
    };
    Some((wait, sleep.timer))
}
