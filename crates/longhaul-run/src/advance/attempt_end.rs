//! Ends an attempt of a run: schedules the next attempt, or fails the run if no attempt is left.
//!
//! Also waits for a model provider that is unavailable, and blocks runs whose API key or account the
//! provider refuses.

use std::ops::ControlFlow;

use longhaul_core::duration::format_duration;
use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetryScheduled;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::policy::retry::{provider_outage_delay, with_jitter};
use longhaul_core::status::RunError;
use longhaul_core::time::Millis;
use longhaul_core::wait::{OutageWait, WaitReason};

use crate::advance::call_events::fail_call;
use crate::advance::finish::fail_run;
use crate::advance::gates::raise_dependency_gate;
use crate::advance::park::park_with_timer;
use crate::decision::{AdvanceResult, CONTINUE, Decision, StepResult};
use crate::rejection::Rejection;
use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::stage::PendingModelCall;

const NOT_RUN: &str = "not run: the attempt of the run has reached its hard timeout";

/// Ends the current attempt of a run that has reached its hard timeout. If tool calls that can be
/// skipped have no result yet, only records that they were not run. `None` means that nothing was
/// recorded, because the run waits for a person or has its output, for example.
pub(super) fn end_timed_out_attempt(decision: &mut Decision<'_>) -> StepResult {
    let control = &decision.control;
    if control.running_tools().is_some() {
        return skip_calls_without_result(decision);
    }
    if control.pending_call().is_none_or(|pending| pending.retry_attempt.is_some()) {
        return Ok(None);
    }
    let timeout = control.policy.retry.hard_timeout.unwrap_or_default();
    let message = format!(
        "attempt {} of the run was stopped after its hard timeout of {}",
        control.attempt.number,
        format_duration(timeout)
    );
    let hint = "raise `hard_timeout` under `retry` of the agent, or split the task";
    let error = RunError::new("timeout", message, hint);
    retry_or_fail_run(decision, FailureClass::Timeout, Millis::ZERO, error).map(Some)
}

/// Records that tool calls without a result were not run, except calls in doubt (outcome unknown),
/// questions to people and waits for child runs, which stay open. `None` means that no call was
/// skipped.
fn skip_calls_without_result(decision: &mut Decision<'_>) -> StepResult {
    use ToolCallState::{AwaitingAnswer, AwaitingChild, Done, InDoubt, ResultReady};
    let calls = decision.control.calls().iter().filter(|call| {
        let is_kept = matches!(call.state, AwaitingAnswer(_) | AwaitingChild(_) | InDoubt { .. });
        !is_kept && !matches!(call.state, ResultReady { .. } | Done { .. })
    });
    let skipped: Vec<TrackedCall> = calls.cloned().collect();
    for call in &skipped {
        if let ToolCallState::Gated(gate) = call.state {
            decision.withdraw_gate(gate, "the attempt has reached its hard timeout")?;
        }
        fail_call(decision, call.id, NOT_RUN)?;
    }
    Ok((!skipped.is_empty()).then_some(ControlFlow::Continue(())))
}

/// Schedules the next attempt of the run after a transient failure of class `class`. The attempt
/// starts after `delay_min` or later. Fails the run with `error` if no attempt is left.
pub(crate) fn retry_or_fail_run(
    decision: &mut Decision<'_>,
    class: FailureClass,
    delay_min: Millis,
    error: RunError,
) -> AdvanceResult {
    let attempt = decision.control.attempt.number;
    let retry = decision.control.policy.retry;
    let Some(delay) = retry.jittered_delay_after(attempt, decision.ctx.random) else {
        return fail_run(decision, error);
    };
    let delay = delay.max(delay_min);
    let scheduled = RunRetryScheduled { attempt: attempt + 1, delay, class };
    decision.record_event(Event::RunRetryScheduled(scheduled))?;
    park_until_retry(decision, delay, class)
}

/// Parks the run for `delay`. Then the failed model call, or the whole run, is retried. A run that
/// is about to be paused is not parked.
pub(crate) fn park_until_retry(
    decision: &mut Decision<'_>,
    delay: Millis,
    class: FailureClass,
) -> AdvanceResult {
    if decision.control.stop.pause.is_some() {
        return CONTINUE;
    }
    let until = decision.ctx.now.plus(delay);
    let timer = decision.set_wake_timer("retry", delay);
    let wait = if class == FailureClass::RateLimit {
        WaitReason::RateLimit(until)
    } else {
        WaitReason::Retry(until)
    };
    park_with_timer(decision, wait, timer)
}

/// Parks the run until the next request to a provider that is unavailable. Fails the run if it has
/// waited as long as its retry policy allows. A run that is about to be paused is not parked.
pub(crate) fn wait_for_provider(decision: &mut Decision<'_>, failure: &Failure) -> AdvanceResult {
    if decision.control.stop.pause.is_some() {
        return CONTINUE;
    }
    let now = decision.ctx.now;
    let outage = decision.control.current_outage();
    let (since, waits) = outage.map_or((now, 0), |outage| (outage.since, outage.waits));
    let total = decision.control.policy.retry.outage;
    let remaining = since.plus(total).duration_since(now);
    if remaining.0 == 0 {
        let message = format!(
            "the provider was unavailable for {}: {}",
            format_duration(total),
            failure.message
        );
        let hint = outage_retry_hint(decision);
        return fail_run(decision, RunError::new(failure.class.as_str(), message, hint));
    }
    let delay = provider_outage_delay(decision.run.id, waits, failure).min(remaining);
    let timer = decision.set_wake_timer("outage", delay);
    let class = match failure.class.is_transient() {
        true => failure.class,
        false => decision.control.unavailable_model().unwrap_or(failure.class),
    };
    let wait = WaitReason::Outage(OutageWait { since, until: now.plus(delay), class });
    park_with_timer(decision, wait, timer)
}

/// Parks the run before a model call if another run has learned that the provider accepts no
/// requests now. No budget is reserved and no attempt is counted. `None` means that the run may
/// call the model: it has a fallback model, a person asked for the call, or its wait is over.
pub(super) fn park_at_blocked_provider(
    decision: &mut Decision<'_>,
    pending: &PendingModelCall,
) -> StepResult {
    let now = decision.ctx.now;
    let blocked_until = decision.ctx.provider_blocked_until.filter(|until| *until > now);
    let waits = decision.run.transcript.next_fallback_model().is_none()
        && !pending.resumed
        && decision.control.policy.retry.outage.0 > 0;
    let Some(blocked_until) = blocked_until.filter(|_| waits) else { return Ok(None) };
    let mut delay = with_jitter(blocked_until.duration_since(now), decision.run.id, 1);
    if let Some(outage) = pending.turn.outage {
        let end = outage.since.plus(decision.control.policy.retry.outage);
        delay = delay.min(end.duration_since(now));
    }
    if delay.0 == 0 {
        return Ok(None);
    }
    let until = now.plus(delay);
    let wait = match pending.turn.outage {
        Some(outage) => outage.wait_until(until),
        None => WaitReason::RateLimit(until),
    };
    let timer = decision.set_wake_timer("provider", delay);
    park_with_timer(decision, wait, timer).map(Some)
}

/// Returns the hint in the error of a run that failed because its provider was unavailable: the
/// command that retries the run.
pub(crate) fn outage_retry_hint(decision: &Decision<'_>) -> String {
    format!("when the provider is available again: `longhaul retry {}`", decision.run.id)
}

/// Blocks a run if the provider refuses its API key or account and the run has completed a turn.
/// Returns `false` otherwise: a run without a completed turn loses nothing by failing at once.
pub(crate) fn block_on_refused_access(
    decision: &mut Decision<'_>,
    failure: &Failure,
) -> Result<bool, Rejection> {
    let remedies = [
        (FailureClass::Auth, "Fix the provider's key"),
        (FailureClass::Quota, "Add credit to the provider's account"),
    ];
    let remedy = remedies.into_iter().find(|(class, _)| *class == failure.class);
    let Some((_, remedy)) = remedy.filter(|_| decision.control.turns > 0) else { return Ok(false) };
    let reason = failure.message.trim_end().trim_end_matches('.');
    let message =
        format!("{reason}. {remedy}, then continue: `longhaul resume {}`", decision.run.id);
    raise_dependency_gate(decision, &message, &[])?;
    Ok(true)
}
