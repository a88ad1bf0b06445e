//! Ends: nothing open is left behind.
//!
//! Never: an end while something is under way, or a message that silently
//! disappears.

use longhaul_core::change::{Change, HeadMove, Settlement, SteerMove, SteerStatus};
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunCancelled, RunFailed};
use longhaul_core::event::steer::SteerDropped;
use longhaul_core::event::tool::ToolInDoubt;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{Epoch, GateId, SteerId};
use longhaul_core::status::{Fault, Status};
use longhaul_core::time::Millis;
use longhaul_core::usage::Hold;

use crate::advance::go::Go;
use crate::draft::Draft;
use crate::judge::doubt;
use crate::judge::rules::in_doubt;
use crate::refusal::Refusal;
use crate::state::call::CallState;
use crate::state::stage::Stage;

const ENDED: &str = "the run has ended";

/// Ends without a result.
pub(crate) fn fail(draft: &mut Draft<'_>, fault: Fault) -> Result<Go, Refusal> {
    clear(draft)?;
    let code = Some(fault.code.clone());
    draft.record(Event::RunFailed(RunFailed { fault }))?;
    end(draft, Status::Failed, code);
    Ok(Go::Stop)
}

/// Ends because somebody said so.
pub(super) fn cancel(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    clear(draft)?;
    let reason = draft.control.cancel.clone().unwrap_or_default();
    draft.record(Event::RunCancelled(RunCancelled { reason }))?;
    end(draft, Status::Cancelled, None);
    Ok(Go::Stop)
}

/// Moves the head to its end. Only a root holds a lane.
pub(super) fn end(draft: &mut Draft<'_>, status: Status, code: Option<String>) {
    let frees_lane = draft.run.task.root == draft.run.id;
    draft.head(HeadMove::End {
        status,
        code,
        frees_lane,
    });
}

fn clear(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let gates: Vec<GateId> = draft.control.gates.iter().map(|gate| gate.id).collect();
    for gate in gates {
        draft.withdraw(gate, ENDED)?;
    }
    let steers: Vec<SteerId> = draft.control.steers.iter().map(|steer| steer.id).collect();
    for steer in steers {
        let why = format!("{ENDED} before it was read");
        draft.record(Event::SteerDropped(SteerDropped {
            steer,
            why: why.clone(),
        }))?;
        let status = SteerStatus::Dropped { why };
        draft.change(Change::ChangeSteer(SteerMove {
            steer,
            words: None,
            status,
        }));
    }
    Ok(())
}

/// Settles what drivers before `alive` left behind: a turn without an end is
/// lost with all that was held for it, a call that must not be repeated is in
/// doubt. None: nobody is alive.
pub(crate) fn orphans(draft: &mut Draft<'_>, alive: Option<Epoch>) -> Result<(), Refusal> {
    let left_by = |epoch: Epoch| alive.is_none_or(|alive| epoch < alive);
    if let Stage::Asking(asking) = &draft.control.stage
        && left_by(asking.epoch)
    {
        let (turn, attempt, hold) = (asking.turn, asking.attempt, asking.hold);
        let failure = Failure::new(
            FailureClass::Lost,
            "the driver died before the reply was recorded",
        );
        draft.record(Event::TurnFailed(TurnFailed {
            turn,
            attempt,
            failure,
            active: Millis::ZERO,
            charged: hold,
            cost: None,
            instead: None,
        }))?;
        let settlement = Settlement {
            held: hold,
            spent: Hold::default(),
            lost: hold,
        };
        draft.change(Change::Settle(settlement));
    }
    let doubtful: Vec<ToolInDoubt> = draft.control.acting().map_or_else(Vec::new, |acting| {
        let started = acting.calls.iter().filter_map(|call| {
            let CallState::Started(from) = call.state else {
                return None;
            };
            // With nobody alive nothing is started again, not even what may be.
            let must_end = alive.is_none() || !call.appraisal.class.may_repeat();
            (left_by(from) && must_end).then(|| ToolInDoubt {
                call: call.id,
                from,
                then: in_doubt(&draft.control, &call.appraisal),
                why: Some(doubt::cut_off(&call.appraisal)),
                active: Millis::ZERO,
            })
        });
        started.collect()
    });
    doubtful
        .into_iter()
        .try_for_each(|doubt| draft.record(Event::ToolInDoubt(doubt)))
}
