//! Forgets what is past its keep.
//!
//! Never: a run whose tree still goes on, a content that somebody names, or the run
//! that holds the journals' newest row: its place would be given away again.

use longhaul_core::id::RunId;
use longhaul_core::port::store::{PruneAsk, Pruned};
use longhaul_core::time::Timestamp;
use rusqlite::{Result, params};

use crate::sqlite::column::limit;
use crate::sqlite::lane::leave;
use crate::sqlite::tail::newest;
use crate::sqlite::tx::Tx;

/// So many blobs go at once at most, so that nobody waits for long.
const BLOBS_MAX: i64 = 1_000;
/// So many free pages are given back to the disk at once.
const PAGES_MAX: u32 = 1_000;

/// Everything that stands under a run's id, but the run itself.
const FORGET: &[&str] = &[
    "DELETE FROM journal WHERE run = ?1",
    "DELETE FROM blob_ref WHERE run = ?1",
    "DELETE FROM link WHERE gate IN (SELECT id FROM gate WHERE run = ?1)",
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
];

/// Requests that need not be known any more.
const OVER: &[&str] = &[
    "DELETE FROM idem WHERE until <= ?1",
    "DELETE FROM reply WHERE until <= ?1",
];

/// Runs past their keep, the longest past first. Which trees still go on is found
/// out once: asked for each run, a tree of many would be walked as often.
pub(crate) const AGED: &str = "SELECT h.run FROM run_head h CROSS JOIN run r ON r.id = h.run
      WHERE h.finished_at < ?1 AND h.state = 5 AND h.run IS NOT ?3
        AND r.root NOT IN (SELECT t.root
                             FROM run_head th INDEXED BY run_head_open CROSS JOIN run t
                               ON t.id = th.run
                            WHERE th.state <> 5)
      ORDER BY h.finished_at LIMIT ?2";

const UNNAMED: &str = "SELECT b.hash FROM blob b
      WHERE b.touched_at < ?1 AND NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.hash = b.hash)
      LIMIT ?2";

/// What may go. Looked for beside the writer, which would keep everybody waiting.
#[derive(Debug)]
pub(crate) struct Old {
    runs: Vec<RunId>,
    blobs: Vec<[u8; 32]>,
}

/// Looks for what may go.
pub(crate) fn find(tx: &Tx<'_>, ask: PruneAsk) -> Result<Old> {
    let runs_before = before(tx.now, ask.runs_older.0);
    let blobs_before = before(tx.now, ask.blobs_older.0);
    let newest = newest(tx)?.map(RunId::bytes);
    Ok(Old {
        runs: tx.all(
            AGED,
            params![runs_before, limit(ask.limit), newest],
            |row| row.get(0).map(RunId::from_bytes),
        )?,
        blobs: tx.all(UNNAMED, params![blobs_before, BLOBS_MAX], |row| row.get(0))?,
    })
}

/// Forgets old runs, contents without a name, and keys that are over. A tree that
/// has ended stays so; a content may have been named since it was found, and what
/// was newer than a run may have been forgotten by somebody else.
pub(crate) fn prune(tx: &Tx<'_>, ask: PruneAsk, old: &Old) -> Result<Pruned> {
    let mut pruned = Pruned::default();
    let mut blobs = old.blobs.clone();
    let newest = newest(tx)?;
    for run in old.runs.iter().filter(|run| Some(**run) != newest) {
        leave(tx, *run)?;
        // What only this run named goes with it.
        let named = "SELECT hash FROM blob_ref WHERE run = ?1";
        blobs.extend(tx.all(named, params![run.bytes()], |row| row.get::<_, [u8; 32]>(0))?);
        for sql in FORGET {
            tx.run(sql, params![run.bytes()])?;
        }
        // Whoever prunes at the same time may have been faster.
        let sql = "DELETE FROM run WHERE id = ?1";
        pruned.runs += tx.run(sql, params![run.bytes()])?;
    }
    for sql in OVER {
        pruned.keys += tx.run(sql, params![tx.now_micros()])?;
    }
    tx.run("DELETE FROM lane WHERE depth = 0", ())?;
    for hash in &blobs {
        pruned.blobs += tx.run(
            "DELETE FROM blob WHERE hash = ?1 AND touched_at < ?2
                AND NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.hash = ?1)",
            params![hash, before(tx.now, ask.blobs_older.0)],
        )?;
    }
    if pruned.runs > 0 || pruned.blobs > 0 {
        let sql = format!("PRAGMA incremental_vacuum({PAGES_MAX})");
        tx.all(&sql, (), |_| Ok(()))?;
    }
    Ok(pruned)
}

/// What happened before this point is older than `millis`.
fn before(now: Timestamp, millis: u64) -> i64 {
    let micros = i64::try_from(millis.saturating_mul(1_000)).unwrap_or(i64::MAX);
    now.as_micros().saturating_sub(micros)
}
