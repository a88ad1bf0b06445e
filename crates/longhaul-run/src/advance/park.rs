//! Parks, blocks or pauses a run. The worker then releases the run, so that only the run's rows in
//! the store remain.

use std::ops::ControlFlow;

use longhaul_core::change::RunSchedulingUpdate;
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunBlocked, RunControlRequest, RunWaiting};
use longhaul_core::id::{GateId, TimerId};
use longhaul_core::policy::ParkedLanePolicy;
use longhaul_core::status::WaitReason;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::Timestamp;

use crate::decision::DecisionBuilder;
use crate::policy::effect_keys::may_hold_effect_key;
use crate::rejection::Rejection;
use crate::state::Run;
use crate::state::control::ControlState;

/// Parks the run without a timer, until an event wakes it.
pub(crate) fn park_run(
    decision: &mut DecisionBuilder<'_>,
    wait: WaitReason,
) -> Result<ControlFlow<()>, Rejection> {
    record_run_waiting(decision, RunWaiting { wait, timer: None })
}

/// Parks the run until an event or this timer wakes it. The caller sets the timer once: a run that
/// is woken early and parks again keeps its timer.
pub(crate) fn park_run_with_timer(
    decision: &mut DecisionBuilder<'_>,
    wait: WaitReason,
    timer: TimerId,
) -> Result<ControlFlow<()>, Rejection> {
    record_run_waiting(decision, RunWaiting { wait, timer: Some(timer) })
}

fn record_run_waiting(
    decision: &mut DecisionBuilder<'_>,
    waiting: RunWaiting,
) -> Result<ControlFlow<()>, Rejection> {
    let reason = waiting.wait.reason();
    decision.record_event(Event::RunWaiting(waiting))?;
    let release_lane = releases_lane_while_parked(&decision.control);
    decision.add_scheduling_update(RunSchedulingUpdate::Park {
        reason,
        blocked: false,
        release_lane,
    });
    Ok(ControlFlow::Break(()))
}

/// Returns whether the run gives up its lane while it is parked. A run that holds an effect key
/// (name of an effect that must happen at most once) keeps its lane: another run could otherwise
/// enter the lane and wait there for the key, while this run waits for the lane.
fn releases_lane_while_parked(control: &ControlState) -> bool {
    control.policy.lane_on_park == ParkedLanePolicy::Release
        && !control.calls().iter().any(may_hold_effect_key)
}

/// Returns what a new run waits for before it may start. `None` means that it may start.
pub(crate) fn wait_reason_before_start(
    run: &Run,
    control: &ControlState,
    now: Timestamp,
) -> Option<WaitReason> {
    if control.start_timer_fired {
        return None;
    }
    match run.task.start {
        EarliestStart::Now => None,
        EarliestStart::At(at) => (now < at).then_some(WaitReason::StartAt(at)),
        EarliestStart::AfterBatch => Some(WaitReason::Batch),
    }
}

/// Parks a new run again that was woken too early, such as by a message. The timer that starts it
/// is still set. A run that has not started never holds its lane.
pub(super) fn park_again_until_start(
    decision: &mut DecisionBuilder<'_>,
) -> Result<ControlFlow<()>, Rejection> {
    let Some(wait) = wait_reason_before_start(decision.run, &decision.control, decision.ctx.now)
    else {
        return Ok(ControlFlow::Break(()));
    };
    let reason = wait.reason();
    decision.record_event(Event::RunWaiting(RunWaiting { wait, timer: None }))?;
    decision.add_scheduling_update(RunSchedulingUpdate::Park {
        reason,
        blocked: false,
        release_lane: true,
    });
    Ok(ControlFlow::Break(()))
}

/// Blocks the run until a person answers this gate.
pub(crate) fn block_run_at_gate(
    decision: &mut DecisionBuilder<'_>,
    gate: GateId,
    reason: &str,
) -> Result<ControlFlow<()>, Rejection> {
    decision.record_event(Event::RunBlocked(RunBlocked { gate, reason: reason.into() }))?;
    let release_lane = releases_lane_while_parked(&decision.control);
    decision.add_scheduling_update(RunSchedulingUpdate::Park {
        reason: "blocked",
        blocked: true,
        release_lane,
    });
    Ok(ControlFlow::Break(()))
}

/// Blocks the run again while a dependency is missing. A message to the run and a `resume` count as an
/// answer to the gate that asks for the dependency.
pub(super) fn keep_run_blocked(
    decision: &mut DecisionBuilder<'_>,
) -> Result<ControlFlow<()>, Rejection> {
    let Some(gate) = decision.control.blocked_on else {
        return Ok(ControlFlow::Continue(()));
    };
    if !decision.control.steers.is_empty() {
        decision.withdraw_gate(gate, "a person sent a message")?;
        return Ok(ControlFlow::Continue(()));
    }
    if decision.control.blocked_resumed {
        decision.withdraw_gate(gate, "a person resumed the run")?;
        return Ok(ControlFlow::Continue(()));
    }
    let reason =
        decision.control.find_open_gate(gate).map_or_else(String::new, |open| open.ask.clone());
    block_run_at_gate(decision, gate, &reason)
}

/// Pauses the run, as a person has requested.
pub(super) fn pause_run(decision: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    let by = decision.control.pause.clone().unwrap_or_default();
    decision.record_event(Event::RunPaused(RunControlRequest::from_principal(by)))?;
    decision.add_scheduling_update(RunSchedulingUpdate::Pause);
    Ok(ControlFlow::Break(()))
}
