//! Signs of life, and freeing the runs of workers that give none.
//!
//! Never: takes a run from a worker because we ourselves were away. Whoever was
//! silent can't tell the silent from the dead until it has been in touch for a ttl.
//!
//! A heartbeat from the future was written before the wall clock was set back. More
//! than a ttl ahead it is as stale as one that is too old.

use longhaul_core::id::{RunId, Seq, WorkerId};
use longhaul_core::port::shelves::WorkerRow;
use longhaul_core::port::store::{Beat, Renewed, Standing};
use longhaul_core::time::{Millis, Timestamp};
use rusqlite::{Result, params};

use crate::sqlite::column::{LEASED, READY, from_standing, int, nat, standing, time};
use crate::sqlite::fault::Fault;
use crate::sqlite::tx::Tx;
use crate::sqlite::work::Done;

/// So long at most is a ttl counted as: longer ones would not fit a column.
const TTL_MAX: Millis = Millis(1 << 40);

/// Notes a sign of life and, after one ttl in touch, frees the runs of the dead.
pub(crate) fn renew(tx: &Tx<'_>, beat: &Beat) -> Result<Done<Renewed>, Fault> {
    let ttl = beat.ttl.min(TTL_MAX);
    let before = Before::of(tx, beat.worker)?;
    let answer = |standing, reaped| Renewed {
        standing,
        reaped,
        now: tx.now,
    };
    if before
        .as_ref()
        .is_some_and(|before| before.standing == Standing::Dead)
    {
        return Ok(Done::Quiet(answer(Standing::Dead, 0)));
    }
    let is_new = before.is_none();
    let in_touch_since = before
        .filter(|before| before.beat_at.is_within(before.ttl, tx.now))
        .map_or(tx.now, |before| before.in_touch_since);
    let standing = if beat.draining {
        Standing::Draining
    } else {
        Standing::Live
    };
    tx.run(
        "INSERT INTO worker (id, host, build, state, ttl_ms, beat_at, in_touch_since)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (id) DO UPDATE
            SET host = excluded.host, build = excluded.build, state = excluded.state,
                ttl_ms = excluded.ttl_ms, beat_at = excluded.beat_at,
                in_touch_since = excluded.in_touch_since",
        params![
            beat.worker.bytes(),
            beat.host,
            beat.build,
            from_standing(standing),
            int(ttl.0),
            tx.now_micros(),
            in_touch_since.as_micros()
        ],
    )?;
    let may_reap = in_touch_since.plus(ttl) <= tx.now;
    let reaped = if may_reap { reap(tx)? } else { 0 };
    let renewed = answer(standing, reaped);
    Ok(if is_new || reaped > 0 {
        Done::Kept(renewed)
    } else {
        Done::Quiet(renewed)
    })
}

/// Buries the silent and frees what the dead held. Can be said again and again.
fn reap(tx: &Tx<'_>) -> Result<usize> {
    let dead = from_standing(Standing::Dead);
    tx.run(
        "UPDATE worker SET state = ?1 WHERE state <> ?1 AND abs(beat_at - ?2) > ttl_ms * 1000",
        params![dead, tx.now_micros()],
    )?;
    tx.run(
        "INSERT OR IGNORE INTO ready (inbox, rank, pass, run, kind)
         SELECT r.inbox, -r.priority, 0, r.id, r.kind
           FROM run_head h JOIN run r ON r.id = h.run
          WHERE h.state = ?1 AND h.worker IS NOT NULL
            AND h.worker NOT IN (SELECT id FROM worker WHERE state <> ?2)",
        params![LEASED, dead],
    )?;
    tx.run(
        "UPDATE run_head SET state = ?3, worker = NULL
          WHERE state = ?1 AND worker IS NOT NULL
            AND worker NOT IN (SELECT id FROM worker WHERE state <> ?2)",
        params![LEASED, dead, READY],
    )
}

struct Before {
    standing: Standing,
    ttl: Millis,
    beat_at: Timestamp,
    in_touch_since: Timestamp,
}

impl Before {
    fn of(tx: &Tx<'_>, worker: WorkerId) -> Result<Option<Self>> {
        tx.one(
            "SELECT state, ttl_ms, beat_at, in_touch_since FROM worker WHERE id = ?1",
            params![worker.bytes()],
            |row| {
                Ok(Self {
                    standing: standing(row, 0)?,
                    ttl: Millis(nat(row, 1)?),
                    beat_at: time(row, 2)?,
                    in_touch_since: time(row, 3)?,
                })
            },
        )
    }
}

/// The runs in a worker's hands.
pub(crate) fn heads(tx: &Tx<'_>, worker: WorkerId) -> Result<Vec<(RunId, Seq)>> {
    tx.all(
        "SELECT run, last FROM run_head WHERE worker = ?1 AND state = ?2 ORDER BY run",
        params![worker.bytes(), LEASED],
        |row| Ok((RunId::from_bytes(row.get(0)?), Seq(nat(row, 1)?))),
    )
}

/// The workers that are known.
pub(crate) fn workers(tx: &Tx<'_>) -> Result<Vec<WorkerRow>> {
    tx.all(
        "SELECT w.id, w.host, w.build, w.state, w.beat_at, w.ttl_ms,
                (SELECT count(*) FROM run_head h WHERE h.worker = w.id AND h.state = ?1)
           FROM worker w ORDER BY w.id",
        params![LEASED],
        |row| {
            Ok(WorkerRow {
                worker: WorkerId::from_bytes(row.get(0)?),
                host: row.get(1)?,
                build: row.get(2)?,
                standing: standing(row, 3)?,
                beat_at: time(row, 4)?,
                ttl: Millis(nat(row, 5)?),
                runs: nat(row, 6)?,
            })
        },
    )
}
