//! Heads: where a run stands, and what moves it.
//!
//! Never: a head that moves without its place in queue and lane.

use longhaul_core::change::HeadUpdate;
use longhaul_core::event::{Event, WakeTarget};
use longhaul_core::id::{LaneKey, RunId};
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, PARKED, PAUSED, maybe_name, status_code};
use crate::sqlite::error::ChangeError;
use crate::sqlite::lane::{DepthLimit, enter, leave, set_position};
use crate::sqlite::queue::{make_lane_wait, make_ready, remove};
use crate::sqlite::tx::Tx;

/// Carries out what the author of a batch decided about the head.
pub(crate) fn update_head(tx: &Tx<'_>, run: RunId, to: &HeadUpdate, may_queue: bool) -> Result<()> {
    // A run in a driver's hands stands in no queue.
    if may_queue {
        remove(tx, run)?;
    }
    match to {
        HeadUpdate::Park { reason, blocked, release_lane } => {
            tx.run(
                "UPDATE run_head SET state = ?2, worker = NULL, reason = ?3, blocked = ?4
                  WHERE run = ?1",
                params![run.bytes(), PARKED, reason, blocked],
            )?;
            if *release_lane { leave(tx, run) } else { Ok(()) }
        }
        HeadUpdate::Pause => tx.exec(
            "UPDATE run_head SET state = ?2, worker = NULL, reason = NULL, blocked = 0
                  WHERE run = ?1",
            params![run.bytes(), PAUSED],
        ),
        HeadUpdate::Release => make_ready(tx, run),
        HeadUpdate::End { status, code, releases_lane: frees_lane } => {
            tx.run(
                "UPDATE run_head SET state = ?2, worker = NULL, reason = NULL, blocked = 0,
                        outcome = ?3, code = ?4, finished_at = ?5
                  WHERE run = ?1",
                params![run.bytes(), ENDED, status_code(*status), code, tx.now_micros()],
            )?;
            if *frees_lane { leave_root_lane(tx, run) } else { Ok(()) }
        }
    }
}

/// A chain's last step, or a run by itself, gives the lane of its root back.
fn leave_root_lane(tx: &Tx<'_>, run: RunId) -> Result<()> {
    let root =
        tx.one("SELECT root FROM run WHERE id = ?1", params![run.bytes()], |row| row.get(0))?;
    root.map_or(Ok(()), |root| leave(tx, RunId::from_bytes(root)))
}

/// What the strongest of an outsider's facts does to a run that rests.
pub(crate) fn strongest_wake(events: &[Event]) -> WakeTarget {
    let says = |wanted| {
        let mut events = events.iter();
        events.any(|event| event.from_outside() == Some(wanted))
    };
    if says(WakeTarget::ParkedOrPaused) {
        WakeTarget::ParkedOrPaused
    } else if says(WakeTarget::Parked) {
        WakeTarget::Parked
    } else {
        WakeTarget::None
    }
}

/// Whether that wakes a run in this state.
pub(crate) fn is_woken_by(state: i64, wakes: WakeTarget) -> bool {
    match wakes {
        WakeTarget::ParkedOrPaused => state == PARKED || state == PAUSED,
        WakeTarget::Parked => state == PARKED,
        WakeTarget::None => false,
    }
}

/// A run that rested wants to go on: now, or when its lane lets it.
pub(crate) fn wake(tx: &Tx<'_>, run: RunId) -> Result<(), ChangeError> {
    let stands: Option<(Option<LaneKey>, Option<i64>, bool)> = tx.one(
        "SELECT r.lane, r.lane_position, l.head IS r.id
           FROM run r LEFT JOIN lane l ON l.lane = r.lane
          WHERE r.id = ?1 AND r.takes_lane = 1",
        params![run.bytes()],
        |row| Ok((maybe_name(row, 0)?, row.get(1)?, row.get(2)?)),
    )?;
    let is_turn = match stands {
        None | Some((None, _, _)) => true,
        Some((Some(_), Some(_), is_head)) => is_head,
        Some((Some(lane), None, _)) => {
            let entered = enter(tx, run, &lane, DepthLimit::Unbounded)?;
            set_position(tx, run, entered.seq)?;
            entered.is_head
        }
    };
    if is_turn {
        make_ready(tx, run)?;
    } else {
        make_lane_wait(tx, run)?;
    }
    Ok(())
}
