//! Scheduling states of runs, stored in the heads of the runs (their scheduling rows).
//!
//! Invariant: the state of a run changes together with its positions in the ready queue and in its
//! lane.

use longhaul_core::change::RunSchedulingUpdate;
use longhaul_core::event::{Event, RunsToWake};
use longhaul_core::id::{LaneKey, RunId};
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, PARKED, PAUSED, get_optional_parsed, status_to_column};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::lane::{LaneDepthLimit, enter_lane, leave_lane, set_lane_position};
use crate::sqlite::queue::{make_run_ready, make_run_wait_for_lane, remove_run_from_ready_queue};
use crate::sqlite::tx::Tx;

/// Updates the scheduling state of a run, stored in the run's head (its scheduling row).
pub(crate) fn update_run_scheduling(
    tx: &Tx<'_>,
    run: RunId,
    update: &RunSchedulingUpdate,
    may_queue: bool,
) -> Result<()> {
    // A run that is claimed by a driver is not in the queue.
    if may_queue {
        remove_run_from_ready_queue(tx, run)?;
    }
    match update {
        RunSchedulingUpdate::Park { reason, blocked, release_lane } => {
            tx.run(
                "UPDATE run_head SET state = ?2, worker = NULL, reason = ?3, blocked = ?4
                  WHERE run = ?1",
                params![run.bytes(), PARKED, reason, blocked],
            )?;
            if *release_lane { leave_lane(tx, run) } else { Ok(()) }
        }
        RunSchedulingUpdate::Pause => tx.exec(
            "UPDATE run_head SET state = ?2, worker = NULL, reason = NULL, blocked = 0
                  WHERE run = ?1",
            params![run.bytes(), PAUSED],
        ),
        RunSchedulingUpdate::Release => make_run_ready(tx, run),
        RunSchedulingUpdate::End { status, code, releases_lane } => {
            tx.run(
                "UPDATE run_head SET state = ?2, worker = NULL, reason = NULL, blocked = 0,
                        outcome = ?3, code = ?4, finished_at = ?5
                  WHERE run = ?1",
                params![run.bytes(), ENDED, status_to_column(*status), code, tx.now_micros()],
            )?;
            tx.run(
                "UPDATE run_head SET open_descendants = max(open_descendants - 1, 0)
                  WHERE run = (SELECT root FROM run WHERE id = ?1) AND run <> ?1",
                params![run.bytes()],
            )?;
            if *releases_lane { remove_ended_root_from_lane(tx, run) } else { Ok(()) }
        }
    }
}

/// Removes the root run of this run's tree from its lane, if the root run and all its descendants
/// have ended.
fn remove_ended_root_from_lane(tx: &Tx<'_>, run: RunId) -> Result<()> {
    let root = tx.query_one(
        "SELECT h.run FROM run r JOIN run_head h ON h.run = r.root
          WHERE r.id = ?1 AND h.state = ?2 AND h.open_descendants = 0",
        params![run.bytes(), ENDED],
        |row| row.get(0),
    )?;
    root.map_or(Ok(()), |root| leave_lane(tx, RunId::from_bytes(root)))
}

/// Returns in which states a run is woken by the events of an outsider (a process that does not
/// drive the run): when parked or paused, only when parked, or never. If the events differ, the one
/// that wakes the run in the most states decides.
pub(crate) fn runs_to_wake_for_events(events: &[Event]) -> RunsToWake {
    let any_event_wakes = |runs| {
        let mut events = events.iter();
        events.any(|event| event.runs_woken_by_outside_append() == Some(runs))
    };
    if any_event_wakes(RunsToWake::ParkedOrPaused) {
        RunsToWake::ParkedOrPaused
    } else if any_event_wakes(RunsToWake::Parked) {
        RunsToWake::Parked
    } else {
        RunsToWake::None
    }
}

/// Returns whether an event that wakes the runs in `wake_target` wakes a run in this state.
pub(crate) fn is_state_woken_by(scheduling_state: i64, wake_target: RunsToWake) -> bool {
    match wake_target {
        RunsToWake::ParkedOrPaused => scheduling_state == PARKED || scheduling_state == PAUSED,
        RunsToWake::Parked => scheduling_state == PARKED,
        RunsToWake::None => false,
    }
}

/// Wakes a run: the run becomes ready, or waits for its turn in its lane.
pub(crate) fn wake_run(tx: &Tx<'_>, run: RunId) -> Result<(), RowChangeError> {
    let lane_state: Option<(Option<LaneKey>, Option<i64>, bool)> = tx.query_one(
        "SELECT r.lane, r.lane_position, l.holder IS r.id
           FROM run r LEFT JOIN lane l ON l.lane = r.lane
          WHERE r.id = ?1 AND r.takes_lane = 1",
        params![run.bytes()],
        |row| Ok((get_optional_parsed(row, 0)?, row.get(1)?, row.get(2)?)),
    )?;
    let is_turn = match lane_state {
        None | Some((None, _, _)) => true,
        Some((Some(_), Some(_), is_holder)) => is_holder,
        Some((Some(lane), None, _)) => {
            let position = enter_lane(tx, run, &lane, LaneDepthLimit::Unbounded)?;
            set_lane_position(tx, run, position.seq)?;
            position.is_holder
        }
    };
    if is_turn {
        make_run_ready(tx, run)?;
    } else {
        make_run_wait_for_lane(tx, run)?;
    }
    Ok(())
}
