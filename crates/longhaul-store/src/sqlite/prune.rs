//! Deletes data past its retention.
//!
//! Invariant: runs of a tree (a root run and its descendants) with open runs, runs with undelivered
//! messages, runs with a sandbox that still exists and blobs that are referred to are never deleted,
//! and neither is the run with the newest journal row, which says where the global log ends.

use longhaul_core::id::RunId;
use longhaul_core::policy::spend_cap::SPEND_TTL;
use longhaul_core::port::store::{DEAD_WORKER_TTL, PruneOutcome, PruneRequest};
use longhaul_core::time::Timestamp;
use rusqlite::{Result, params};

use crate::sqlite::column::{count_to_column, get_u64, limit_to_column};
use crate::sqlite::global_log::last_written_run;
use crate::sqlite::lane::leave_lane;
use crate::sqlite::tx::Tx;

/// Maximum number of rows of each kind that one transaction deletes, so that appends don't wait
/// long.
pub(crate) const ROWS_MAX: u64 = 1_000;
/// Assumed number of rows per run besides its journal, counted towards the maximum of rows per
/// transaction.
const OTHER_ROWS_PER_RUN: u64 = 20;
/// Maximum number of free database pages that one step returns to the file system.
const PAGES_MAX: u32 = 1_000;

/// Deletes the budget that a run uses, unless another run uses it: the first run of a task, or one of
/// its retries.
const DELETE_BUDGET: &str = "DELETE FROM budget
      WHERE root = (SELECT coalesce(account, id) FROM run WHERE id = ?1)
        AND NOT EXISTS (SELECT 1 FROM run r WHERE r.account = budget.root AND r.id <> ?1)
        AND NOT EXISTS (SELECT 1 FROM run r WHERE r.id = budget.root AND r.id <> ?1)";

/// Statements that delete all rows of a run except the row of the run itself.
const DELETE_RUN_ROWS: &[&str] = &[
    "DELETE FROM journal WHERE run = ?1",
    "DELETE FROM blob_ref WHERE run = ?1",
    "DELETE FROM gate_link WHERE gate IN (SELECT id FROM gate WHERE run = ?1)",
    "DELETE FROM gate WHERE run = ?1",
    "DELETE FROM rule WHERE run = ?1 AND scope >= 'run:'",
    "DELETE FROM timer WHERE run = ?1",
    "DELETE FROM steer WHERE run = ?1",
    "DELETE FROM sandbox_slot_wait WHERE run = ?1",
    "DELETE FROM spend_wait WHERE run = ?1",
    "DELETE FROM budget_wait WHERE run = ?1",
    "DELETE FROM effect_key_wait WHERE run = ?1",
    DELETE_BUDGET,
    "DELETE FROM late_result WHERE run = ?1",
    "DELETE FROM usage WHERE run = ?1",
    "DELETE FROM outbox WHERE run = ?1",
    "DELETE FROM submit_key WHERE runs = ?1 AND expires_at IS NULL",
    "DELETE FROM checkpoint WHERE run = ?1",
    "DELETE FROM sandbox WHERE owner = ?1",
    "DELETE FROM ready WHERE run = ?1",
    "DELETE FROM chain WHERE current = ?1",
    "DELETE FROM run_text WHERE run = ?1",
    "DELETE FROM run_head WHERE run = ?1",
];

/// Statements that delete expired idempotency keys and stored responses.
const DELETE_EXPIRED_REQUESTS: &[&str] = &[
    "DELETE FROM submit_key WHERE rowid IN
      (SELECT rowid FROM submit_key WHERE expires_at <= ?1 LIMIT ?2)",
    "DELETE FROM idempotent_request WHERE rowid IN
      (SELECT rowid FROM idempotent_request WHERE expires_at <= ?1 LIMIT ?2)",
];

/// Deletes dead workers whose last heartbeat is before a given time and that hold no runs.
const DELETE_DEAD_WORKERS: &str = "DELETE FROM worker WHERE rowid IN
      (SELECT w.rowid FROM worker w WHERE w.liveness = 2 AND w.heartbeat_at < ?1
          AND NOT EXISTS (SELECT 1 FROM run_head h WHERE h.worker = w.id) LIMIT ?2)";

/// Selects runs past their retention, oldest first. A run is kept while an outbox message about it
/// is not delivered yet: an inbox that was not notified of the run's end would return the task
/// again. A run is kept while one of its sandboxes exists, because nothing else names that sandbox.
/// The set of trees with open runs is computed once, not for each run, because a tree can
/// have many runs.
pub(crate) const SELECT_EXPIRED_RUNS: &str =
    "SELECT h.run, h.last_seq FROM run_head h CROSS JOIN run r ON r.id = h.run
      WHERE h.finished_at < ?1 AND h.state = 5 AND h.run IS NOT ?3
        AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.run = h.run)
        AND NOT EXISTS (SELECT 1 FROM sandbox b WHERE b.owner = h.run AND b.gone = 0)
        AND r.root NOT IN (SELECT t.root
                             FROM run_head th INDEXED BY run_head_open CROSS JOIN run t
                               ON t.id = th.run
                            WHERE th.state <> 5)
      ORDER BY h.finished_at LIMIT ?2";

const SELECT_UNREFERENCED_BLOBS: &str = "SELECT b.hash FROM blob b
      WHERE b.touched_at < ?1 AND NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.hash = b.hash)
      LIMIT ?2";

/// A step of pruning: the data that one transaction deletes.
#[derive(Debug)]
pub(crate) enum PruneStep {
    /// Deletes rows of a long journal, up to this sequence number.
    Journal(RunId, u64),
    /// Deletes the next `ROWS_MAX` references of a run to blobs, and those of these blobs that are
    /// old and that no other run refers to.
    Blobs(RunId),
    /// Deletes these runs completely.
    Runs(Vec<RunId>),
    /// Deletes these blobs, to which no run refers.
    UnreferencedBlobs(Vec<[u8; 32]>),
    /// Deletes expired idempotent requests, empty lanes and dead workers.
    ExpiredRequests,
    /// Returns free database pages to the file system.
    Pages,
}

/// Plans the steps of pruning on a reader thread, so that the writer thread is not blocked. Blobs
/// without references are searched only when no more runs are found, because that query scans all
/// old blobs.
pub(crate) fn plan_prune_steps(tx: &Tx<'_>, request: PruneRequest) -> Result<Vec<PruneStep>> {
    let runs_before = cutoff_micros(tx.now, request.runs_older_than.0);
    let newest = last_written_run(tx)?.map(RunId::bytes);
    let runs = tx.query_all(
        SELECT_EXPIRED_RUNS,
        params![runs_before, limit_to_column(request.limit), newest],
        |row| Ok((RunId::from_bytes(row.get(0)?), get_u64(row, 1)?)),
    )?;
    let mut steps = Vec::new();
    if runs.len() < request.limit {
        let old = cutoff_micros(tx.now, request.blobs_older_than.0);
        let blobs = tx.query_all(
            SELECT_UNREFERENCED_BLOBS,
            params![old, count_to_column(ROWS_MAX)],
            |row| row.get(0),
        )?;
        if !blobs.is_empty() {
            steps.push(PruneStep::UnreferencedBlobs(blobs));
        }
    }
    let (mut group, mut rows) = (Vec::new(), 0);
    for (run, last) in runs {
        if last > ROWS_MAX {
            let ends = (ROWS_MAX..last).step_by(ROWS_MAX as usize);
            steps.extend(ends.map(|end| PruneStep::Journal(run, end)));
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

/// Executes one step of pruning. Checks again what may be deleted: since planning, a blob may have
/// been referenced, and a run may have become the one with the newest journal row, which is kept.
pub(crate) fn run_prune_step(
    tx: &Tx<'_>,
    request: PruneRequest,
    step: &PruneStep,
) -> Result<PruneOutcome> {
    let mut pruned = PruneOutcome::default();
    let blobs_before = cutoff_micros(tx.now, request.blobs_older_than.0);
    match step {
        PruneStep::Journal(run, end) => {
            let sql = "DELETE FROM journal WHERE run = ?1 AND seq <= ?2 AND seq > ?3";
            let from = count_to_column(end.saturating_sub(ROWS_MAX));
            tx.run(sql, params![run.bytes(), count_to_column(*end), from])?;
        }
        PruneStep::Blobs(run) => {
            let blobs = referenced_blob_hashes(tx, *run)?;
            for hash in &blobs {
                let sql = "DELETE FROM blob_ref WHERE run = ?1 AND hash = ?2";
                tx.run(sql, params![run.bytes(), hash])?;
            }
            pruned.blobs = delete_unreferenced_blobs(tx, &blobs, blobs_before)?;
        }
        PruneStep::Runs(runs) => {
            let newest = last_written_run(tx)?;
            for run in runs.iter().filter(|run| Some(**run) != newest) {
                delete_run_with_blobs(tx, *run, blobs_before, &mut pruned)?;
            }
        }
        PruneStep::UnreferencedBlobs(blobs) => {
            pruned.blobs = delete_unreferenced_blobs(tx, blobs, blobs_before)?
        }
        PruneStep::ExpiredRequests => {
            for sql in DELETE_EXPIRED_REQUESTS {
                pruned.idempotency_keys +=
                    tx.run(sql, params![tx.now_micros(), count_to_column(ROWS_MAX)])?;
            }
            tx.run("DELETE FROM lane WHERE depth = 0 AND paused = 0", ())?;
            let silent_since = cutoff_micros(tx.now, DEAD_WORKER_TTL.0);
            tx.run(DELETE_DEAD_WORKERS, params![silent_since, count_to_column(ROWS_MAX)])?;
            let age = request.runs_older_than.0.max(SPEND_TTL.0);
            let sql = "DELETE FROM spend WHERE window_end < ?1";
            tx.run(sql, params![cutoff_micros(tx.now, age)])?;
        }
        PruneStep::Pages => {
            let sql = format!("PRAGMA incremental_vacuum({PAGES_MAX})");
            tx.query_all(&sql, (), |_| Ok(()))?;
        }
    }
    Ok(pruned)
}

pub(crate) fn delete_run_with_blobs(
    tx: &Tx<'_>,
    run: RunId,
    cutoff: i64,
    pruned: &mut PruneOutcome,
) -> Result<()> {
    leave_lane(tx, run)?;
    // Blobs that only this run refers to are deleted with it.
    let blobs = referenced_blob_hashes(tx, run)?;
    for sql in DELETE_RUN_ROWS {
        tx.run(sql, params![run.bytes()])?;
    }
    // A concurrent prune may have deleted the run already.
    let sql = "DELETE FROM run WHERE id = ?1";
    pruned.runs += tx.run(sql, params![run.bytes()])?;
    pruned.blobs += delete_unreferenced_blobs(tx, &blobs, cutoff)?;
    Ok(())
}

/// Returns the hashes of at most `ROWS_MAX` blobs that a run refers to.
fn referenced_blob_hashes(tx: &Tx<'_>, run: RunId) -> Result<Vec<[u8; 32]>> {
    let sql = "SELECT hash FROM blob_ref WHERE run = ?1 LIMIT ?2";
    tx.query_all(sql, params![run.bytes(), count_to_column(ROWS_MAX)], |row| row.get(0))
}

/// Deletes those of the given blobs to which no run refers and that were last used before the time
/// `cutoff`. Returns the number of deleted blobs.
fn delete_unreferenced_blobs(tx: &Tx<'_>, blob_hashes: &[[u8; 32]], cutoff: i64) -> Result<usize> {
    let mut deleted = 0;
    for hash in blob_hashes {
        deleted += tx.run(
            "DELETE FROM blob WHERE hash = ?1 AND touched_at < ?2
                AND NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.hash = ?1)",
            params![hash, cutoff],
        )?;
    }
    Ok(deleted)
}

/// Returns the time that lies `age_millis` before now, as a column value.
fn cutoff_micros(now: Timestamp, age_millis: u64) -> i64 {
    let micros = i64::try_from(age_millis.saturating_mul(1_000)).unwrap_or(i64::MAX);
    now.as_micros().saturating_sub(micros)
}
