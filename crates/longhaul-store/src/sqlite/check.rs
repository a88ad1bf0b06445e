//! Checks a whole store file: pages, rows and journals.
//!
//! Invariant: nothing is written, neither to the file nor beside it.

use std::path::Path;
use std::time::Duration;

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::RepairedRowCounts;
use longhaul_core::port::store::{JournalReadRequest, StoreError};
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::Connection;
use serde::Serialize;

use crate::sqlite::column::{ENDED, get_u64};
use crate::sqlite::connect;
use crate::sqlite::error::{
    CommitError, WriteCommandError, store_error_from_io, store_error_from_sql,
};
use crate::sqlite::location::{StoreFileKind, read_store_file_kind, resolve_symlinks};
use crate::sqlite::tx::Tx;
use crate::sqlite::{journal, repair, schema};

/// Maximum number of problems that are listed. Further problems are only counted.
const LISTED_PROBLEMS_MAX: usize = 100;
/// Maximum number of events that one query reads.
const EVENTS_PER_READ: usize = 500;
/// How long to wait for another process that holds a lock on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Descriptions of rows whose related rows are missing, each with the query that selects their
/// runs.
const ORPHAN_QUERIES: &[(&str, &str)] = &[
    (
        "the run has no head",
        "SELECT r.id FROM run r LEFT JOIN run_head h ON h.run = r.id WHERE h.run IS NULL",
    ),
    (
        "the head belongs to no run",
        "SELECT h.run FROM run_head h LEFT JOIN run r ON r.id = h.run WHERE r.id IS NULL",
    ),
    (
        "the journal belongs to no run",
        "SELECT DISTINCT j.run FROM journal j LEFT JOIN run r ON r.id = j.run WHERE r.id IS NULL",
    ),
];

/// Checks whether the events of a journal are consistent with each other, which the store itself
/// can't check.
pub trait JournalChecker {
    /// Checks the next event of the current journal.
    fn check_next_entry(&mut self, entry: &JournalEntry) -> Result<(), String>;

    /// Ends the check of the current journal. `has_run_ended` says whether the run has ended
    /// according to its scheduling row.
    fn finish_journal_check(&mut self, has_run_ended: bool) -> Result<(), String>;
}

/// A problem that was found in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreProblem {
    /// Kind of problem: `pages`, `rows`, `journal`, `body` or `queue`.
    pub kind: &'static str,
    /// Run that the problem is about. `None` means that the problem is not about one run.
    pub run: Option<RunId>,
    /// Description of the problem, for people.
    pub message: String,
}

/// Result of checking a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StoreCheckReport {
    pub runs: u64,
    /// Number of events in all journals.
    pub events: u64,
    /// Size of the database file in bytes.
    pub bytes: u64,
    /// The first problems that were found.
    pub problems: Vec<StoreProblem>,
    /// Number of further problems that are not listed.
    pub unlisted: u64,
}

impl StoreCheckReport {
    /// Returns the first problem with the pages of the file. Such a file can't be read reliably.
    /// `None` means that no such problem was found.
    pub(crate) fn find_database_page_problem(&self) -> Option<&StoreProblem> {
        let mut problems = self.problems.iter();
        problems.find(|problem| problem.kind == "pages")
    }

    fn add_problem(&mut self, kind: &'static str, run: Option<RunId>, message: impl Into<String>) {
        if self.problems.len() == LISTED_PROBLEMS_MAX {
            self.unlisted += 1;
            return;
        }
        let message = message.into();
        self.problems.push(StoreProblem { kind, run, message });
    }
}

/// Checks the store in this file. A file that is too corrupt to be read is reported as a problem;
/// an error means that the check could not be carried out.
pub fn check_store(
    file: &Path,
    journals: &mut dyn JournalChecker,
) -> Result<StoreCheckReport, StoreError> {
    let mut report = StoreCheckReport::default();
    match run_store_checks(file, journals, &mut report) {
        Err(StoreError::Corrupt { reason, .. }) => report.add_problem("pages", None, reason),
        checked => checked?,
    }
    Ok(report)
}

fn run_store_checks(
    file: &Path,
    journals: &mut dyn JournalChecker,
    report: &mut StoreCheckReport,
) -> Result<(), StoreError> {
    let location = file.to_string_lossy();
    let file = resolve_symlinks(file).map_err(|error| store_error_from_io(error, &location))?;
    if read_store_file_kind(&file, &location)? == StoreFileKind::Missing {
        return Err(CommitError::Corrupt("no store found".to_owned()).to_store_error(&location));
    }
    let conn = connect::open_reader_without_side_files(&file, BUSY_TIMEOUT)
        .map_err(|error| store_error_from_sql(error, &location))?;
    let migrations = schema::MIGRATIONS;
    if schema::read_schema_version(&conn, &location, migrations)?
        != schema::current_schema_version(migrations)
    {
        return Err(StoreError::Database {
            location: location.into_owned(),
            source: "the schema is older than this build; start a driver to migrate it".into(),
        });
    }
    let checked = query_in_snapshot(&conn, |tx| {
        check_database_pages(tx, report)?;
        if report.problems.is_empty() {
            check_row_consistency(tx, report)?;
            check_blob_hashes(tx, report)?;
            check_all_journals(tx, journals, report)?;
        }
        Ok(())
    });
    checked.map_err(|error| error.into_store_error(&location))
}

/// Runs a query on one consistent snapshot of the file, even while other processes write.
pub(crate) fn query_in_snapshot<T>(
    conn: &Connection,
    query: impl FnOnce(&Tx<'_>) -> Result<T, WriteCommandError>,
) -> Result<T, WriteCommandError> {
    conn.execute_batch("BEGIN")?;
    let now = Timestamp::from_micros(0);
    let result = query(&Tx { conn, now });
    let ended = conn.execute_batch("COMMIT");
    let result = result?;
    ended?;
    Ok(result)
}

fn check_database_pages(
    tx: &Tx<'_>,
    report: &mut StoreCheckReport,
) -> Result<(), WriteCommandError> {
    let number = |sql| tx.query_one(sql, (), |row| get_u64(row, 0)).map(Option::unwrap_or_default);
    report.bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
    let sql = format!("PRAGMA integrity_check({LISTED_PROBLEMS_MAX})");
    for message in tx.query_all(&sql, (), |row| row.get::<_, String>(0))? {
        if message != "ok" {
            report.add_problem("pages", None, message);
        }
    }
    Ok(())
}

fn check_row_consistency(
    tx: &Tx<'_>,
    report: &mut StoreCheckReport,
) -> Result<(), WriteCommandError> {
    for (message, sql) in ORPHAN_QUERIES {
        for run in tx.query_all(sql, (), |row| row.get(0))? {
            report.add_problem("rows", Some(RunId::from_bytes(run)), *message);
        }
    }
    let RepairedRowCounts {
        ready_without_row,
        row_without_ready,
        parked_without_waker: parked_for_ever,
        lane_stuck,
        gate_of_ended,
        slot_leaked,
    } = repair::count_inconsistent_rows(tx)?;
    for (count, inconsistent_rows) in [
        (ready_without_row, "ready runs that are not in the queue"),
        (row_without_ready, "queued runs that are not ready"),
        (parked_for_ever, "parked runs that nothing can wake"),
        (lane_stuck, "lanes whose first run has ended"),
        (gate_of_ended, "open gates of ended runs"),
        (slot_leaked, "slots of sandboxes that are not running"),
    ] {
        if count > 0 {
            report.add_problem("queue", None, format!("{count} {inconsistent_rows}"));
        }
    }
    Ok(())
}

/// Compares the content of each blob and definition with its hash, which SQLite's page check does
/// not do.
fn check_blob_hashes(tx: &Tx<'_>, report: &mut StoreCheckReport) -> Result<(), WriteCommandError> {
    for table in ["blob", "definition"] {
        let sql = format!("SELECT hash, content FROM {table}");
        let mut statement = tx.conn.prepare(&sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let hash: [u8; 32] = row.get(0)?;
            let content = row.get_ref(1)?.as_bytes().unwrap_or_default();
            if *Hash::digest(content).bytes() != hash {
                let hash = Hash::from_bytes(hash);
                report.add_problem(
                    "body",
                    None,
                    format!("the content of the row {hash} in the table {table} is corrupt"),
                );
            }
        }
    }
    Ok(())
}

fn check_all_journals(
    tx: &Tx<'_>,
    journals: &mut dyn JournalChecker,
    report: &mut StoreCheckReport,
) -> Result<(), WriteCommandError> {
    let heads = tx.query_all("SELECT run, state, last_seq FROM run_head", (), |row| {
        let run = RunId::from_bytes(row.get(0)?);
        Ok((run, row.get::<_, i64>(1)? == ENDED, Seq(get_u64(row, 2)?)))
    })?;
    report.runs = heads.len() as u64;
    for (run, ended, recorded) in heads {
        let (read_count, checked) = check_journal(tx, run, journals);
        report.events += read_count;
        let finished = journals.finish_journal_check(ended);
        match checked {
            Err(problem) => report.add_problem("journal", Some(run), problem),
            Ok(()) if read_count != recorded.0 => {
                let problem = format!(
                    "the run's record counts {recorded} events, but its journal has {read_count}"
                );
                report.add_problem("journal", Some(run), problem);
            }
            Ok(()) => {
                if let Err(problem) = finished {
                    report.add_problem("journal", Some(run), problem);
                }
            }
        }
    }
    Ok(())
}

/// Reads and checks a journal from its start. Returns the number of valid events, and the first
/// problem as an error.
fn check_journal(
    tx: &Tx<'_>,
    run: RunId,
    journals: &mut dyn JournalChecker,
) -> (u64, Result<(), String>) {
    let (mut read_count, mut after) = (0, Seq::START);
    loop {
        let request = JournalReadRequest { run, after, limit: EVENTS_PER_READ };
        let page = match journal::read_journal_page(tx, request) {
            Ok(page) => page,
            Err(error) => return (read_count, Err(error.into_store_error("").to_string())),
        };
        for entry in &page.entries {
            if entry.seq != after.next() {
                let problem =
                    format!("events are missing: event {} follows event {after}", entry.seq);
                return (read_count, Err(problem));
            }
            if let Err(problem) = journals.check_next_entry(entry) {
                return (read_count, Err(format!("event {} is invalid: {problem}", entry.seq)));
            }
            after = entry.seq;
            read_count += 1;
        }
        if page.entries.len() < EVENTS_PER_READ {
            return (read_count, Ok(()));
        }
    }
}
