//! Letting go: the run rests, and only rows are left of it.
//!
//! Never: rests with something under way.

use longhaul_core::change::HeadMove;
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunAsked, RunBlocked, RunWaiting};
use longhaul_core::id::{GateId, TimerId};
use longhaul_core::policy::LaneOnPark;
use longhaul_core::status::Wait;

use crate::advance::go::Go;
use crate::draft::Draft;
use crate::refusal::Refusal;

/// Rests until a fact wakes it.
pub(crate) fn park(draft: &mut Draft<'_>, wait: Wait) -> Result<Go, Refusal> {
    rest(draft, RunWaiting { wait, timer: None })
}

/// Rests until a fact or this timer wakes it. The timer is set by the caller,
/// once: a run that is woken early and rests again keeps the one it has.
pub(crate) fn park_until(draft: &mut Draft<'_>, wait: Wait, timer: TimerId) -> Result<Go, Refusal> {
    rest(
        draft,
        RunWaiting {
            wait,
            timer: Some(timer),
        },
    )
}

fn rest(draft: &mut Draft<'_>, waiting: RunWaiting) -> Result<Go, Refusal> {
    let reason = waiting.wait.reason();
    draft.record(Event::RunWaiting(waiting))?;
    let release_lane = draft.control.policy.lane_on_park == LaneOnPark::Release;
    draft.head(HeadMove::Park {
        reason,
        blocked: false,
        release_lane,
    });
    Ok(Go::Stop)
}

/// Rests until somebody helps.
pub(crate) fn block(draft: &mut Draft<'_>, gate: GateId, reason: &str) -> Result<Go, Refusal> {
    draft.record(Event::RunBlocked(RunBlocked {
        gate,
        reason: reason.into(),
    }))?;
    let release_lane = draft.control.policy.lane_on_park == LaneOnPark::Release;
    draft.head(HeadMove::Park {
        reason: "blocked",
        blocked: true,
        release_lane,
    });
    Ok(Go::Stop)
}

/// A part was missing and a person was asked. A message is as good as an answer.
pub(super) fn still_missing(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    let Some(gate) = draft.control.missing else {
        return Ok(Go::On);
    };
    if !draft.control.steers.is_empty() {
        draft.withdraw(gate, "a person wrote")?;
        return Ok(Go::On);
    }
    let reason = draft
        .control
        .open_gate(gate)
        .map_or_else(String::new, |open| open.ask.clone());
    block(draft, gate, &reason)
}

/// Stands still because a person said so.
pub(super) fn pause(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    let by = draft.control.pause.clone().unwrap_or_default();
    draft.record(Event::RunPaused(RunAsked::by(by)))?;
    draft.head(HeadMove::Pause);
    Ok(Go::Stop)
}
