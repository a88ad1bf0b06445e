//! Lanes: which runs are in a lane, and which of them holds the lane.
//!
//! Invariant: at most one run of a lane is active at a time.

use longhaul_core::change::{LaneEntryPolicy, TimerKind};
use longhaul_core::id::{LaneKey, RunId, TimerId};
use longhaul_core::port::records::LaneRow;
use longhaul_core::port::store::{AppendRefusalReason, BusyLane};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::wait::WaitKind;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{
    ENDED, LANE_WAIT, PARKED, PAUSED, READY, get_parsed, get_u32, limit_to_column, to_json,
};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::queue::{make_run_ready, make_run_wait_for_lane, remove_run_from_ready_queue};
use crate::sqlite::timer::{ArmedTimer, arm_timer, is_timer_set};
use crate::sqlite::tx::Tx;

/// Limit on the number of runs in a lane when a run enters it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LaneDepthLimit {
    /// Maximum number of runs in the lane, including the entering run.
    Depth(u32),
    /// No limit, for a run that has been in the lane before, or that interrupts the runs in it.
    Unbounded,
}

/// Position of a run in a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PositionInLane {
    /// Number that orders the runs of a lane. Lower numbers come first.
    pub(crate) seq: i64,
    /// Whether the run holds the lane and may start.
    pub(crate) is_holder: bool,
}

/// Selects the next run of a lane: the run with the lowest position in the lane among those that
/// have not ended.
pub(crate) const SELECT_NEXT_IN_LANE: &str =
    "SELECT r.id, h.state, r.collect_ms FROM run r CROSS JOIN run_head h ON h.run = r.id
      WHERE r.lane = ?1 AND r.lane_position IS NOT NULL AND h.state <> 5
      ORDER BY r.lane_position LIMIT 1";

/// Selects the run with the highest position in a lane below a given position, and the newest run
/// of its chain.
pub(crate) const SELECT_PREVIOUS_IN_LANE: &str =
    "SELECT coalesce(c.current, r.id), r.lane_position,
            h.epoch = 0
       FROM run r CROSS JOIN run_head h ON h.run = r.id LEFT JOIN chain c
         ON c.first_run = coalesce(r.account, r.root) AND r.chain_step IS NOT NULL
      WHERE r.lane = ?1 AND r.lane_position < ?2 ORDER BY r.lane_position DESC LIMIT 1";

/// Adds a run to the end of a lane and returns its position. The caller must store the position in
/// the run's row, which may not exist yet.
pub(crate) fn enter_lane(
    tx: &Tx<'_>,
    run: RunId,
    lane: &LaneKey,
    depth_limit: LaneDepthLimit,
) -> Result<PositionInLane, RowChangeError> {
    let depth_max = match depth_limit {
        LaneDepthLimit::Depth(max) => i64::from(max),
        LaneDepthLimit::Unbounded => i64::MAX,
    };
    let full = || RowChangeError::Refused(AppendRefusalReason::LaneFull(lane.clone()));
    if depth_max == 0 {
        return Err(full());
    }
    let position = tx.query_one(
        "INSERT INTO lane (lane, holder, depth, next_position) VALUES (?1, ?2, 1, 2)
         ON CONFLICT (lane) DO UPDATE
            SET depth = depth + 1, next_position = next_position + 1,
                holder = CASE paused WHEN 0 THEN coalesce(holder, excluded.holder) ELSE holder END
          WHERE depth < ?3
         RETURNING next_position - 1, holder",
        params![lane.as_str(), run.bytes(), depth_max],
        |row| {
            let holder: Option<[u8; 16]> = row.get(1)?;
            let is_holder = holder.map(RunId::from_bytes) == Some(run);
            Ok(PositionInLane { seq: row.get(0)?, is_holder })
        },
    )?;
    position.ok_or_else(full)
}

/// Stores the lane position of a run in the run's row.
pub(crate) fn set_lane_position(tx: &Tx<'_>, run: RunId, position: i64) -> Result<()> {
    tx.exec("UPDATE run SET lane_position = ?2 WHERE id = ?1", params![run.bytes(), position])
}

/// Removes a run from its lane. If the run held the lane, the next run gets the lane.
pub(crate) fn leave_lane(tx: &Tx<'_>, run: RunId) -> Result<()> {
    let lane: Option<String> = tx.query_one(
        "UPDATE run SET lane_position = NULL WHERE id = ?1 AND lane_position IS NOT NULL
         RETURNING lane",
        params![run.bytes()],
        |row| row.get(0),
    )?;
    let Some(lane) = lane else {
        return Ok(());
    };
    let is_free = tx.query_one(
        "UPDATE lane SET depth = max(depth - 1, 0), holder = nullif(holder, ?2) WHERE lane = ?1
         RETURNING holder IS NULL AND paused = 0",
        params![lane, run.bytes()],
        |row| row.get(0),
    )?;
    if is_free == Some(true) {
        give_lane_to_next_run(tx, &lane)?;
    }
    Ok(())
}

/// Gives the lane to the first run in it that has not ended. The caller must have updated the
/// lane's row in an earlier statement, so that the order of the lane is kept.
pub(crate) fn give_lane_to_next_run(tx: &Tx<'_>, lane: &str) -> Result<()> {
    let next: Option<([u8; 16], i64, Option<i64>)> =
        tx.query_one(SELECT_NEXT_IN_LANE, params![lane], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    let run = next.map(|(run, ..)| run);
    tx.run("UPDATE lane SET holder = ?2 WHERE lane = ?1", params![lane, run])?;
    match next {
        // A paused or parked run holds the lane from now on without becoming ready.
        Some((run, LANE_WAIT, None)) => make_run_ready(tx, RunId::from_bytes(run)),
        Some((run, LANE_WAIT, Some(window))) => {
            start_run_after_message_collect_window(tx, RunId::from_bytes(run), window)
        }
        Some(_) | None => Ok(()),
    }
}

/// Starts a run that collects messages: parks it until no message has arrived for `window_ms`, or
/// makes it ready if that time has passed. The last event of such a run is its last message.
fn start_run_after_message_collect_window(tx: &Tx<'_>, run: RunId, window_ms: i64) -> Result<()> {
    delete_start_timer(tx, run)?;
    let last: Option<i64> = tx.query_one(
        "SELECT j.at FROM run_head h JOIN journal j ON j.run = h.run AND j.seq = h.last_seq
          WHERE h.run = ?1 AND h.epoch = 0",
        params![run.bytes()],
        |row| row.get(0),
    )?;
    let window = Millis(u64::try_from(window_ms).unwrap_or_default());
    // If the clock was set back since the last message, the window begins now.
    let due = last.map(|at| Timestamp::from_micros(at).min(tx.now).plus(window).as_micros());
    let Some(due) = due.filter(|due| *due > tx.now_micros()) else {
        return make_run_ready(tx, run);
    };
    tx.run(
        "UPDATE run_head SET state = ?2, reason = ?3 WHERE run = ?1",
        params![run.bytes(), PARKED, WaitKind::Collect.code()],
    )?;
    // Each due time has a timer of its own, so that a sweep that has read an earlier timer can't
    // start the run.
    let due = Timestamp::from_micros(due);
    let timer = TimerId::derive(run.bits(), WaitKind::Collect.code(), due);
    arm_timer(tx, &ArmedTimer { timer, run, fire_at: due, kind: &TimerKind::Delay(window) })
}

/// Restarts the collect window of a run (the time without new messages after which the run starts),
/// if the run is parked until its window has passed. Called when a message was appended to the run.
pub(crate) fn restart_message_collect_window(tx: &Tx<'_>, run: RunId) -> Result<()> {
    let window_ms = tx.query_one(
        "SELECT r.collect_ms FROM run_head h JOIN run r ON r.id = h.run
          WHERE h.run = ?1 AND h.epoch = 0 AND h.state = ?2 AND h.reason = ?3
            AND r.collect_ms IS NOT NULL",
        params![run.bytes(), PARKED, WaitKind::Collect.code()],
        |row| row.get(0),
    )?;
    window_ms.map_or(Ok(()), |window_ms| start_run_after_message_collect_window(tx, run, window_ms))
}

/// Deletes the timers that start a run which nobody has claimed yet: that of its start time and that
/// of its collect window. The delays of a run that was claimed are its own.
fn delete_start_timer(tx: &Tx<'_>, run: RunId) -> Result<()> {
    tx.exec(
        "DELETE FROM timer WHERE run = ?1 AND (kind = ?2 OR kind LIKE '{\"delay\":%')
            AND EXISTS (SELECT 1 FROM run_head WHERE run = ?1 AND epoch = 0)",
        params![run.bytes(), to_json(&TimerKind::Start)?],
    )
}

/// Returns an error if a new run may not enter the lane: its entry policy requires that the lane is
/// empty, or that no run in it waits for its first claim.
pub(crate) fn check_lane_entry_policy(
    tx: &Tx<'_>,
    lane: &LaneKey,
    entry: LaneEntryPolicy,
) -> Result<(), RowChangeError> {
    if matches!(entry, LaneEntryPolicy::Enqueue | LaneEntryPolicy::Interrupt) {
        return Ok(());
    }
    let last: Option<([u8; 16], bool, Option<[u8; 16]>)> = tx.query_one(
        "SELECT r.id, h.epoch = 0, l.holder
           FROM run r JOIN run_head h ON h.run = r.id JOIN lane l ON l.lane = r.lane
          WHERE r.lane = ?1 AND r.lane_position IS NOT NULL
          ORDER BY r.lane_position DESC LIMIT 1",
        params![lane.as_str()],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    match last {
        Some((last, is_unclaimed, holder)) if entry == LaneEntryPolicy::IfEmpty || is_unclaimed => {
            Err(RowChangeError::Refused(AppendRefusalReason::LaneBusy(BusyLane {
                lane: lane.clone(),
                holder: holder.map(RunId::from_bytes),
                last: RunId::from_bytes(last),
            })))
        }
        Some(_) | None => Ok(()),
    }
}

/// Sets a timer for each run in the lane. The timer cancels the run, because the run `newer`
/// interrupts the lane. The row of `newer` must not exist yet.
///
/// The runs are visited from the newest to the oldest. The visit stops at a run that was never
/// claimed and has its timer already: its position never changes, so all runs before it have got
/// timers, too. So a burst of `n` new runs sets only `n` timers.
pub(crate) fn set_timers_to_cancel_runs_in_lane(
    tx: &Tx<'_>,
    lane: &LaneKey,
    newer: RunId,
) -> Result<()> {
    let kind = TimerKind::LaneInterrupted(newer);
    let mut before = i64::MAX;
    loop {
        let next: Option<([u8; 16], i64, bool)> =
            tx.query_one(SELECT_PREVIOUS_IN_LANE, params![lane.as_str(), before], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let Some((run, position, is_unclaimed)) = next else {
            return Ok(());
        };
        let run = RunId::from_bytes(run);
        let timer = TimerId::derive(run.bits(), "interrupt", Timestamp::from_micros(0));
        if !is_timer_set(tx, timer)? {
            arm_timer(tx, &ArmedTimer { timer, run, fire_at: tx.now, kind: &kind })?;
        } else if is_unclaimed {
            return Ok(());
        }
        before = position;
    }
}

/// Pauses or resumes a lane and returns its row. When a lane is paused, the run that holds it
/// continues if a worker has ever claimed it; otherwise the run loses the lane and waits. A run
/// that is itself paused stays paused.
pub(crate) fn set_lane_paused(tx: &Tx<'_>, lane: &LaneKey, paused: bool) -> Result<LaneRow> {
    tx.run(
        "INSERT INTO lane (lane, holder, depth, next_position, paused) VALUES (?1, NULL, 0, 1, ?2)
         ON CONFLICT (lane) DO UPDATE SET paused = excluded.paused",
        params![lane.as_str(), paused],
    )?;
    let holder: Option<(Option<[u8; 16]>, Option<i64>)> = tx.query_one(
        "SELECT l.holder, h.state FROM lane l
           LEFT JOIN run_head h ON h.run = l.holder AND h.epoch = 0 AND h.state IN (?2, ?3, ?4)
          WHERE l.lane = ?1",
        params![lane.as_str(), READY, PARKED, PAUSED],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    match (holder, paused) {
        (Some((Some(unclaimed), Some(state))), true) => {
            let run = RunId::from_bytes(unclaimed);
            if state != PAUSED {
                remove_run_from_ready_queue(tx, run)?;
                delete_start_timer(tx, run)?;
                make_run_wait_for_lane(tx, run)?;
            }
            tx.run("UPDATE lane SET holder = NULL WHERE lane = ?1", params![lane.as_str()])?;
        }
        (Some((None, _)), false) => give_lane_to_next_run(tx, lane.as_str())?,
        (_, true | false) => {}
    }
    let row = get_lane(tx, lane)?;
    Ok(row.unwrap_or_else(|| LaneRow::empty(lane.clone())))
}

/// Lists lanes in which runs wait although no open run holds the lane, of the lanes after `after`
/// up to and including `last`. An ended root run still holds its lane while any of its descendants
/// is open. Paused lanes are not listed.
pub(crate) fn list_stuck_lanes(tx: &Tx<'_>, (after, last): (&str, &str)) -> Result<Vec<String>> {
    tx.query_all(
        "SELECT l.lane FROM lane l
          WHERE l.lane > ?2 AND l.lane <= ?3 AND l.depth > 0 AND l.paused = 0
            AND NOT EXISTS (SELECT 1 FROM run t JOIN run_head th ON th.run = t.id
                             WHERE t.root = l.holder AND th.state <> ?1)
            AND EXISTS (SELECT 1 FROM run r JOIN run_head h ON h.run = r.id
                         WHERE r.lane = l.lane AND r.lane_position IS NOT NULL
                           AND r.id IS NOT l.holder AND h.state <> ?1)",
        params![ENDED, after, last],
        |row| row.get(0),
    )
}

/// Returns the row of a lane. `None` means that there is no such lane.
pub(crate) fn get_lane(tx: &Tx<'_>, lane: &LaneKey) -> Result<Option<LaneRow>> {
    let sql = "SELECT lane, holder, depth, paused FROM lane WHERE lane = ?1";
    tx.query_one(sql, params![lane.as_str()], read_lane_row)
}

/// Selects lanes that are paused or not empty, ordered by name.
pub(crate) const SELECT_LANES: &str = "SELECT lane, holder, depth, paused FROM lane
      WHERE lane > ?1 AND (depth > 0 OR paused = 1) ORDER BY lane LIMIT ?2";

/// Lists lanes that are paused or not empty, ordered by name, starting after the lane `after`.
pub(crate) fn list_lanes(
    tx: &Tx<'_>,
    after: Option<&LaneKey>,
    count: usize,
) -> Result<Vec<LaneRow>> {
    // No lane name is empty, so all names sort after the empty string.
    let after = after.map_or("", |lane| lane.as_str());
    tx.query_all(SELECT_LANES, params![after, limit_to_column(count)], read_lane_row)
}

fn read_lane_row(row: &Row<'_>) -> Result<LaneRow> {
    let holder: Option<[u8; 16]> = row.get(1)?;
    Ok(LaneRow {
        lane: get_parsed(row, 0)?,
        holder: holder.map(RunId::from_bytes),
        depth: get_u32(row, 2)?,
        paused: row.get(3)?,
    })
}
