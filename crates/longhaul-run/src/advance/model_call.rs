//! Decides whether the model can be called now, and which events must be recorded first.

use longhaul_core::change::RowChange;
use longhaul_core::event::Event;
use longhaul_core::event::environment::BudgetReached;
use longhaul_core::event::run::RunRetried;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::policy::budget::{BudgetAccount, BudgetCap};
use longhaul_core::status::RunError;
use longhaul_core::wait::WaitReason;

use crate::advance::attempt_end::park_at_blocked_provider;
use crate::advance::park::{park_run, park_with_timer};
use crate::advance::steer::deliver_steers;
use crate::advance::turn_start::{exhausted_cap_without_messages, start_turn};
use crate::advance::{finish, runtime_message};
use crate::decision::{AdvanceResult, CONTINUE, Decision};
use crate::state::stage::{PendingModelCall, RunStage};

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

pub(super) fn advance_model_call(decision: &mut Decision<'_>) -> AdvanceResult {
    let RunStage::ModelPending(pending) = &decision.control.stage else { return CONTINUE };
    let pending = pending.clone();
    if let Some(error) = runtime_message::invalid_output_error(&decision.control) {
        return finish::fail_run(decision, error);
    }
    if let Some(BudgetReached { cap, .. }) = decision.control.budget.exhausted
        && !may_shared_cap_be_raised(decision)
    {
        return park_until_cap_is_raised(decision, cap);
    }
    let mut steers = decision.control.people.steers.iter();
    let has_new_message = steers.any(|steer| steer.delivery != SteerDelivery::FollowUp);
    let turn = pending.turn;
    let may_compact = turn.must_compact || !turn.compacted && needs_compaction(decision);
    if has_new_message
        && !may_compact
        && let Some(exhausted) = exhausted_cap_without_messages(decision)
    {
        // Messages that the model can't read yet stay queued, so that they can be edited.
        let cap = exhausted.cap;
        decision.record_event(Event::BudgetReached(exhausted))?;
        return park_until_cap_is_raised(decision, cap);
    }
    if !has_new_message && let Some(wait) = model_call_wait(&pending) {
        return park_with_timer(decision, wait.0, wait.1);
    }
    if let Some(attempt) = pending.retry_attempt {
        decision.record_event(Event::RunRetried(RunRetried { attempt }))?;
        return CONTINUE;
    }
    if deliver_steers(decision, |steer| steer.delivery != SteerDelivery::FollowUp)? {
        // A person who writes to the run wants the model to read it now.
        decision.ctx.provider_blocked_until = None;
        return CONTINUE;
    }
    if let Some(flow) = park_at_blocked_provider(decision, &pending)? {
        return Ok(flow);
    }
    if pending.attempts.saturating_sub(turn.outage_attempts) >= TURN_ATTEMPTS_MAX {
        let message = format!("{TURN_ATTEMPTS_MAX} model calls of one turn got no reply");
        let hint = "find out why workers die or calls fail, then retry the run";
        return finish::fail_run(decision, RunError::new("lost", message, hint));
    }
    let control = &decision.control;
    if let Some(error) = runtime_message::repetition_error(control) {
        return finish::fail_run(decision, error);
    }
    if turn.must_compact && turn.compacted {
        let message = "the conversation is too long for the model, even after compaction";
        let hint = "use a model with a larger context window";
        return finish::fail_run(decision, RunError::new("context_overflow", message, hint));
    }
    let must_compact = turn.must_compact || !turn.compacted && needs_compaction(decision);
    if must_compact && let Some(error) = runtime_message::repeated_compaction_error(control) {
        return finish::fail_run(decision, error);
    }
    let purpose = if must_compact { ModelCallPurpose::Compact } else { ModelCallPurpose::Turn };
    start_turn(decision, purpose)
}

/// Returns whether the exhausted cap is one of the budget that the run shares with other runs, and
/// may have been raised through another run since. This run's journal does not show such a raise.
fn may_shared_cap_be_raised(decision: &Decision<'_>) -> bool {
    let Decision { control, ctx, .. } = decision;
    let is_at_cap =
        ctx.budget_account.is_some_and(|account| control.budget.is_exhausted_in(&account));
    control.budget.exhausted_shared_cap().is_some() && !is_at_cap
}

fn park_until_cap_is_raised(decision: &mut Decision<'_>, cap: BudgetCap) -> AdvanceResult {
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
fn needs_compaction(decision: &Decision<'_>) -> bool {
    let control = &decision.control;
    let estimate_tokens = |bytes| control.pricing.estimate_input_tokens(bytes);
    let window = control.pricing.window_tokens;
    let current_tokens = estimate_tokens(control.transcript_bytes);
    let growth = current_tokens.saturating_sub(estimate_tokens(control.compaction.remaining_bytes));
    let policy = control.compaction.policy.as_ref();
    let percent =
        policy.and_then(|policy| policy.at_percent).unwrap_or(COMPACTION_THRESHOLD_PERCENT);
    u128::from(current_tokens) * 100 >= u128::from(window) * u128::from(percent)
        && growth >= window / COMPACTION_GROWTH_DIVISOR
        && decision.run.transcript.messages().len() >= COMPACTION_MESSAGES_MIN
}

/// Returns why the next model call is delayed, and the timer that ends the delay. `None` means that
/// the model can be called now.
fn model_call_wait(pending: &PendingModelCall) -> Option<(WaitReason, longhaul_core::id::TimerId)> {
    let sleep = pending.timer.filter(|sleep| !sleep.fired)?;
    let until = sleep.until;
    let wait = match pending.turn.outage {
        Some(outage) => outage.wait_until(until),
        None if pending.rate_limited => WaitReason::RateLimit(until),
        None => WaitReason::Retry(until),
    };
    Some((wait, sleep.timer))
}
