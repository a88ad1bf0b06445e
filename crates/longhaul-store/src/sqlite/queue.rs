//! The queue: a run stands in it as long as any worker may take it.
//!
//! Never: decides whose turn it is. Lanes and wakes do that.

use longhaul_core::id::RunId;
use rusqlite::{Result, params};

use crate::sqlite::column::{LANE_WAIT, READY};
use crate::sqlite::tx::Tx;

/// A run may be taken by any worker.
pub(crate) fn make_ready(tx: &Tx<'_>, run: RunId) -> Result<()> {
    set_state(tx, run, READY)?;
    tx.exec(
        "INSERT OR IGNORE INTO ready (inbox, rank, sort_key, run, kind)
         SELECT inbox, -priority, 0, id, kind FROM run WHERE id = ?1",
        params![run.bytes()],
    )
}

/// A run waits for its lane.
pub(crate) fn make_lane_wait(tx: &Tx<'_>, run: RunId) -> Result<()> {
    set_state(tx, run, LANE_WAIT)
}

/// Nobody may take it any more.
pub(crate) fn remove(tx: &Tx<'_>, run: RunId) -> Result<()> {
    tx.exec("DELETE FROM ready WHERE run = ?1", params![run.bytes()])
}

fn set_state(tx: &Tx<'_>, run: RunId, state: i64) -> Result<()> {
    tx.exec(
        "UPDATE run_head SET state = ?2, worker = NULL, reason = NULL, blocked = 0 WHERE run = ?1",
        params![run.bytes(), state],
    )
}
