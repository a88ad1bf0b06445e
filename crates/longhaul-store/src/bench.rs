//! Measures the limits that the store is compared with: the sync rate of the disk and the insert
//! rate of plain SQLite. The caller supplies the stopwatch.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::port::store::StoreError;
use longhaul_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::sqlite::append::UPDATE_HEAD_AS_DRIVER;
use crate::sqlite::error::{store_error_from_io, store_error_from_sql};
use crate::sqlite::journal::INSERT_EVENT;
use crate::sqlite::{connect, schema};

/// Data written before each measured sync, of the size that a small commit writes to the
/// write-ahead log.
const LOG_PAGE: [u8; 8_192] = [0x6c; 8_192];

/// Monotonic clock in nanoseconds with an arbitrary start.
pub trait Stopwatch {
    /// Returns the nanoseconds that have passed since the start of the clock.
    fn elapsed_nanos(&self) -> u64;
}

impl<F: Fn() -> u64> Stopwatch for F {
    fn elapsed_nanos(&self) -> u64 {
        self()
    }
}

/// Measured durations in nanoseconds, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortedDurations(Vec<u64>);

impl SortedDurations {
    /// Creates a sorted list from durations in any order.
    pub fn new(mut durations: Vec<u64>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    /// Returns the given percentile of the durations, or 0 if there are no durations.
    pub fn percentile(&self, percent: u8) -> u64 {
        let last = self.0.len().saturating_sub(1);
        let index = last * usize::from(percent.min(100)) / 100;
        self.0.get(index).copied().unwrap_or(0)
    }
}

/// Measures how long it takes to write one page to a file and sync the file to disk. The file is
/// deleted afterwards.
pub fn measure_fsync(
    folder: &Path,
    rounds: usize,
    stopwatch: &dyn Stopwatch,
) -> Result<SortedDurations, StoreError> {
    let path = folder.join("sync.bench");
    let at = path.to_string_lossy();
    let durations =
        time_fsyncs(&path, rounds, stopwatch).map_err(|error| store_error_from_io(error, &at));
    _ = std::fs::remove_file(&path);
    durations
}

fn time_fsyncs(
    path: &Path,
    rounds: usize,
    stopwatch: &dyn Stopwatch,
) -> std::io::Result<SortedDurations> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let mut durations = Vec::with_capacity(rounds);
    // Every write but the first overwrites the same page, as a log does.
    for _ in 0..rounds {
        let started = stopwatch.elapsed_nanos();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&LOG_PAGE)?;
        file.sync_data()?;
        durations.push(stopwatch.elapsed_nanos().saturating_sub(started));
    }
    Ok(SortedDurations::new(durations))
}

/// Parameters of the benchmark that inserts events with plain SQLite.
#[derive(Debug, Clone)]
pub struct PlainSqlInsertBenchOptions {
    /// Path of the database file to create. The file must not exist.
    pub file: PathBuf,
    /// Number of runs that the events are spread over.
    pub runs: u64,
    /// Total number of events to insert.
    pub events: u64,
    /// Size of each event's body in bytes.
    pub body_bytes: usize,
    /// Number of events written by each commit.
    pub per_commit: u64,
}

/// Result of the benchmark that inserts events with plain SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InsertRate {
    pub events: u64,
    pub commits: u64,
    /// Duration of the benchmark in nanoseconds.
    pub nanos: u64,
}

impl InsertRate {
    /// Returns the number of events inserted per second.
    pub fn events_per_second(self) -> f64 {
        self.events as f64 * 1e9 / self.nanos.max(1) as f64
    }
}

/// Measures only the SQL statements of an append, on the same tables as the store: the update of
/// the run's scheduling row and the insert of the events.
pub fn measure_plain_sql_inserts(
    options: &PlainSqlInsertBenchOptions,
    stopwatch: &dyn Stopwatch,
) -> Result<InsertRate, StoreError> {
    let at = options.file.to_string_lossy();
    let conn = connect::open_writer_connection(&options.file, Duration::ZERO)
        .map_err(|error| store_error_from_sql(error, &at))?;
    schema::migrate_schema(&conn, &at, Timestamp::default(), schema::MIGRATIONS)?;
    time_plain_sql_inserts(&conn, options, stopwatch)
        .map_err(|error| store_error_from_sql(error, &at))
}

fn time_plain_sql_inserts(
    conn: &Connection,
    options: &PlainSqlInsertBenchOptions,
    stopwatch: &dyn Stopwatch,
) -> rusqlite::Result<InsertRate> {
    let id = |number: u64| (u128::from(number) << 64 | 7).to_be_bytes();
    let runs = options.runs.max(1);
    conn.execute_batch("BEGIN")?;
    for run in 0..runs {
        conn.prepare_cached(
            "INSERT INTO run_head (run, inbox, state, epoch, last_seq, worker, format)
             VALUES (?1, 'default', 1, 1, 0, ?2, 1)",
        )?
        .execute(params![id(run), id(u64::MAX)])?;
    }
    conn.execute_batch("COMMIT")?;
    let body = "x".repeat(options.body_bytes);
    let mut drive = conn.prepare(UPDATE_HEAD_AS_DRIVER)?;
    let mut insert = conn.prepare(INSERT_EVENT)?;
    let mut begin = conn.prepare("BEGIN IMMEDIATE")?;
    let mut commit = conn.prepare("COMMIT")?;
    let started = stopwatch.elapsed_nanos();
    let (mut events, mut commits) = (0, 0);
    while events < options.events {
        let until = options.events.min(events + options.per_commit.max(1));
        begin.execute(())?;
        while events < until {
            let (run, seq) = (id(events % runs), events / runs);
            drive.execute(params![1, 1, run, 1, id(u64::MAX), seq.cast_signed()])?;
            let kind = "tool.completed";
            let next = seq.cast_signed() + 1;
            insert.execute(params![run, next, 1, 0, kind, 1, body, None::<[u8; 32]>])?;
            events += 1;
        }
        commit.execute(())?;
        commits += 1;
    }
    Ok(InsertRate { events, commits, nanos: stopwatch.elapsed_nanos().saturating_sub(started) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_duration_at_its_rank() {
        let durations = SortedDurations::new(vec![50, 10, 30, 20, 40]);
        let found = [0, 50, 99, 100].map(|percent| durations.percentile(percent));
        assert_eq!(found, [10, 30, 40, 50]);
        assert_eq!(SortedDurations::default().percentile(50), 0);
    }
}
