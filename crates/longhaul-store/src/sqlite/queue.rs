//! The ready queue, which contains the runs that a worker may claim now.

use longhaul_core::id::RunId;
use longhaul_core::port::store::WorkerLiveness;
use rusqlite::{Connection, Result, params};

use crate::sqlite::column::{LANE_WAIT, LEASED, READY, liveness_code};
use crate::sqlite::tx::Tx;

/// Start of the statement that adds runs to the ready queue. A condition on the run's id follows.
const INSERT_READY: &str = "INSERT OR IGNORE INTO ready (inbox, rank, sort_key, run, kind)
     SELECT inbox, -priority, 0, id, kind FROM run WHERE id";

/// Makes a run ready and adds it to the ready queue, so that any worker may claim it.
pub(crate) fn make_run_ready(tx: &Tx<'_>, run: RunId) -> Result<()> {
    set_scheduling_state(tx, run, READY)?;
    add_run_to_ready_queue(tx, run)
}

/// Adds a run whose state is ready to the ready queue.
pub(crate) fn add_run_to_ready_queue(tx: &Tx<'_>, run: RunId) -> Result<()> {
    let insert_sql = format!("{INSERT_READY} = ?1");
    tx.exec(&insert_sql, params![run.bytes()])
}

/// Makes the claimed runs of dead workers ready, and returns their number.
pub(crate) fn release_runs_of_dead_workers(conn: &Connection) -> Result<usize> {
    let dead_worker_condition = "state = ?1 AND worker IS NOT NULL
        AND worker NOT IN (SELECT id FROM worker WHERE liveness <> ?2)";
    let dead = liveness_code(WorkerLiveness::Dead);
    let insert_sql =
        format!("{INSERT_READY} IN (SELECT run FROM run_head WHERE {dead_worker_condition})");
    conn.prepare_cached(&insert_sql)?.execute(params![LEASED, dead])?;
    let release_sql =
        format!("UPDATE run_head SET state = ?3, worker = NULL WHERE {dead_worker_condition}");
    conn.prepare_cached(&release_sql)?.execute(params![LEASED, dead, READY])
}

/// Makes a run wait for its turn in its lane.
pub(crate) fn make_run_wait_for_lane(tx: &Tx<'_>, run: RunId) -> Result<()> {
    set_scheduling_state(tx, run, LANE_WAIT)
}

pub(crate) fn remove_run_from_ready_queue(tx: &Tx<'_>, run: RunId) -> Result<()> {
    tx.exec("DELETE FROM ready WHERE run = ?1", params![run.bytes()])
}

fn set_scheduling_state(tx: &Tx<'_>, run: RunId, state: i64) -> Result<()> {
    tx.exec(
        "UPDATE run_head SET state = ?2, worker = NULL, reason = NULL, blocked = 0 WHERE run = ?1",
        params![run.bytes(), state],
    )
}
