//! Handles a failed model call: switches to a fallback model, retries the call or the run, waits for
//! the provider, or ends the run. A delay before a retry is a timer; nothing sleeps here.

use std::ops::ControlFlow;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::policy::retry::model_retry_delay;
use longhaul_core::status::RunError;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;

use crate::advance::{
    advance_run, block_on_refused_access, fail_run, outage_retry_hint, park_until_retry,
    release_run, retry_or_fail_run, wait_for_provider,
};
use crate::decide::model_replied::{FailedCall, ModelCallCharge, record_failed_call};
use crate::decision::{Decision, RecordResult};
use crate::state::stage::RunStage;

/// Maximum delay before a retry of the same model. For a longer delay, the run switches to its
/// fallback model if it has one.
const FALLBACK_WAIT_MAX: Millis = Millis::from_secs(30);

pub(super) fn handle_model_failure(
    decision: &mut Decision<'_>,
    failure: Failure,
    cost: Option<MicroUsd>,
    active: Millis,
) -> RecordResult {
    let class = failure.class;
    let control = &decision.control;
    let must_stop = control.stop.ends_run()
        || control.attempt.timed_out
        || control.budget.is_active_time_used_up();
    let fallback = if must_stop { None } else { fallback_model(decision, &failure) };
    let may_continue = fallback.is_some() || may_continue_after(decision, &failure);
    let usage = failure.usage.unwrap_or_default();
    let charge = ModelCallCharge::new(decision, usage, cost)?;
    // The known limit is that of the model before the switch.
    if fallback.is_some() {
        decision.ctx.provider_blocked_until = None;
    }
    let (cause, fallback_model) = (failure.clone(), fallback);
    let failed = FailedCall { failure: cause, cost, active, fallback_model };
    record_failed_call(decision, charge, failed)?;
    // The driver stopped its call although nobody cancelled the run: it is shutting down.
    if class == FailureClass::Stopped && !must_stop && decision.control.stop.pause.is_none() {
        return release_run(decision);
    }
    if must_stop
        || may_continue
        || class == FailureClass::ContextOverflow
        || !class.counts_as_attempt()
    {
        return advance_run(decision);
    }
    // The conversation can't be compacted: the run ends with that failure.
    if decision.control.stop.failure.is_some() && class == FailureClass::Refused {
        return advance_run(decision);
    }
    let RunStage::ModelPending(pending) = &decision.control.stage else {
        return advance_run(decision);
    };
    // A failed optional call does not count as a failure of the run, but its retry is delayed too.
    let failures = pending.turn.failures.max(1);
    let flow = if let Some(delay) = quick_retry_delay(decision, failures, &failure) {
        park_until_retry(decision, delay, class)?
    } else if decision.control.must_wait_for_provider(&failure) {
        wait_for_provider(decision, &failure)?
    } else if block_on_refused_access(decision, &failure)? {
        ControlFlow::Break(())
    } else {
        let error = run_error_from_failure(decision, &failure);
        match class.is_transient() {
            true => {
                let delay_min = failure.retry_after.unwrap_or_default();
                retry_or_fail_run(decision, class, delay_min, error)?
            }
            false => fail_run(decision, error)?,
        }
    };
    match flow {
        ControlFlow::Continue(()) => advance_run(decision),
        ControlFlow::Break(()) => Ok(()),
    }
}

/// Returns the delay before the request is sent to the same model again. `None` means no quick
/// retry: there were too many, the delay would be too long, or the provider has an outage.
fn quick_retry_delay(decision: &Decision<'_>, failures: u32, failure: &Failure) -> Option<Millis> {
    // A longer delay than the run may wait is no quick retry.
    let outage_max = decision.control.policy.retry.outage;
    let is_too_long = outage_max.0 > 0 && failure.retry_after.is_some_and(|wait| wait > outage_max);
    match decision.control.current_outage() {
        Some(_) => None,
        None if is_too_long => None,
        None => model_retry_delay(decision.run.id, failures, failure),
    }
}

/// Returns the model to use instead of the failed one. `None` means that there is no other model,
/// that the failed model is retried soon, or that the conversation must be compacted instead.
fn fallback_model(decision: &Decision<'_>, failure: &Failure) -> Option<String> {
    let other = decision.run.transcript.next_fallback_model()?;
    let class = failure.class;
    let RunStage::ModelRunning(running) = &decision.control.stage else { return None };
    if class == FailureClass::ContextOverflow
        || !class.counts_as_attempt()
        || may_continue_after(decision, failure)
    {
        return None;
    }
    let is_retried = quick_retry_delay(decision, running.turn.failures + 1, failure).is_some();
    let is_retried_soon =
        is_retried && failure.retry_after.unwrap_or_default() <= FALLBACK_WAIT_MAX;
    (!is_retried_soon).then(|| other.to_owned())
}

/// Returns whether the run may continue immediately although a model call failed: the call was for
/// an optional compaction, or the run's own model can do the compaction. False if the run's own
/// model was throttled, because the next request would go to the same model.
fn may_continue_after(decision: &Decision<'_>, failure: &Failure) -> bool {
    let RunStage::ModelRunning(running) = &decision.control.stage else { return false };
    let own_model = decision.run.transcript.current_model();
    let called_own_model = running.called_model(own_model) == own_model;
    (running.is_optional_compaction() || running.model.is_some())
        && !(called_own_model && is_throttled(failure))
}

/// Returns whether the provider limits the request rate or asks for a delay before the next
/// request.
fn is_throttled(failure: &Failure) -> bool {
    let is_rate_limited =
        matches!(failure.class, FailureClass::RateLimit | FailureClass::Overloaded);
    is_rate_limited || (failure.class.is_transient() && failure.retry_after.is_some())
}

fn run_error_from_failure(decision: &Decision<'_>, failure: &Failure) -> RunError {
    let retry = outage_retry_hint(decision);
    let hint = match failure.class {
        FailureClass::Auth => "check the provider's key",
        FailureClass::Quota => "check the provider's account",
        FailureClass::InvalidRequest => "inspect the request with `longhaul show --events`",
        FailureClass::Refused => "change the task or the model",
        FailureClass::ContextOverflow => "use a model with a larger window",
        FailureClass::RateLimit
        | FailureClass::Overloaded
        | FailureClass::Timeout
        | FailureClass::Network
        | FailureClass::Server
        | FailureClass::Lost
        | FailureClass::Stopped => &retry,
        FailureClass::HandlerFailed | FailureClass::HandlerFailedTransiently => {
            let remedy = match failure.class.is_transient() {
                true => "when the cause is gone",
                false => "fix the handler or the task's input, then",
            };
            let hint = format!("{remedy}: `longhaul retry {}`", decision.run.id);
            return RunError::new("handler_failed", failure.message.clone(), &hint);
        }
    };
    RunError::new(failure.class.as_str(), failure.message.clone(), hint)
}
