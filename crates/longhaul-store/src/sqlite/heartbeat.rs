//! Heartbeats of workers, and releasing the runs of dead workers.
//!
//! Invariant: a worker is not declared dead because this process itself was interrupted. A worker
//! that has missed its own heartbeats releases the runs of other workers only after it has sent
//! heartbeats in time again for one ttl (the time after which a silent worker counts as dead).
//!
//! A heartbeat time in the future was written before the wall clock was set back. If it is more
//! than one ttl ahead, the worker counts as dead, as if its heartbeat were too old.

use longhaul_core::id::{RunId, Seq, WorkerId};
use longhaul_core::port::records::WorkerRow;
use longhaul_core::port::store::{Heartbeat, HeartbeatAck, WorkerLiveness};
use longhaul_core::time::{Millis, Timestamp};
use rusqlite::{Result, params};

use crate::sqlite::column::{
    LEASED, count_to_column, get_json, get_time, get_u64, get_worker_liveness, liveness_code,
    to_json,
};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::WriteCommandError;
use crate::sqlite::queue::release_runs_of_dead_workers;
use crate::sqlite::tx::Tx;

/// Maximum ttl, the time after which a silent worker counts as dead. Larger values would not fit
/// into a column.
const TTL_MAX: Millis = Millis(1 << 40);

/// Records a heartbeat. If the worker has sent its heartbeats in time for one ttl, also releases
/// the runs of dead workers.
pub(crate) fn record_heartbeat(
    tx: &Tx<'_>,
    heartbeat: &Heartbeat,
) -> Result<CommandOutcome<HeartbeatAck>, WriteCommandError> {
    let ttl = heartbeat.ttl.min(TTL_MAX);
    let before = WorkerState::load_worker_state(tx, heartbeat.worker)?;
    let answer = |liveness, reaped| HeartbeatAck { liveness, reaped, now: tx.now };
    if before.as_ref().is_some_and(|before| before.liveness == WorkerLiveness::Dead) {
        return Ok(CommandOutcome::Silent(answer(WorkerLiveness::Dead, 0)));
    }
    let is_new = before.is_none();
    let connected_since = before
        .filter(|before| before.heartbeat_at.is_within(before.ttl, tx.now))
        .map_or(tx.now, |before| before.connected_since);
    let liveness = if heartbeat.draining { WorkerLiveness::Draining } else { WorkerLiveness::Live };
    tx.run(
        "INSERT INTO worker (id, host, build, liveness, ttl_ms, heartbeat_at, connected_since,
                             inboxes, types)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (id) DO UPDATE
            SET host = excluded.host, build = excluded.build, liveness = excluded.liveness,
                inboxes = excluded.inboxes, types = excluded.types, ttl_ms = excluded.ttl_ms, heartbeat_at = excluded.heartbeat_at,
                connected_since = excluded.connected_since",
        params![
            heartbeat.worker.bytes(),
            heartbeat.host,
            heartbeat.build,
            liveness_code(liveness),
            count_to_column(ttl.0),
            tx.now_micros(),
            connected_since.as_micros(),
            to_json(&heartbeat.inboxes)?,
            to_json(&heartbeat.types)?
        ],
    )?;
    let may_reap = connected_since.plus(ttl) <= tx.now;
    let reaped = if may_reap { mark_dead_workers_and_release_runs(tx)? } else { 0 };
    let ack = answer(liveness, reaped);
    Ok(if is_new || reaped > 0 {
        CommandOutcome::Changed(ack)
    } else {
        CommandOutcome::Silent(ack)
    })
}

/// Marks silent workers as dead and releases the runs of dead workers. Returns the number of
/// released runs. Can be repeated safely.
fn mark_dead_workers_and_release_runs(tx: &Tx<'_>) -> Result<usize> {
    let dead = liveness_code(WorkerLiveness::Dead);
    tx.run(
        "UPDATE worker SET liveness = ?1
          WHERE liveness <> ?1 AND abs(heartbeat_at - ?2) > ttl_ms * 1000",
        params![dead, tx.now_micros()],
    )?;
    release_runs_of_dead_workers(tx.conn)
}

/// The columns of a worker's row that are needed to handle its next heartbeat.
struct WorkerState {
    liveness: WorkerLiveness,
    ttl: Millis,
    heartbeat_at: Timestamp,
    connected_since: Timestamp,
}

impl WorkerState {
    fn load_worker_state(tx: &Tx<'_>, worker: WorkerId) -> Result<Option<Self>> {
        tx.query_one(
            "SELECT liveness, ttl_ms, heartbeat_at, connected_since FROM worker WHERE id = ?1",
            params![worker.bytes()],
            |row| {
                Ok(Self {
                    liveness: get_worker_liveness(row, 0)?,
                    ttl: Millis(get_u64(row, 1)?),
                    heartbeat_at: get_time(row, 2)?,
                    connected_since: get_time(row, 3)?,
                })
            },
        )
    }
}

/// Lists the runs claimed by a worker, each with the sequence number of the last event in its
/// journal.
pub(crate) fn claimed_runs_with_last_seq(
    tx: &Tx<'_>,
    worker: WorkerId,
) -> Result<Vec<(RunId, Seq)>> {
    tx.query_all(
        "SELECT run, last_seq FROM run_head WHERE worker = ?1 AND state = ?2 ORDER BY run",
        params![worker.bytes(), LEASED],
        |row| Ok((RunId::from_bytes(row.get(0)?), Seq(get_u64(row, 1)?))),
    )
}

/// Selects the workers that are not dead. The condition must equal that of the partial index, so
/// that SQLite uses the index.
pub(crate) const SELECT_WORKERS: &str =
    "SELECT w.id, w.host, w.build, w.liveness, w.heartbeat_at, w.ttl_ms,
            (SELECT count(*) FROM run_head h WHERE h.worker = w.id AND h.state = ?1),
            w.inboxes, w.types
       FROM worker w WHERE w.liveness <> 2 ORDER BY w.id";

/// Lists the workers that are not dead.
pub(crate) fn list_workers(tx: &Tx<'_>) -> Result<Vec<WorkerRow>> {
    tx.query_all(SELECT_WORKERS, params![LEASED], |row| {
        Ok(WorkerRow {
            worker: WorkerId::from_bytes(row.get(0)?),
            host: row.get(1)?,
            build: row.get(2)?,
            liveness: get_worker_liveness(row, 3)?,
            heartbeat_at: get_time(row, 4)?,
            ttl: Millis(get_u64(row, 5)?),
            runs: get_u64(row, 6)?,
            inboxes: get_json(row, 7)?,
            types: get_json(row, 8)?,
        })
    })
}
