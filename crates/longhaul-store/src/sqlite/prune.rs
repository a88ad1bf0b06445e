//! Forgets what is past its keep.
//!
//! Never: a run whose tree still goes on, or a content that somebody names.

use longhaul_core::id::RunId;
use longhaul_core::port::store::{PruneAsk, Pruned};
use longhaul_core::time::Timestamp;
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, limit};
use crate::sqlite::lane::leave;
use crate::sqlite::tx::Tx;

/// So many blobs go at once at most, so that nobody waits for long.
const BLOBS_MAX: i64 = 1_000;
/// So many free pages are given back to the disk at once.
const PAGES_MAX: u32 = 1_000;

/// Everything that stands under a run's id.
const FORGET: &[&str] = &[
    "DELETE FROM journal WHERE run = ?1",
    "DELETE FROM blob_ref WHERE run = ?1",
    "DELETE FROM gate WHERE run = ?1",
    "DELETE FROM rule WHERE run = ?1",
    "DELETE FROM timer WHERE run = ?1",
    "DELETE FROM steer WHERE run = ?1",
    "DELETE FROM seat_wait WHERE run = ?1",
    "DELETE FROM budget WHERE root = ?1",
    "DELETE FROM effect WHERE run = ?1",
    "DELETE FROM usage WHERE run = ?1",
    "DELETE FROM outbox WHERE run = ?1",
    "DELETE FROM checkpoint WHERE run = ?1",
    "DELETE FROM sandbox WHERE owner = ?1",
    "DELETE FROM ready WHERE run = ?1",
    "DELETE FROM run_head WHERE run = ?1",
    "DELETE FROM run WHERE id = ?1",
];

/// Forgets old runs, contents without a name, and keys that are over.
pub(crate) fn prune(tx: &Tx<'_>, ask: PruneAsk) -> Result<Pruned> {
    let runs = aged(tx, ask)?;
    for run in &runs {
        leave(tx, *run)?;
        for sql in FORGET {
            tx.run(sql, params![run.bytes()])?;
        }
    }
    let keys = tx.run(
        "DELETE FROM idem WHERE until <= ?1",
        params![tx.now_micros()],
    )?;
    tx.run("DELETE FROM lane WHERE depth = 0", ())?;
    let blobs = tx.run(
        "DELETE FROM blob WHERE rowid IN
           (SELECT b.rowid FROM blob b
             WHERE b.touched_at < ?1
               AND NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.hash = b.hash)
             LIMIT ?2)",
        params![before(tx.now, ask.blobs_older.0), BLOBS_MAX],
    )?;
    if !runs.is_empty() || blobs > 0 {
        let sql = format!("PRAGMA incremental_vacuum({PAGES_MAX})");
        tx.all(&sql, (), |_| Ok(()))?;
    }
    Ok(Pruned {
        runs: runs.len(),
        blobs,
        keys,
    })
}

fn aged(tx: &Tx<'_>, ask: PruneAsk) -> Result<Vec<RunId>> {
    tx.all(
        "SELECT h.run FROM run_head h CROSS JOIN run r ON r.id = h.run
          WHERE h.finished_at < ?1 AND h.state = ?2
            AND NOT EXISTS (SELECT 1 FROM run t CROSS JOIN run_head th ON th.run = t.id
                             WHERE t.root = r.root AND th.state <> ?2)
          ORDER BY h.finished_at LIMIT ?3",
        params![before(tx.now, ask.runs_older.0), ENDED, limit(ask.limit)],
        |row| row.get(0).map(RunId::from_bytes),
    )
}

/// What happened before this point is older than `millis`.
fn before(now: Timestamp, millis: u64) -> i64 {
    let micros = i64::try_from(millis.saturating_mul(1_000)).unwrap_or(i64::MAX);
    now.as_micros().saturating_sub(micros)
}
