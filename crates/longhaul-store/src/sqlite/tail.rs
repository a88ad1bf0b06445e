//! What was written to all journals, in the order of writing: that of the rows.
//!
//! Never: a place that goes back. The run that holds the newest row is not
//! forgotten, so no row ever gets the place of one that was.

use std::collections::BTreeMap;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::shelves::{Grown, Place, Tail};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{int, limit, nat};
use crate::sqlite::fault::Fault;
use crate::sqlite::journal::{Line, no_body};
use crate::sqlite::tx::Tx;

/// Rows after a place, with their bodies.
pub(crate) const TAIL: &str =
    "SELECT j.seq, j.epoch, j.at, j.kind, j.v, j.body, CAST(b.content AS TEXT), j.run, j.rowid
       FROM journal j LEFT JOIN blob b ON b.hash = j.blob
      WHERE j.rowid > ?1 ORDER BY j.rowid LIMIT ?2";

/// Rows after a place, without their bodies.
pub(crate) const GROWN: &str =
    "SELECT run, seq, rowid FROM journal WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

/// The last place.
pub(crate) const END: &str = "SELECT coalesce(max(rowid), 0) FROM journal";

/// Who wrote last.
pub(crate) const NEWEST: &str =
    "SELECT run FROM journal WHERE rowid = (SELECT max(rowid) FROM journal)";

/// What was written after a place.
pub(crate) fn tail(tx: &Tx<'_>, after: Place, count: usize) -> Result<Tail, Fault> {
    let lines = tx.all(TAIL, params![int(after.0), limit(count)], |row| {
        Ok((place(row, 8)?, run(row, 7)?, Line::read(row)?))
    })?;
    let entries = lines.into_iter().map(|(place, run, line)| {
        let line = line.ok_or_else(|| no_body(run))?;
        Ok((place, line.entry(run)?))
    });
    Ok(Tail {
        entries: entries.collect::<Result<_, Fault>>()?,
    })
}

/// Which journals have grown after a place.
pub(crate) fn grown(tx: &Tx<'_>, after: Place, count: usize) -> Result<Grown> {
    let rows = tx.all(GROWN, params![int(after.0), limit(count)], |row| {
        Ok((run(row, 0)?, Seq(nat(row, 1)?), place(row, 2)?))
    })?;
    let end = rows.last().map_or(after, |(_, _, place)| *place);
    // A journal only grows: of its rows the last one stands highest.
    let runs: BTreeMap<RunId, Seq> = rows.into_iter().map(|(run, seq, _)| (run, seq)).collect();
    Ok(Grown {
        runs: runs.into_iter().collect(),
        end,
    })
}

/// The place of what was written last.
pub(crate) fn end(tx: &Tx<'_>) -> Result<Place> {
    let end = tx.one(END, (), |row| place(row, 0))?;
    Ok(end.unwrap_or_default())
}

/// The run that was written to last.
pub(crate) fn newest(tx: &Tx<'_>) -> Result<Option<RunId>> {
    tx.one(NEWEST, (), |row| run(row, 0))
}

fn place(row: &Row<'_>, place: usize) -> Result<Place> {
    nat(row, place).map(Place)
}

fn run(row: &Row<'_>, place: usize) -> Result<RunId> {
    row.get(place).map(RunId::from_bytes)
}
