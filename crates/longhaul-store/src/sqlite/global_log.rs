//! What was written to all journals, in the order of writing: that of the rows.
//!
//! Never: a place that goes back. The run that holds the newest row is not
//! forgotten, so no row ever gets the place of one that was.

use std::collections::BTreeMap;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::{ChangedRuns, GlobalPage, GlobalSeq};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{get_u64, int, limit};
use crate::sqlite::error::CommandError;
use crate::sqlite::journal::{JournalRow, missing_body};
use crate::sqlite::tx::Tx;

/// Rows after a place, with their bodies.
pub(crate) const SELECT_ALL_AFTER: &str =
    "SELECT j.seq, j.epoch, j.at, j.kind, j.v, j.body, CAST(b.content AS TEXT), j.run, j.rowid
       FROM journal j LEFT JOIN blob b ON b.hash = j.blob
      WHERE j.rowid > ?1 ORDER BY j.rowid LIMIT ?2";

/// Rows after a place, without their bodies.
pub(crate) const SELECT_CHANGED_AFTER: &str =
    "SELECT run, seq, rowid FROM journal WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

/// The last place.
pub(crate) const SELECT_LAST_GLOBAL_SEQ: &str = "SELECT coalesce(max(rowid), 0) FROM journal";

/// Who wrote last.
pub(crate) const SELECT_LAST_WRITTEN_RUN: &str =
    "SELECT run FROM journal WHERE rowid = (SELECT max(rowid) FROM journal)";

/// What was written after a place.
pub(crate) fn read_all(
    tx: &Tx<'_>,
    after: GlobalSeq,
    count: usize,
) -> Result<GlobalPage, CommandError> {
    let lines = tx.all(SELECT_ALL_AFTER, params![int(after.0), limit(count)], |row| {
        Ok((get_global_seq(row, 8)?, get_run_id(row, 7)?, JournalRow::from_row(row)?))
    })?;
    let entries = lines.into_iter().map(|(place, run, line)| {
        let line = line.ok_or_else(|| missing_body(run))?;
        Ok((place, line.into_entry(run)?))
    });
    Ok(GlobalPage { entries: entries.collect::<Result<_, CommandError>>()? })
}

/// Which journals have grown after a place.
pub(crate) fn changed_since(tx: &Tx<'_>, after: GlobalSeq, count: usize) -> Result<ChangedRuns> {
    let rows = tx.all(SELECT_CHANGED_AFTER, params![int(after.0), limit(count)], |row| {
        Ok((get_run_id(row, 0)?, Seq(get_u64(row, 1)?), get_global_seq(row, 2)?))
    })?;
    let end = rows.last().map_or(after, |(_, _, place)| *place);
    // A journal only grows: of its rows the last one stands highest.
    let runs: BTreeMap<RunId, Seq> = rows.into_iter().map(|(run, seq, _)| (run, seq)).collect();
    Ok(ChangedRuns { runs: runs.into_iter().collect(), end })
}

/// The place of what was written last.
pub(crate) fn last_global_seq(tx: &Tx<'_>) -> Result<GlobalSeq> {
    let end = tx.one(SELECT_LAST_GLOBAL_SEQ, (), |row| get_global_seq(row, 0))?;
    Ok(end.unwrap_or_default())
}

/// The run that was written to last.
pub(crate) fn last_written_run(tx: &Tx<'_>) -> Result<Option<RunId>> {
    tx.one(SELECT_LAST_WRITTEN_RUN, (), |row| get_run_id(row, 0))
}

fn get_global_seq(row: &Row<'_>, place: usize) -> Result<GlobalSeq> {
    get_u64(row, place).map(GlobalSeq)
}

fn get_run_id(row: &Row<'_>, place: usize) -> Result<RunId> {
    row.get(place).map(RunId::from_bytes)
}
