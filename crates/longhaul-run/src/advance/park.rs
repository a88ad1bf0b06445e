//! Parks, blocks or pauses a run. The worker then releases the run, so that only the run's rows in
//! the store remain.

use longhaul_core::change::RunSchedulingUpdate;
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunBlocked, RunControlRequest, RunWaiting};
use longhaul_core::id::{GateId, TimerId};
use longhaul_core::policy::ParkedLanePolicy;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::Timestamp;
use longhaul_core::wait::WaitReason;

use crate::decision::{AdvanceResult, BREAK, CONTINUE, Decision, RecordResult};
use crate::policy::effect_keys::may_hold_effect_key;
use crate::state::Run;
use crate::state::control::{ControlState, MissingDependency};
use crate::state::stage::RunStage;

/// Parks the run without a timer, until an event wakes it.
pub(crate) fn park_run(decision: &mut Decision<'_>, wait: WaitReason) -> AdvanceResult {
    record_run_waiting(decision, RunWaiting { wait, timer: None })
}

/// Parks the run until an event or this timer wakes it. The caller sets the timer once: a run that
/// is woken early and parks again keeps its timer.
pub(crate) fn park_with_timer(
    decision: &mut Decision<'_>,
    wait: WaitReason,
    timer: TimerId,
) -> AdvanceResult {
    record_run_waiting(decision, RunWaiting { wait, timer: Some(timer) })
}

fn record_run_waiting(decision: &mut Decision<'_>, waiting: RunWaiting) -> AdvanceResult {
    let reason = waiting.wait.reason();
    decision.record_event(Event::RunWaiting(waiting))?;
    let release_lane = releases_lane_while_parked(&decision.control);
    park_head(decision, reason, release_lane)
}

/// Releases the run so that another worker can claim it. Rejected while a call is running that must
/// not be repeated.
pub(crate) fn release_run(decision: &mut Decision<'_>) -> RecordResult {
    if decision.control.has_call_to_finish() || decision.control.driver.is_idle() {
        return Err(decision.invalid_state("a release"));
    }
    let waiting = RunWaiting { wait: WaitReason::Worker, timer: None };
    decision.record_event(Event::RunWaiting(waiting))?;
    decision.add_scheduling_update(RunSchedulingUpdate::Release);
    Ok(())
}

/// Returns whether the run gives up its lane while it is parked. A run that holds an effect key
/// (name of an effect that must happen at most once) keeps its lane: another run could otherwise
/// enter the lane and wait there for the key, while this run waits for the lane.
fn releases_lane_while_parked(control: &ControlState) -> bool {
    control.policy.lane_on_park == ParkedLanePolicy::Release
        && !control.calls().iter().any(may_hold_effect_key)
}

/// Returns what a new run waits for before it may start. `None` means that it may start.
pub(crate) fn start_wait(run: &Run, control: &ControlState, now: Timestamp) -> Option<WaitReason> {
    if matches!(control.stage, RunStage::New { start_timer_fired: true }) {
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
pub(super) fn park_again_until_start(decision: &mut Decision<'_>) -> AdvanceResult {
    let Some(wait) = start_wait(decision.run, &decision.control, decision.ctx.now) else {
        return BREAK;
    };
    let reason = wait.reason();
    decision.record_event(Event::RunWaiting(RunWaiting { wait, timer: None }))?;
    park_head(decision, reason, true)
}

/// Blocks the run until a person answers this gate.
pub(crate) fn block_run(decision: &mut Decision<'_>, gate: GateId, reason: &str) -> AdvanceResult {
    decision.record_event(Event::RunBlocked(RunBlocked { gate, reason: reason.into() }))?;
    let release_lane = releases_lane_while_parked(&decision.control);
    park_head(decision, WaitReason::Blocked(gate).reason(), release_lane)
}

fn park_head(
    decision: &mut Decision<'_>,
    reason: &'static str,
    release_lane: bool,
) -> AdvanceResult {
    let blocked = matches!(decision.control.driver.wait(), Some(WaitReason::Blocked(_)));
    decision.add_scheduling_update(RunSchedulingUpdate::Park { reason, blocked, release_lane });
    BREAK
}

/// Blocks the run again while a dependency is missing. A message to the run and a `resume` count as an
/// answer to the gate that asks for the dependency.
pub(super) fn keep_run_blocked(decision: &mut Decision<'_>) -> AdvanceResult {
    let Some(MissingDependency { gate, resumed }) = decision.control.stop.blocked else {
        return CONTINUE;
    };
    if !decision.control.people.steers.is_empty() {
        decision.withdraw_gate(gate, "a person sent a message")?;
        return CONTINUE;
    }
    if resumed {
        decision.withdraw_gate(gate, "a person resumed the run")?;
        return CONTINUE;
    }
    let reason =
        decision.control.find_open_gate(gate).map_or_else(String::new, |open| open.ask.clone());
    block_run(decision, gate, &reason)
}

/// Pauses the run, as a person has requested.
pub(super) fn pause_run(decision: &mut Decision<'_>) -> AdvanceResult {
    let by = decision.control.stop.pause.clone().unwrap_or_default();
    decision.record_event(Event::RunPaused(RunControlRequest::from_principal(by)))?;
    decision.add_scheduling_update(RunSchedulingUpdate::Pause);
    BREAK
}
