//! Lanes: which runs are in a lane, and which of them holds the lane.
//!
//! Invariant: at most one run of a lane is active at a time.

use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::port::records::LaneRow;
use longhaul_core::port::store::RefusalReason;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{ENDED, LANE_WAIT, get_parsed, get_u32, limit_to_column};
use crate::sqlite::error::ChangeError;
use crate::sqlite::queue::make_run_ready;
use crate::sqlite::tx::Tx;

/// Limit on the number of runs in a lane when a run enters it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LaneDepthLimit {
    /// Maximum number of runs in the lane, including the entering run.
    Depth(u32),
    /// No limit, for a run that has been in the lane before.
    Unbounded,
}

/// Position of a run in a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LanePosition {
    /// Number that orders the runs of a lane. Lower numbers come first.
    pub(crate) seq: i64,
    /// Whether the run holds the lane and may start.
    pub(crate) is_head: bool,
}

/// Selects the next run of a lane: the run with the lowest position in the lane among those that
/// have not ended.
pub(crate) const SELECT_NEXT_IN_LANE: &str =
    "SELECT r.id, h.state FROM run r CROSS JOIN run_head h ON h.run = r.id
      WHERE r.lane = ?1 AND r.lane_position IS NOT NULL AND h.state <> 5
      ORDER BY r.lane_position LIMIT 1";

/// Adds a run to the end of a lane and returns its position. The caller must store the position in
/// the run's row, which may not exist yet.
pub(crate) fn enter_lane(
    tx: &Tx<'_>,
    run: RunId,
    lane: &LaneKey,
    bound: LaneDepthLimit,
) -> Result<LanePosition, ChangeError> {
    let depth_max = match bound {
        LaneDepthLimit::Depth(max) => i64::from(max),
        LaneDepthLimit::Unbounded => i64::MAX,
    };
    let full = || ChangeError::Refused(RefusalReason::LaneFull(lane.clone()));
    if depth_max == 0 {
        return Err(full());
    }
    let entered = tx.query_one(
        "INSERT INTO lane (lane, head, depth, next_position) VALUES (?1, ?2, 1, 2)
         ON CONFLICT (lane) DO UPDATE
            SET depth = depth + 1, next_position = next_position + 1,
                head = coalesce(head, excluded.head)
          WHERE depth < ?3
         RETURNING next_position - 1, head",
        params![lane.as_str(), run.bytes(), depth_max],
        |row| {
            let head: [u8; 16] = row.get(1)?;
            Ok(LanePosition { seq: row.get(0)?, is_head: RunId::from_bytes(head) == run })
        },
    )?;
    entered.ok_or_else(full)
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
        "UPDATE lane SET depth = max(depth - 1, 0), head = nullif(head, ?2) WHERE lane = ?1
         RETURNING head IS NULL",
        params![lane, run.bytes()],
        |row| row.get(0),
    )?;
    if is_free == Some(true) {
        promote_next_run(tx, &lane)?;
    }
    Ok(())
}

/// Gives the lane to the first run in it that has not ended. This must be a separate statement
/// after the update of the lane's row, so that the order of the lane is kept.
pub(crate) fn promote_next_run(tx: &Tx<'_>, lane: &str) -> Result<()> {
    let next: Option<([u8; 16], i64)> =
        tx.query_one(SELECT_NEXT_IN_LANE, params![lane], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let run = next.map(|(run, _)| run);
    tx.run("UPDATE lane SET head = ?2 WHERE lane = ?1", params![lane, run])?;
    match next {
        // A paused or parked run holds the lane from now on without becoming ready.
        Some((run, LANE_WAIT)) => make_run_ready(tx, RunId::from_bytes(run)),
        Some(_) | None => Ok(()),
    }
}

/// Lists lanes with waiting runs whose holder has ended. An ended root run still holds its lane
/// while any run of its tree is open.
pub(crate) fn list_stuck_lanes(tx: &Tx<'_>) -> Result<Vec<String>> {
    tx.query_all(
        "SELECT l.lane FROM lane l
          WHERE l.depth > 0
            AND NOT EXISTS (SELECT 1 FROM run t JOIN run_head th ON th.run = t.id
                             WHERE t.root = l.head AND th.state <> ?1)
            AND EXISTS (SELECT 1 FROM run r JOIN run_head h ON h.run = r.id
                         WHERE r.lane = l.lane AND r.lane_position IS NOT NULL
                           AND r.id IS NOT l.head AND h.state <> ?1)",
        params![ENDED],
        |row| row.get(0),
    )
}

/// Returns the row of a lane. `None` means that there is no such lane.
pub(crate) fn get_lane(tx: &Tx<'_>, lane: &LaneKey) -> Result<Option<LaneRow>> {
    let sql = "SELECT lane, head, depth FROM lane WHERE lane = ?1";
    tx.query_one(sql, params![lane.as_str()], lane_row)
}

/// Selects lanes that are not empty, ordered by name.
pub(crate) const SELECT_LANES: &str =
    "SELECT lane, head, depth FROM lane WHERE lane > ?1 AND depth > 0 ORDER BY lane LIMIT ?2";

/// Lists lanes that are not empty, ordered by name, starting after the lane `after`.
pub(crate) fn list_lanes(
    tx: &Tx<'_>,
    after: Option<&LaneKey>,
    count: usize,
) -> Result<Vec<LaneRow>> {
    // No lane name is empty, so all names sort after the empty string.
    let after = after.map_or("", |lane| lane.as_str());
    tx.query_all(SELECT_LANES, params![after, limit_to_column(count)], lane_row)
}

fn lane_row(row: &Row<'_>) -> Result<LaneRow> {
    let head: Option<[u8; 16]> = row.get(1)?;
    Ok(LaneRow {
        lane: get_parsed(row, 0)?,
        head: head.map(RunId::from_bytes),
        depth: get_u32(row, 2)?,
    })
}
