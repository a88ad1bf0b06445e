//! Ends an attempt of a run: schedules the next attempt, or fails the run if no attempt is left.

use std::ops::ControlFlow;

use longhaul_core::duration::format_duration;
use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetryScheduled;
use longhaul_core::failure::FailureClass;
use longhaul_core::status::RunError;
use longhaul_core::time::Millis;
use longhaul_core::wait::WaitReason;

use crate::advance::call_events::fail_call;
use crate::advance::finish::fail_run;
use crate::advance::park::park_with_timer;
use crate::decision::{AdvanceResult, CONTINUE, Decision};
use crate::rejection::Rejection;
use crate::state::call::{ToolCallState, TrackedToolCall};

const NOT_RUN: &str = "not run: the attempt of the run has reached its hard timeout";

/// Ends the current attempt of a run that has reached its hard timeout. If tool calls that can be
/// skipped have no result yet, only records that they were not run. `None` means that nothing was
/// recorded, because the run waits for a person or has its output, for example.
pub(super) fn end_timed_out_attempt(
    decision: &mut Decision<'_>,
) -> Result<Option<ControlFlow<()>>, Rejection> {
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
fn skip_calls_without_result(
    decision: &mut Decision<'_>,
) -> Result<Option<ControlFlow<()>>, Rejection> {
    use ToolCallState::{AwaitingAnswer, AwaitingChild, Done, InDoubt, ResultReady};
    let calls = decision.control.calls().iter().filter(|call| {
        let is_kept = matches!(call.state, AwaitingAnswer(_) | AwaitingChild(_) | InDoubt { .. });
        !is_kept && !matches!(call.state, ResultReady { .. } | Done { .. })
    });
    let skipped: Vec<TrackedToolCall> = calls.cloned().collect();
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
