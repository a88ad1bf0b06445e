//! Suspends tool calls whose tools need a person's answer or more time, and continues them.
//!
//! Invariant: a suspended call exists only as rows in the store. No process works on it until its
//! gate is answered or its timer fires.

use longhaul_core::duration::format_duration;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{
    ToolEnded, ToolInputRequired, ToolOutput, ToolPending, ToolResumed, ToolSuspension,
};
use longhaul_core::id::CallId;
use longhaul_core::policy::gate::{GateKind, GateSpec};
use longhaul_core::port::tool::{SuspendedCallWait, SuspendedToolCall};
use longhaul_core::time::Millis;
use longhaul_core::wait::WaitReason;

use crate::advance::gates::new_call_gate;
use crate::advance::park::park_with_timer;
use crate::decision::{Decision, RecordResult};
use crate::policy::poll_timer_id;
use crate::rejection::Rejection;
use crate::state::call::{ToolCallState, TrackedCall};

/// Maximum number of questions that a tool may ask during one call.
const QUESTIONS_MAX: u32 = 8;

/// Time within which a person must answer the question of a tool.
const QUESTION_TIMEOUT: Millis = Millis::from_secs(7 * 24 * 60 * 60);

/// Maximum number of characters of a tool's question that are shown.
const QUESTION_CHARS_MAX: usize = 2_000;

/// Minimum delay before a tool is asked again about a pending call.
const POLL_DELAY_MIN: Millis = Millis::from_secs(1);

/// Maximum delay before a tool is asked again about a pending call.
const POLL_DELAY_MAX: Millis = Millis::from_secs(24 * 60 * 60);

/// Maximum of the poll delay that is computed from the time for which a call has been pending.
const POLL_BACKOFF_MAX: Millis = Millis::from_secs(60 * 60);

/// The delay before the next poll is at least the time for which the call has been pending, divided
/// by this number. So the number of events grows slowly, and results are hardly late.
const POLL_BACKOFF_DIVISOR: u64 = 50;

/// Delay until the next poll if the tool is not available. Each further delay is twice as long.
const POSTPONE_DELAY: Millis = Millis::from_secs(60);

/// Maximum number of times in a row that a poll is postponed, over about four hours. Then a person is
/// asked to make the tool available.
const POSTPONED_MAX: u32 = 8;

/// Maximum time for which a call can be pending.
const PENDING_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);

/// Records that a tool has suspended a call. A call that exceeds the limit of questions or of
/// pending time is stopped instead.
pub(crate) fn record_suspended_call(
    decision: &mut Decision<'_>,
    suspended: SuspendedToolCall,
    (call, active): (CallId, Millis),
) -> RecordResult {
    let tracked = decision.control.call(call).ok_or(Rejection::CallNotRunning(call))?;
    let earlier = tracked.suspended.clone();
    let SuspendedToolCall { suspension, wait } = suspended;
    let (after, ttl, message) = match wait {
        SuspendedCallWait::Answer(question) => {
            if earlier.is_some_and(|earlier| earlier.questions >= QUESTIONS_MAX) {
                let text = format!(
                    "stopped: the tool asked more than {QUESTIONS_MAX} questions without a result"
                );
                return give_up_suspended_call(decision, suspension, text, (call, active));
            }
            let required = ToolInputRequired { call, suspension, question, active };
            return decision.record_event(Event::ToolInputRequired(Box::new(required)));
        }
        SuspendedCallWait::Poll { after, ttl, message } => (after, ttl, message),
    };
    let now = decision.ctx.now;
    let since = earlier.as_ref().and_then(|earlier| earlier.since);
    let limit = ttl.unwrap_or(PENDING_MAX).min(PENDING_MAX);
    let expires = since.unwrap_or(now).plus(limit);
    if since.is_some() && now >= expires {
        let text = format!(
            "stopped: the tool has no result after {}, which is the time that it allows",
            format_duration(limit)
        );
        return give_up_suspended_call(decision, suspension, text, (call, active));
    }
    let since = since.unwrap_or(now);
    let delay = next_tool_poll_delay(after, now.duration_since(since));
    // A result may be gone after the tool's own limit.
    let until = now.plus(delay).min(expires).max(now.plus(POLL_DELAY_MIN));
    let given_up = false;
    let pending = ToolPending { call, suspension, since, until, message, given_up, active };
    decision.record_event(Event::ToolPending(Box::new(pending)))?;
    let polls = earlier.map_or(1, |earlier| earlier.polls.saturating_add(1));
    let timer = poll_timer_id(decision.run.id, call, polls);
    decision.set_delay_timer(timer, until.duration_since(now));
    Ok(())
}

/// Gives up a suspended tool call. If another system still works on the call, the tool is first
/// asked to cancel that work, and the call ends afterwards.
fn give_up_suspended_call(
    decision: &mut Decision<'_>,
    suspension: ToolSuspension,
    reason: String,
    (call, active): (CallId, Millis),
) -> RecordResult {
    if !suspension.must_cancel {
        return record_given_up_call(decision, reason, (call, active));
    }
    let (now, message) = (decision.ctx.now, Some(reason));
    let (since, until, given_up) = (now, now, true);
    let pending = ToolPending { call, suspension, since, until, message, given_up, active };
    decision.record_event(Event::ToolPending(Box::new(pending)))
}

/// Records the end of a suspended tool call that the runtime has given up: as interrupted if the
/// call has an effect key, because a failure would free the key although the call may still take
/// effect, and as failed otherwise.
pub(crate) fn record_given_up_call(
    decision: &mut Decision<'_>,
    text: String,
    (call, active): (CallId, Millis),
) -> RecordResult {
    let own = decision.control.call(call);
    let has_key = own.is_some_and(|own| own.classification.key.is_some());
    let ended = ToolEnded { call, output: ToolOutput::text(text), active };
    decision.record_event(match has_key {
        true => Event::ToolInterrupted(ended),
        false => Event::ToolFailed(ended),
    })
}

/// Records that the request to the tool of a suspended call was aborted. The call stays suspended
/// and is polled again later.
pub(crate) fn record_interrupted_poll(
    decision: &mut Decision<'_>,
    (call, active): (CallId, Millis),
) -> RecordResult {
    let tracked = decision.control.call(call);
    let suspended = tracked.and_then(|tracked| tracked.suspended.as_ref());
    let suspension = suspended.ok_or(Rejection::CallNotRunning(call))?.suspension.clone();
    let wait = SuspendedCallWait::Poll { after: POLL_DELAY_MIN, ttl: None, message: None };
    record_suspended_call(decision, SuspendedToolCall { suspension, wait }, (call, active))
}

/// Postpones the due polls of a run whose tools are not available, and parks the run. Returns
/// `false` if nothing was postponed, because no poll is due, the run has other work, or a poll was
/// already postponed `POSTPONED_MAX` times in a row.
pub(crate) fn postpone_polls(decision: &mut Decision<'_>, reason: &str) -> Result<bool, Rejection> {
    let calls = decision.control.calls().iter().filter(|call| !call.is_done());
    let (due, other): (Vec<_>, Vec<_>) = calls.cloned().partition(TrackedCall::is_tool_poll_due);
    let may_wait = |call: &TrackedCall| matches!(call.state, ToolCallState::Pending(_));
    let max_postponed =
        due.iter().filter_map(|call| call.suspended.as_ref()).map(|call| call.postponed);
    let Some(max_postponed) = max_postponed.max() else { return Ok(false) };
    if max_postponed >= POSTPONED_MAX || !other.iter().all(may_wait) {
        return Ok(false);
    }
    let after = Millis(POSTPONE_DELAY.0 << max_postponed);
    for call in &due {
        let Some(suspended) = &call.suspended else { continue };
        let message = Some(reason.to_owned());
        let wait = SuspendedCallWait::Poll { after, ttl: None, message };
        let suspension = suspended.suspension.clone();
        record_suspended_call(
            decision,
            SuspendedToolCall { suspension, wait },
            (call.id, Millis::ZERO),
        )?;
    }
    if decision.control.calls_to_give_up().next().is_some() {
        return Ok(false);
    }
    let mut pending = decision.control.calls().iter().filter_map(|call| {
        let ToolCallState::Pending(timer) = call.state else { return None };
        Some(timer)
    });
    let Some(first) = pending.next() else { return Ok(false) };
    let flow = park_with_timer(decision, WaitReason::Tool(first.until), first.timer)?;
    Ok(flow.is_break())
}

/// Returns the delay before the next poll of a tool call that has been pending for the time
/// `pending_time`. `requested_delay` is the delay that the tool asked for.
fn next_tool_poll_delay(requested_delay: Millis, pending_time: Millis) -> Millis {
    let backoff = Millis(pending_time.0 / POLL_BACKOFF_DIVISOR).min(POLL_BACKOFF_MAX);
    requested_delay.max(backoff).clamp(POLL_DELAY_MIN, POLL_DELAY_MAX)
}

/// Raises a gate for each question of a tool that no gate asks yet.
pub(super) fn raise_question_gates(decision: &mut Decision<'_>) -> RecordResult {
    let is_open = |call: &&TrackedCall| call.state == ToolCallState::InputRequired;
    let open: Vec<TrackedCall> = decision.control.calls().iter().filter(is_open).cloned().collect();
    for call in &open {
        let Some(question) = call.unanswered_question() else { continue };
        let text = question.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String =
            text.chars().filter(|c| !c.is_control()).take(QUESTION_CHARS_MAX).collect();
        let ask = format!("{} asks, in its own words: {text}", question.asker);
        let schema = Some(question.schema.clone());
        let gate = new_call_gate(decision, call, GateKind::Question, ask);
        decision.raise_gate(GateSpec { schema, timeout: Some(QUESTION_TIMEOUT), ..gate })?;
    }
    Ok(())
}

/// Records that a suspended call is continued. Returns `false` if the tool has not suspended the
/// call, which is then started from the beginning.
pub(super) fn record_call_resumption(
    decision: &mut Decision<'_>,
    call: &TrackedCall,
) -> Result<bool, Rejection> {
    let Some(suspended) = &call.suspended else { return Ok(false) };
    let resumed = ToolResumed { call: call.id, attempt: suspended.resumes + 1 };
    decision.record_event(Event::ToolResumed(resumed))?;
    Ok(true)
}

/// Withdraws the gate that asks the question of a tool whose call has ended.
pub(crate) fn withdraw_question_gate(decision: &mut Decision<'_>, call: CallId) -> RecordResult {
    match decision.control.call(call).and_then(TrackedCall::gate) {
        Some(gate) => decision.withdraw_gate(gate, "the call has ended"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_a_poll_is_bounded_and_grows_with_the_time_that_a_call_is_pending() {
        let [second, hour, day] = [1, 3_600, 86_400].map(Millis::from_secs);
        for (requested, pending, delay) in [
            (Millis::ZERO, Millis::ZERO, second),
            (Millis(u64::MAX), Millis::ZERO, day),
            (Millis(5_000), Millis::ZERO, Millis(5_000)),
            (Millis(5_000), hour, Millis(72_000)),
            (Millis(5_000), Millis(day.0 * 30), hour),
            (Millis(hour.0 * 6), Millis(day.0 * 30), Millis(hour.0 * 6)),
        ] {
            assert_eq!(
                next_tool_poll_delay(requested, pending),
                delay,
                "{requested:?} {pending:?}"
            );
        }
    }
}
