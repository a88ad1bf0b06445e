//! Ends: nothing open is left behind.
//!
//! Never: an end while something is under way, or a message that silently
//! disappears.

use std::ops::ControlFlow;

use longhaul_core::change::{Change, HeadUpdate, Settlement, SteerStatus, SteerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunCancelled, RunFailed};
use longhaul_core::event::steer::SteerDropped;
use longhaul_core::event::tool::ToolInDoubt;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{Epoch, GateId, SteerId};
use longhaul_core::status::{RunError, Status};
use longhaul_core::time::Millis;
use longhaul_core::usage::Hold;

use crate::decision::DecisionBuilder;
use crate::policy::in_doubt;
use crate::policy::rules::in_doubt_policy;
use crate::rejection::Rejection;
use crate::state::call::CallState;
use crate::state::stage::Stage;

const ENDED: &str = "the run has ended";

/// Ends without a result.
pub(crate) fn fail(
    draft: &mut DecisionBuilder<'_>,
    fault: RunError,
) -> Result<ControlFlow<()>, Rejection> {
    close_open_items(draft)?;
    let code = Some(fault.code.clone());
    draft.record(Event::RunFailed(RunFailed { error: fault }))?;
    end(draft, Status::Failed, code);
    Ok(ControlFlow::Break(()))
}

/// Ends because somebody said so.
pub(super) fn cancel(draft: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    close_open_items(draft)?;
    let reason = draft.control.cancel.clone().unwrap_or_default();
    draft.record(Event::RunCancelled(RunCancelled { reason }))?;
    end(draft, Status::Cancelled, None);
    Ok(ControlFlow::Break(()))
}

/// Moves the head to its end. Only a root holds a lane.
pub(super) fn end(draft: &mut DecisionBuilder<'_>, status: Status, code: Option<String>) {
    let frees_lane = draft.run.task.root == draft.run.id;
    draft.set_head(HeadUpdate::End { status, code, releases_lane: frees_lane });
}

fn close_open_items(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    let gates: Vec<GateId> = draft.control.gates.iter().map(|gate| gate.id).collect();
    for gate in gates {
        draft.withdraw(gate, ENDED)?;
    }
    let steers: Vec<SteerId> = draft.control.steers.iter().map(|steer| steer.id).collect();
    for steer in steers {
        let why = format!("{ENDED} before it was read");
        draft.record(Event::SteerDropped(SteerDropped { steer, reason: why.clone() }))?;
        let status = SteerStatus::Dropped { reason: why };
        draft.change(Change::UpdateSteer(SteerUpdate { steer, edit: None, status }));
    }
    Ok(())
}

/// Settles what drivers before `alive` left behind: a turn without an end is
/// lost with all that was held for it, a call that must not be repeated is in
/// doubt. None: nobody is alive.
pub(crate) fn settle_crashed_work(
    draft: &mut DecisionBuilder<'_>,
    alive: Option<Epoch>,
) -> Result<(), Rejection> {
    let left_by = |epoch: Epoch| alive.is_none_or(|alive| epoch < alive);
    if let Stage::ModelRunning(asking) = &draft.control.stage
        && left_by(asking.epoch)
    {
        let (turn, attempt, hold) = (asking.turn, asking.attempt, asking.hold);
        let failure =
            Failure::new(FailureClass::Lost, "the driver died before the reply was recorded");
        draft.record(Event::TurnFailed(TurnFailed {
            turn,
            attempt,
            failure,
            active: Millis::ZERO,
            charged: hold,
            cost: None,
            fallback_model: None,
        }))?;
        let settlement = Settlement { held: hold, spent: Hold::default(), lost: hold };
        draft.change(Change::Settle(settlement));
    }
    let doubtful: Vec<ToolInDoubt> =
        draft.control.running_tools().map_or_else(Vec::new, |acting| {
            let started = acting.calls.iter().filter_map(|call| {
                let CallState::Started(from) = call.state else {
                    return None;
                };
                // With nobody alive nothing is started again, not even what may be.
                let must_end = alive.is_none() || !call.classification.class.may_repeat();
                (left_by(from) && must_end).then(|| ToolInDoubt {
                    call: call.id,
                    epoch: from,
                    policy: in_doubt_policy(&draft.control, &call.classification),
                    reason: Some(in_doubt::worker_lost_reason(&call.classification)),
                    active: Millis::ZERO,
                })
            });
            started.collect()
        });
    doubtful.into_iter().try_for_each(|doubt| draft.record(Event::ToolInDoubt(doubt)))
}
