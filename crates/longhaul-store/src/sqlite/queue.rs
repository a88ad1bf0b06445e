//! The ready queue, which contains the runs that a worker may claim now.

use longhaul_core::id::RunId;
use rusqlite::{Result, params};

use crate::sqlite::column::{LANE_WAIT, READY};
use crate::sqlite::tx::Tx;

/// Makes a run ready and adds it to the ready queue, so that any worker may claim it.
pub(crate) fn make_run_ready(tx: &Tx<'_>, run: RunId) -> Result<()> {
    set_scheduling_state(tx, run, READY)?;
    tx.exec(
        "INSERT OR IGNORE INTO ready (inbox, rank, sort_key, run, kind)
         SELECT inbox, -priority, 0, id, kind FROM run WHERE id = ?1",
        params![run.bytes()],
    )
}

/// Makes a run wait for its turn in its lane.
pub(crate) fn make_run_wait_for_lane(tx: &Tx<'_>, run: RunId) -> Result<()> {
    set_scheduling_state(tx, run, LANE_WAIT)
}

/// Removes a run from the ready queue.
pub(crate) fn remove_run_from_queue(tx: &Tx<'_>, run: RunId) -> Result<()> {
    tx.exec("DELETE FROM ready WHERE run = ?1", params![run.bytes()])
}

fn set_scheduling_state(tx: &Tx<'_>, run: RunId, state: i64) -> Result<()> {
    tx.exec(
        "UPDATE run_head SET state = ?2, worker = NULL, reason = NULL, blocked = 0 WHERE run = ?1",
        params![run.bytes(), state],
    )
}
