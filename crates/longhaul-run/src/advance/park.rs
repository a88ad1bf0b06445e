//! Letting go: the run rests, and only rows are left of it.
//!
//! Never: rests with something under way.

use std::ops::ControlFlow;

use longhaul_core::change::HeadUpdate;
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunBlocked, RunControlRequest, RunWaiting};
use longhaul_core::id::{GateId, TimerId};
use longhaul_core::policy::LaneOnPark;
use longhaul_core::status::Wait;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;

/// Rests until a fact wakes it.
pub(crate) fn park(
    draft: &mut DecisionBuilder<'_>,
    wait: Wait,
) -> Result<ControlFlow<()>, Rejection> {
    record_wait(draft, RunWaiting { wait, timer: None })
}

/// Rests until a fact or this timer wakes it. The timer is set by the caller,
/// once: a run that is woken early and rests again keeps the one it has.
pub(crate) fn park_until(
    draft: &mut DecisionBuilder<'_>,
    wait: Wait,
    timer: TimerId,
) -> Result<ControlFlow<()>, Rejection> {
    record_wait(draft, RunWaiting { wait, timer: Some(timer) })
}

fn record_wait(
    draft: &mut DecisionBuilder<'_>,
    waiting: RunWaiting,
) -> Result<ControlFlow<()>, Rejection> {
    let reason = waiting.wait.reason();
    draft.record(Event::RunWaiting(waiting))?;
    let release_lane = draft.control.policy.lane_on_park == LaneOnPark::Release;
    draft.set_head(HeadUpdate::Park { reason, blocked: false, release_lane });
    Ok(ControlFlow::Break(()))
}

/// Rests until somebody helps.
pub(crate) fn park_blocked(
    draft: &mut DecisionBuilder<'_>,
    gate: GateId,
    reason: &str,
) -> Result<ControlFlow<()>, Rejection> {
    draft.record(Event::RunBlocked(RunBlocked { gate, reason: reason.into() }))?;
    let release_lane = draft.control.policy.lane_on_park == LaneOnPark::Release;
    draft.set_head(HeadUpdate::Park { reason: "blocked", blocked: true, release_lane });
    Ok(ControlFlow::Break(()))
}

/// A part was missing and a person was asked. A message is as good as an answer.
pub(super) fn park_on_missing(
    draft: &mut DecisionBuilder<'_>,
) -> Result<ControlFlow<()>, Rejection> {
    let Some(gate) = draft.control.blocked_on else {
        return Ok(ControlFlow::Continue(()));
    };
    if !draft.control.steers.is_empty() {
        draft.withdraw(gate, "a person wrote")?;
        return Ok(ControlFlow::Continue(()));
    }
    let reason = draft.control.open_gate(gate).map_or_else(String::new, |open| open.ask.clone());
    park_blocked(draft, gate, &reason)
}

/// Stands still because a person said so.
pub(super) fn pause(draft: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    let by = draft.control.pause.clone().unwrap_or_default();
    draft.record(Event::RunPaused(RunControlRequest::by(by)))?;
    draft.set_head(HeadUpdate::Pause);
    Ok(ControlFlow::Break(()))
}
