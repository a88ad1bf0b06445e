//! Deletes the runs of a tree at a person's request, with everything that only they use.

use longhaul_core::id::{RunId, SandboxId};
use longhaul_core::port::records::{DeleteRunsOutcome, DeletedRuns};
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, get_u64};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::prune::delete_run_with_blobs;
use crate::sqlite::tx::Tx;

/// Deletes the notes that a run wrote, first from the full-text index.
const DELETE_NOTES: [&str; 2] = [
    "DELETE FROM note_fts WHERE rowid IN (SELECT number FROM note WHERE run = ?1)",
    "DELETE FROM note WHERE run = ?1",
];

/// Deletes the tree of runs with this root, unless a run of the tree is still in use.
pub(crate) fn delete_run_tree(
    tx: &Tx<'_>,
    root: RunId,
) -> Result<CommandOutcome<DeleteRunsOutcome>> {
    let runs = tx.query_all(
        "SELECT r.id, h.state FROM run r JOIN run_head h ON h.run = r.id
          WHERE r.root = ?1 ORDER BY r.id",
        params![root.bytes()],
        |row| Ok((RunId::from_bytes(row.get(0)?), row.get::<_, i64>(1)?)),
    )?;
    let in_use = match runs.iter().find(|(_, state)| *state != ENDED) {
        _ if runs.is_empty() => Some(DeleteRunsOutcome::NotFound),
        Some((open, _)) => Some(DeleteRunsOutcome::Open(*open)),
        None => find_use_of_ended_tree(tx, root)?,
    };
    if let Some(in_use) = in_use {
        return Ok(CommandOutcome::Silent(in_use));
    }
    // The deleted rows are overwritten. Copies that SQLite made earlier, when it moved rows between
    // pages, can remain in unused parts of the file.
    tx.query_all("PRAGMA secure_delete = ON", (), |_| Ok(()))?;
    let mut deleted =
        DeletedRuns { continued_by: count_runs_that_continue(tx, root)?, ..Default::default() };
    for (run, _) in &runs {
        let [from_index, from_table] = DELETE_NOTES;
        tx.run(from_index, params![run.bytes()])?;
        deleted.notes += tx.run(from_table, params![run.bytes()])? as u64;
        let mut pruned = longhaul_core::port::store::PruneOutcome::default();
        delete_run_with_blobs(tx, *run, i64::MAX, &mut pruned)?;
    }
    tx.query_all("PRAGMA secure_delete = OFF", (), |_| Ok(()))?;
    deleted.runs = runs.into_iter().map(|(run, _)| run).collect();
    Ok(CommandOutcome::Changed(DeleteRunsOutcome::Deleted(deleted)))
}

/// Returns what still needs an ended tree: a sandbox, or a message that is to be delivered. `None` if
/// nothing does.
fn find_use_of_ended_tree(tx: &Tx<'_>, root: RunId) -> Result<Option<DeleteRunsOutcome>> {
    let sandbox = tx.query_one(
        "SELECT b.sandbox FROM run r CROSS JOIN sandbox b ON b.owner = r.id
          WHERE r.root = ?1 AND b.gone = 0 LIMIT 1",
        params![root.bytes()],
        |row| row.get(0).map(SandboxId::from_bytes),
    )?;
    if let Some(sandbox) = sandbox {
        return Ok(Some(DeleteRunsOutcome::HasSandbox(sandbox)));
    }
    let undelivered = tx.query_one(
        "SELECT o.run FROM run r CROSS JOIN outbox o ON o.run = r.id WHERE r.root = ?1 LIMIT 1",
        params![root.bytes()],
        |row| row.get(0).map(RunId::from_bytes),
    )?;
    Ok(undelivered.map(DeleteRunsOutcome::Undelivered))
}

/// Counts the retries and forks of this root, which have copied its events and use its budget.
fn count_runs_that_continue(tx: &Tx<'_>, root: RunId) -> Result<u64> {
    let sql = "SELECT count(*) FROM run WHERE account = ?1 AND root <> ?1";
    Ok(tx.query_one(sql, params![root.bytes()], |row| get_u64(row, 0))?.unwrap_or_default())
}
