//! Forgets what is past its keep.
//!
//! Never: a run whose tree still goes on, a content that somebody names, or the run
//! that holds the journals' newest row: its place would be given away again.

use longhaul_core::id::RunId;
use longhaul_core::port::store::{PruneOutcome, PruneRequest};
use longhaul_core::time::Timestamp;
use rusqlite::{Result, params};

use crate::sqlite::column::{get_u64, int, limit};
use crate::sqlite::global_log::last_written_run;
use crate::sqlite::lane::leave;
use crate::sqlite::tx::Tx;

/// Maximum number of rows that one transaction deletes of each kind, so that appends
/// never wait for long.
pub(crate) const ROWS_MAX: u64 = 1_000;
/// Rows of a run beside its journal, as far as they count for the bound above.
const OTHER_ROWS_PER_RUN: u64 = 20;
/// So many free pages are given back to the disk at once.
const PAGES_MAX: u32 = 1_000;

/// Everything that stands under a run's id, but the run itself.
const DELETE_RUN_ROWS: &[&str] = &[
    "DELETE FROM journal WHERE run = ?1",
    "DELETE FROM blob_ref WHERE run = ?1",
    "DELETE FROM gate_link WHERE gate IN (SELECT id FROM gate WHERE run = ?1)",
    "DELETE FROM gate WHERE run = ?1",
    "DELETE FROM rule WHERE run = ?1",
    "DELETE FROM timer WHERE run = ?1",
    "DELETE FROM steer WHERE run = ?1",
    "DELETE FROM sandbox_slot_wait WHERE run = ?1",
    "DELETE FROM budget WHERE root = ?1",
    "DELETE FROM late_result WHERE run = ?1",
    "DELETE FROM usage WHERE run = ?1",
    "DELETE FROM outbox WHERE run = ?1",
    "DELETE FROM checkpoint WHERE run = ?1",
    "DELETE FROM sandbox WHERE owner = ?1",
    "DELETE FROM ready WHERE run = ?1",
    "DELETE FROM run_head WHERE run = ?1",
];

/// Requests that need not be known any more.
const DELETE_EXPIRED_REQUESTS: &[&str] = &[
    "DELETE FROM submit_key WHERE rowid IN
      (SELECT rowid FROM submit_key WHERE expires_at <= ?1 LIMIT ?2)",
    "DELETE FROM idempotent_request WHERE rowid IN
      (SELECT rowid FROM idempotent_request WHERE expires_at <= ?1 LIMIT ?2)",
];

/// Runs past their keep, the longest past first. Which trees still go on is found
/// out once: asked for each run, a tree of many would be walked as often.
pub(crate) const SELECT_EXPIRED_RUNS: &str =
    "SELECT h.run, h.last_seq FROM run_head h CROSS JOIN run r ON r.id = h.run
      WHERE h.finished_at < ?1 AND h.state = 5 AND h.run IS NOT ?3
        AND r.root NOT IN (SELECT t.root
                             FROM run_head th INDEXED BY run_head_open CROSS JOIN run t
                               ON t.id = th.run
                            WHERE th.state <> 5)
      ORDER BY h.finished_at LIMIT ?2";

const SELECT_UNREFERENCED_BLOBS: &str = "SELECT b.hash FROM blob b
      WHERE b.touched_at < ?1 AND NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.hash = b.hash)
      LIMIT ?2";

/// What one transaction forgets.
#[derive(Debug)]
pub(crate) enum PruneStep {
    /// The beginning of a journal that is too long for one transaction, up to this event.
    Journal(RunId, u64),
    /// Some of the contents that a long run names.
    Blobs(RunId),
    /// Whole runs.
    Runs(Vec<RunId>),
    /// Contents without a name.
    UnreferencedBlobs(Vec<[u8; 32]>),
    /// Requests that are over, and lanes without runs.
    ExpiredRequests,
    /// Free pages.
    Pages,
}

/// Looks for what may go, beside the writer, which would keep everybody waiting.
/// Contents without a name are looked for only when no more runs are found: that look
/// goes through all old contents.
pub(crate) fn plan_steps(tx: &Tx<'_>, ask: PruneRequest) -> Result<Vec<PruneStep>> {
    let runs_before = cutoff_micros(tx.now, ask.runs_older_than.0);
    let newest = last_written_run(tx)?.map(RunId::bytes);
    let runs =
        tx.all(SELECT_EXPIRED_RUNS, params![runs_before, limit(ask.limit), newest], |row| {
            Ok((RunId::from_bytes(row.get(0)?), get_u64(row, 1)?))
        })?;
    let mut steps = Vec::new();
    if runs.len() < ask.limit {
        let old = cutoff_micros(tx.now, ask.blobs_older_than.0);
        let blobs =
            tx.all(SELECT_UNREFERENCED_BLOBS, params![old, int(ROWS_MAX)], |row| row.get(0))?;
        if !blobs.is_empty() {
            steps.push(PruneStep::UnreferencedBlobs(blobs));
        }
    }
    let (mut group, mut rows) = (Vec::new(), 0);
    for (run, last) in runs {
        if last > ROWS_MAX {
            let cuts = (ROWS_MAX..last).step_by(ROWS_MAX as usize);
            steps.extend(cuts.map(|upto| PruneStep::Journal(run, upto)));
            steps.extend((0..last / ROWS_MAX).map(|_| PruneStep::Blobs(run)));
        }
        rows += last.min(ROWS_MAX) + OTHER_ROWS_PER_RUN;
        group.push(run);
        if rows >= ROWS_MAX {
            steps.push(PruneStep::Runs(std::mem::take(&mut group)));
            rows = 0;
        }
    }
    steps.extend((!group.is_empty()).then_some(PruneStep::Runs(group)));
    if !steps.is_empty() {
        steps.push(PruneStep::Pages);
    }
    steps.push(PruneStep::ExpiredRequests);
    Ok(steps)
}

/// Takes one step. A tree that has ended stays so; a content may have been named since
/// it was found, and what was newer than a run may have been forgotten by somebody else.
pub(crate) fn run_step(tx: &Tx<'_>, ask: PruneRequest, step: &PruneStep) -> Result<PruneOutcome> {
    let mut pruned = PruneOutcome::default();
    let blobs_before = cutoff_micros(tx.now, ask.blobs_older_than.0);
    match step {
        PruneStep::Journal(run, upto) => {
            let sql = "DELETE FROM journal WHERE run = ?1 AND seq <= ?2 AND seq > ?3";
            let from = int(upto.saturating_sub(ROWS_MAX));
            tx.run(sql, params![run.bytes(), int(*upto), from])?;
        }
        PruneStep::Blobs(run) => {
            let blobs = referenced_blobs(tx, *run)?;
            for hash in &blobs {
                let sql = "DELETE FROM blob_ref WHERE run = ?1 AND hash = ?2";
                tx.run(sql, params![run.bytes(), hash])?;
            }
            pruned.blobs = delete_blobs(tx, &blobs, blobs_before)?;
        }
        PruneStep::Runs(runs) => {
            let newest = last_written_run(tx)?;
            for run in runs.iter().filter(|run| Some(**run) != newest) {
                delete_run(tx, *run, blobs_before, &mut pruned)?;
            }
        }
        PruneStep::UnreferencedBlobs(blobs) => {
            pruned.blobs = delete_blobs(tx, blobs, blobs_before)?
        }
        PruneStep::ExpiredRequests => {
            for sql in DELETE_EXPIRED_REQUESTS {
                pruned.idempotency_keys += tx.run(sql, params![tx.now_micros(), int(ROWS_MAX)])?;
            }
            tx.run("DELETE FROM lane WHERE depth = 0", ())?;
        }
        PruneStep::Pages => {
            let sql = format!("PRAGMA incremental_vacuum({PAGES_MAX})");
            tx.all(&sql, (), |_| Ok(()))?;
        }
    }
    Ok(pruned)
}

fn delete_run(tx: &Tx<'_>, run: RunId, before: i64, pruned: &mut PruneOutcome) -> Result<()> {
    leave(tx, run)?;
    // What only this run named goes with it.
    let blobs = referenced_blobs(tx, run)?;
    for sql in DELETE_RUN_ROWS {
        tx.run(sql, params![run.bytes()])?;
    }
    // Whoever prunes at the same time may have been faster.
    let sql = "DELETE FROM run WHERE id = ?1";
    pruned.runs += tx.run(sql, params![run.bytes()])?;
    pruned.blobs += delete_blobs(tx, &blobs, before)?;
    Ok(())
}

/// Contents that a run names.
fn referenced_blobs(tx: &Tx<'_>, run: RunId) -> Result<Vec<[u8; 32]>> {
    let sql = "SELECT hash FROM blob_ref WHERE run = ?1 LIMIT ?2";
    tx.all(sql, params![run.bytes(), int(ROWS_MAX)], |row| row.get(0))
}

/// Forgets contents that nobody names.
fn delete_blobs(tx: &Tx<'_>, blobs: &[[u8; 32]], before: i64) -> Result<usize> {
    let mut forgotten = 0;
    for hash in blobs {
        forgotten += tx.run(
            "DELETE FROM blob WHERE hash = ?1 AND touched_at < ?2
                AND NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.hash = ?1)",
            params![hash, before],
        )?;
    }
    Ok(forgotten)
}

/// What happened before this point is older than `millis`.
fn cutoff_micros(now: Timestamp, millis: u64) -> i64 {
    let micros = i64::try_from(millis.saturating_mul(1_000)).unwrap_or(i64::MAX);
    now.as_micros().saturating_sub(micros)
}
