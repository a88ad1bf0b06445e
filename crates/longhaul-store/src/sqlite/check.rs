//! Checks a store file as a whole: pages, rows that belong together, journals.
//!
//! Invariant: nothing is written, neither to the file nor beside it.

use std::path::Path;
use std::time::Duration;

use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::Repairs;
use longhaul_core::port::store::{ReadRequest, StoreError};
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::Connection;
use serde::Serialize;

use crate::sqlite::column::{ENDED, get_u64};
use crate::sqlite::connect;
use crate::sqlite::error::{CommandError, CommitError, io_error, sql_error};
use crate::sqlite::location::{FileKind, inspect_header, resolve};
use crate::sqlite::tx::Tx;
use crate::sqlite::{journal, repair, schema};

/// Maximum number of problems that are listed; the others are counted.
const LISTED_PROBLEMS_MAX: usize = 100;
/// Maximum number of events that are read at once.
const EVENTS_PER_READ: usize = 500;
/// How long another process that holds the file is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Rows without the rows that they belong to.
const ORPHAN_QUERIES: &[(&str, &str)] = &[
    (
        "a run without a head",
        "SELECT r.id FROM run r LEFT JOIN run_head h ON h.run = r.id WHERE h.run IS NULL",
    ),
    (
        "a head without a run",
        "SELECT h.run FROM run_head h LEFT JOIN run r ON r.id = h.run WHERE r.id IS NULL",
    ),
    (
        "a journal without a run",
        "SELECT DISTINCT j.run FROM journal j LEFT JOIN run r ON r.id = j.run WHERE r.id IS NULL",
    ),
];

/// Decides whether the events of a journal fit together. A store does not know that.
pub trait JournalCheck {
    /// Takes the next event of the current journal.
    fn entry(&mut self, entry: &Entry) -> Result<(), String>;

    /// Ends the current journal. `ended` is what the run's head says.
    fn finish(&mut self, ended: bool) -> Result<(), String>;
}

/// One fault of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Kind of fault: `pages`, `rows`, `journal`, `body` or `queue`.
    pub kind: &'static str,
    /// Run that it concerns, if it concerns one.
    pub run: Option<RunId>,
    /// Description of the fault.
    pub message: String,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Number of runs.
    pub runs: u64,
    /// Number of events in all journals.
    pub events: u64,
    /// Size of the database in bytes.
    pub bytes: u64,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// Number of problems that are not listed.
    pub unlisted: u64,
}

impl CheckReport {
    /// The first problem that keeps the file from being read at all.
    pub(crate) fn damaged_pages(&self) -> Option<&Problem> {
        let mut problems = self.problems.iter();
        problems.find(|problem| problem.kind == "pages")
    }

    fn add(&mut self, kind: &'static str, run: Option<RunId>, what: impl Into<String>) {
        if self.problems.len() == LISTED_PROBLEMS_MAX {
            self.unlisted += 1;
            return;
        }
        let what = what.into();
        self.problems.push(Problem { kind, run, message: what });
    }
}

/// Checks the store in this file. A file that is damaged beyond reading is a problem in
/// the report; an error means that the check could not be made.
pub fn check(file: &Path, journals: &mut dyn JournalCheck) -> Result<CheckReport, StoreError> {
    let mut report = CheckReport::default();
    match check_into(file, journals, &mut report) {
        Err(StoreError::Corrupt { why, .. }) => report.add("pages", None, why),
        checked => checked?,
    }
    Ok(report)
}

fn check_into(
    file: &Path,
    journals: &mut dyn JournalCheck,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    let at = file.to_string_lossy();
    let file = resolve(file).map_err(|error| io_error(error, &at))?;
    if inspect_header(&file, &at)? == FileKind::Missing {
        return Err(CommitError::Corrupt("there is no store".to_owned()).to_store_error(&at));
    }
    let conn =
        connect::inspection_reader(&file, BUSY_TIMEOUT).map_err(|error| sql_error(error, &at))?;
    let migrations = schema::MIGRATIONS;
    if schema::read_version(&conn, &at, migrations)? != schema::current_version(migrations) {
        return Err(StoreError::Database {
            at: at.into_owned(),
            source: "its tables are those of an older build: a driver brings them up to date"
                .into(),
        });
    }
    let checked = snapshot(&conn, |tx| {
        check_pages(tx, report)?;
        if report.problems.is_empty() {
            check_rows(tx, report)?;
            check_blobs(tx, report)?;
            check_journals(tx, journals, report)?;
        }
        Ok(())
    });
    checked.map_err(|fault| fault.into_store_error(&at))
}

/// Reads everything from the same moment, also while others write.
pub(crate) fn snapshot<T>(
    conn: &Connection,
    look: impl FnOnce(&Tx<'_>) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    conn.execute_batch("BEGIN")?;
    let now = Timestamp::from_micros(0);
    let seen = look(&Tx { conn, now });
    let ended = conn.execute_batch("COMMIT");
    let seen = seen?;
    ended?;
    Ok(seen)
}

fn check_pages(tx: &Tx<'_>, report: &mut CheckReport) -> Result<(), CommandError> {
    let number = |sql| tx.one(sql, (), |row| get_u64(row, 0)).map(Option::unwrap_or_default);
    report.bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
    let sql = format!("PRAGMA integrity_check({LISTED_PROBLEMS_MAX})");
    for line in tx.all(&sql, (), |row| row.get::<_, String>(0))? {
        if line != "ok" {
            report.add("pages", None, line);
        }
    }
    Ok(())
}

fn check_rows(tx: &Tx<'_>, report: &mut CheckReport) -> Result<(), CommandError> {
    for (what, sql) in ORPHAN_QUERIES {
        for run in tx.all(sql, (), |row| row.get(0))? {
            report.add("rows", Some(RunId::from_bytes(run)), *what);
        }
    }
    let Repairs {
        ready_without_row,
        row_without_ready,
        parked_without_waker: parked_for_ever,
        lane_stuck,
        gate_of_ended,
        slot_leaked: seat_leaked,
    } = repair::count(tx)?;
    for (count, what) in [
        (ready_without_row, "ready runs in no queue"),
        (row_without_ready, "queued runs that are not ready"),
        (parked_for_ever, "parked runs that nothing can wake"),
        (lane_stuck, "lanes whose first run has ended"),
        (gate_of_ended, "open gates of ended runs"),
        (seat_leaked, "seats of sandboxes that do not run"),
    ] {
        if count > 0 {
            report.add("queue", None, format!("{count} {what}"));
        }
    }
    Ok(())
}

/// Compares the content of each blob with its hash, which the page check can't.
fn check_blobs(tx: &Tx<'_>, report: &mut CheckReport) -> Result<(), CommandError> {
    for table in ["blob", "definition"] {
        let sql = format!("SELECT hash, content FROM {table}");
        let mut statement = tx.conn.prepare(&sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let hash: [u8; 32] = row.get(0)?;
            let content = row.get_ref(1)?.as_bytes().unwrap_or_default();
            if *Hash::digest(content).bytes() != hash {
                let hash = Hash::from_bytes(hash);
                report.add("body", None, format!("the content of {table} {hash} is damaged"));
            }
        }
    }
    Ok(())
}

fn check_journals(
    tx: &Tx<'_>,
    journals: &mut dyn JournalCheck,
    report: &mut CheckReport,
) -> Result<(), CommandError> {
    let heads = tx.all("SELECT run, state, last_seq FROM run_head", (), |row| {
        let run = RunId::from_bytes(row.get(0)?);
        Ok((run, row.get::<_, i64>(1)? == ENDED, Seq(get_u64(row, 2)?)))
    })?;
    report.runs = heads.len() as u64;
    for (run, ended, last) in heads {
        let (read, folded) = check_journal(tx, run, journals);
        report.events += read;
        let finished = journals.finish(ended);
        match folded {
            Err(what) => report.add("journal", Some(run), what),
            Ok(()) if read != last.0 => {
                let what = format!("its head says {last} events, its journal has {read}");
                report.add("journal", Some(run), what);
            }
            Ok(()) => {
                if let Err(what) = finished {
                    report.add("journal", Some(run), what);
                }
            }
        }
    }
    Ok(())
}

/// Reads one journal from its start; returns how many events were read.
fn check_journal(
    tx: &Tx<'_>,
    run: RunId,
    journals: &mut dyn JournalCheck,
) -> (u64, Result<(), String>) {
    let (mut read, mut after) = (0, Seq::START);
    loop {
        let ask = ReadRequest { run, after, limit: EVENTS_PER_READ };
        let page = match journal::read_page(tx, ask) {
            Ok(page) => page,
            Err(fault) => return (read, Err(fault.into_store_error("").to_string())),
        };
        for entry in &page.entries {
            if entry.seq != after.next() {
                let what = format!("event {} follows event {after}", entry.seq);
                return (read, Err(what));
            }
            if let Err(what) = journals.entry(entry) {
                return (read, Err(format!("event {} does not fit: {what}", entry.seq)));
            }
            after = entry.seq;
            read += 1;
        }
        if page.entries.len() < EVENTS_PER_READ {
            return (read, Ok(()));
        }
    }
}
