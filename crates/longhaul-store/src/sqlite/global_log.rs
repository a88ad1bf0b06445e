//! The global log: the events of all journals in the order of writing, which is the order of the
//! rowids.
//!
//! Invariant: a global sequence number is never reused, even if the newest row is deleted: the table
//! keeps the highest one.

use std::collections::BTreeMap;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::{ChangedRuns, GlobalJournalPage, GlobalSeq};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{count_to_column, get_u64, limit_to_column};
use crate::sqlite::error::WriteCommandError;
use crate::sqlite::journal::{JournalRow, missing_event_body_error};
use crate::sqlite::tx::Tx;

/// Selects the journal rows after a global sequence number, with their bodies.
pub(crate) const SELECT_ALL_AFTER: &str =
    "SELECT j.seq, j.epoch, j.at, j.kind, j.v, j.body, CAST(b.content AS TEXT), j.run, j.rowid
       FROM journal j LEFT JOIN blob b ON b.hash = j.blob
      WHERE j.rowid > ?1 ORDER BY j.rowid LIMIT ?2";

/// Selects the journal rows after a global sequence number, without their bodies.
pub(crate) const SELECT_CHANGED_AFTER: &str =
    "SELECT run, seq, rowid FROM journal WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

/// Selects the last global sequence number: the position of the newest event among the events of
/// all journals.
pub(crate) const SELECT_LAST_GLOBAL_SEQ: &str = "SELECT coalesce(max(rowid), 0) FROM journal";

/// Selects the run with the newest journal row.
pub(crate) const SELECT_LAST_WRITTEN_RUN: &str =
    "SELECT run FROM journal WHERE rowid = (SELECT max(rowid) FROM journal)";

/// Reads the events after a global sequence number.
pub(crate) fn read_global_log(
    tx: &Tx<'_>,
    after: GlobalSeq,
    count: usize,
) -> Result<GlobalJournalPage, WriteCommandError> {
    let rows = tx.query_all(
        SELECT_ALL_AFTER,
        params![count_to_column(after.0), limit_to_column(count)],
        |row| Ok((get_global_seq(row, 8)?, get_run_id(row, 7)?, JournalRow::from_row(row)?)),
    )?;
    let entries = rows.into_iter().map(|(global_seq, run, row)| {
        let row = row.ok_or_else(|| missing_event_body_error(run))?;
        Ok((global_seq, row.into_journal_entry(run)?))
    });
    Ok(GlobalJournalPage { entries: entries.collect::<Result<_, WriteCommandError>>()? })
}

/// Returns the runs to whose journals events were appended after a global sequence number.
pub(crate) fn runs_changed_since(
    tx: &Tx<'_>,
    after: GlobalSeq,
    limit: usize,
) -> Result<ChangedRuns> {
    let rows = tx.query_all(
        SELECT_CHANGED_AFTER,
        params![count_to_column(after.0), limit_to_column(limit)],
        |row| Ok((get_run_id(row, 0)?, Seq(get_u64(row, 1)?), get_global_seq(row, 2)?)),
    )?;
    let end = rows.last().map_or(after, |(_, _, global_seq)| *global_seq);
    // Sequence numbers only grow, so the last row of a run has the highest one.
    let runs: BTreeMap<RunId, Seq> = rows.into_iter().map(|(run, seq, _)| (run, seq)).collect();
    Ok(ChangedRuns { runs: runs.into_iter().collect(), end })
}

/// Returns the last global sequence number: the position of the newest event among the events of
/// all journals.
pub(crate) fn last_global_seq(tx: &Tx<'_>) -> Result<GlobalSeq> {
    let end = tx.query_one(SELECT_LAST_GLOBAL_SEQ, (), |row| get_global_seq(row, 0))?;
    Ok(end.unwrap_or_default())
}

/// Returns the run with the newest journal row. `None` means that there are no journal rows.
pub(crate) fn last_written_run(tx: &Tx<'_>) -> Result<Option<RunId>> {
    tx.query_one(SELECT_LAST_WRITTEN_RUN, (), |row| get_run_id(row, 0))
}

fn get_global_seq(row: &Row<'_>, index: usize) -> Result<GlobalSeq> {
    get_u64(row, index).map(GlobalSeq)
}

fn get_run_id(row: &Row<'_>, index: usize) -> Result<RunId> {
    row.get(index).map(RunId::from_bytes)
}
