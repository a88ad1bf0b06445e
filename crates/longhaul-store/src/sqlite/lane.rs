//! Lanes: who is in one, and whose turn it is.
//!
//! Never: two runs of a lane that may go at once.

use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::port::records::LaneRow;
use longhaul_core::port::store::Refused;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{ENDED, LANE_WAIT, get_u32, limit, name};
use crate::sqlite::error::ChangeError;
use crate::sqlite::queue::make_ready;
use crate::sqlite::tx::Tx;

/// Whether a lane may turn a run away.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DepthLimit {
    /// It may not be longer than this with the run in it.
    Depth(u32),
    /// A run that was let in once is let in again.
    Unbounded,
}

/// A place in a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LanePosition {
    /// Its number.
    pub(crate) seq: i64,
    /// The lane is the run's own: it may go.
    pub(crate) is_head: bool,
}

/// Finds the next of a lane: smallest number first, whoever ended passed over.
pub(crate) const SELECT_NEXT: &str =
    "SELECT r.id, h.state FROM run r CROSS JOIN run_head h ON h.run = r.id
      WHERE r.lane = ?1 AND r.lane_position IS NOT NULL AND h.state <> 5
      ORDER BY r.lane_position LIMIT 1";

/// Gives a run the next place of a lane. The run's row must then be given the
/// number; it may not be there yet.
pub(crate) fn enter(
    tx: &Tx<'_>,
    run: RunId,
    lane: &LaneKey,
    bound: DepthLimit,
) -> Result<LanePosition, ChangeError> {
    let depth_max = match bound {
        DepthLimit::Depth(max) => i64::from(max),
        DepthLimit::Unbounded => i64::MAX,
    };
    let full = || ChangeError::Refused(Refused::LaneFull(lane.clone()));
    if depth_max == 0 {
        return Err(full());
    }
    let entered = tx.one(
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

/// Writes a run's place down.
pub(crate) fn set_position(tx: &Tx<'_>, run: RunId, seq: i64) -> Result<()> {
    tx.exec("UPDATE run SET lane_position = ?2 WHERE id = ?1", params![run.bytes(), seq])
}

/// A run gives its place up; the next one goes if it held the lane.
pub(crate) fn leave(tx: &Tx<'_>, run: RunId) -> Result<()> {
    let lane: Option<String> = tx.one(
        "UPDATE run SET lane_position = NULL WHERE id = ?1 AND lane_position IS NOT NULL
         RETURNING lane",
        params![run.bytes()],
        |row| row.get(0),
    )?;
    let Some(lane) = lane else {
        return Ok(());
    };
    let is_free = tx.one(
        "UPDATE lane SET depth = max(depth - 1, 0), head = nullif(head, ?2) WHERE lane = ?1
         RETURNING head IS NULL",
        params![lane, run.bytes()],
        |row| row.get(0),
    )?;
    if is_free == Some(true) {
        promote(tx, &lane)?;
    }
    Ok(())
}

/// Gives the lane to the first who is in it and has not ended. A statement of its
/// own, after the lane's row was changed: the order of a lane depends on it.
pub(crate) fn promote(tx: &Tx<'_>, lane: &str) -> Result<()> {
    let next: Option<([u8; 16], i64)> =
        tx.one(SELECT_NEXT, params![lane], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let run = next.map(|(run, _)| run);
    tx.run("UPDATE lane SET head = ?2 WHERE lane = ?1", params![lane, run])?;
    match next {
        // Whoever is paused or parked has the lane now, and rests in it.
        Some((run, LANE_WAIT)) => make_ready(tx, RunId::from_bytes(run)),
        Some(_) | None => Ok(()),
    }
}

/// Lanes that are held by nobody who lives while others wait in them. A root that
/// has ended holds its lane as long as a run of its tree goes on.
pub(crate) fn stuck_lanes(tx: &Tx<'_>) -> Result<Vec<String>> {
    tx.all(
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

/// One lane.
pub(crate) fn lane(tx: &Tx<'_>, lane: &LaneKey) -> Result<Option<LaneRow>> {
    let sql = "SELECT lane, head, depth FROM lane WHERE lane = ?1";
    tx.one(sql, params![lane.as_str()], lane_row)
}

/// Lanes with anybody in them, in the order of their names.
pub(crate) const SELECT_LANES: &str =
    "SELECT lane, head, depth FROM lane WHERE lane > ?1 AND depth > 0 ORDER BY lane LIMIT ?2";

/// Lanes with anybody in them, in the order of their names, after one of them.
pub(crate) fn lanes(tx: &Tx<'_>, after: Option<&LaneKey>, count: usize) -> Result<Vec<LaneRow>> {
    // No name is empty: all of them come after that.
    let after = after.map_or("", |lane| lane.as_str());
    tx.all(SELECT_LANES, params![after, limit(count)], lane_row)
}

fn lane_row(row: &Row<'_>) -> Result<LaneRow> {
    let head: Option<[u8; 16]> = row.get(1)?;
    Ok(LaneRow { lane: name(row, 0)?, head: head.map(RunId::from_bytes), depth: get_u32(row, 2)? })
}
