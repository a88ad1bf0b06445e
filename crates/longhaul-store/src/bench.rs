//! The raw limits that a store is measured against: what the disk can sync, and
//! what a bare loop over SQLite can insert.
//!
//! Never: reads a clock. Whoever measures hands the stopwatch in.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::port::store::StoreError;
use longhaul_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::sqlite::append::UPDATE_HEAD_AS_DRIVER;
use crate::sqlite::error::{io_error, sql_error};
use crate::sqlite::journal::INSERT_EVENT;
use crate::sqlite::{connect, schema};

/// A page of a log, as a small commit writes it.
const LOG_PAGE: [u8; 8_192] = [0x6c; 8_192];

/// Counts nanoseconds from any beginning, never backwards.
pub trait Stopwatch {
    /// So many have passed.
    fn elapsed_nanos(&self) -> u64;
}

impl<F: Fn() -> u64> Stopwatch for F {
    fn elapsed_nanos(&self) -> u64 {
        self()
    }
}

/// Spans in nanoseconds, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations(Vec<u64>);

impl Durations {
    /// Spans in any order.
    pub fn new(mut spans: Vec<u64>) -> Self {
        spans.sort_unstable();
        Self(spans)
    }

    /// The span that so many of a hundred do not exceed; 0 without any.
    pub fn percentile(&self, percent: u8) -> u64 {
        let last = self.0.len().saturating_sub(1);
        let place = last * usize::from(percent.min(100)) / 100;
        self.0.get(place).copied().unwrap_or(0)
    }
}

/// How long a write of one page and its sync take, in a file that is gone afterwards.
pub fn measure_sync(
    folder: &Path,
    rounds: usize,
    stopwatch: &dyn Stopwatch,
) -> Result<Durations, StoreError> {
    let path = folder.join("sync.bench");
    let at = path.to_string_lossy();
    let spans = time_syncs(&path, rounds, stopwatch).map_err(|error| io_error(error, &at));
    _ = std::fs::remove_file(&path);
    spans
}

fn time_syncs(path: &Path, rounds: usize, stopwatch: &dyn Stopwatch) -> std::io::Result<Durations> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let mut spans = Vec::with_capacity(rounds);
    // Every write but the first goes over what is there, as a log's writes do.
    for _ in 0..rounds {
        let begun = stopwatch.elapsed_nanos();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&LOG_PAGE)?;
        file.sync_data()?;
        spans.push(stopwatch.elapsed_nanos().saturating_sub(begun));
    }
    Ok(Durations::new(spans))
}

/// What a bare loop is to write.
#[derive(Debug, Clone)]
pub struct BareInsertOptions {
    /// Where; the file must not be there yet.
    pub file: PathBuf,
    /// So many runs take turns.
    pub runs: u64,
    /// So many events in all.
    pub events: u64,
    /// The bytes of each event's body.
    pub body_bytes: usize,
    /// So many events in one commit.
    pub per_commit: u64,
}

/// How fast it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InsertRate {
    /// Events written.
    pub events: u64,
    /// Commits they took.
    pub commits: u64,
    /// Nanoseconds it took.
    pub nanos: u64,
}

impl InsertRate {
    /// Events in a second.
    pub fn per_second(self) -> f64 {
        self.events as f64 * 1e9 / self.nanos.max(1) as f64
    }
}

/// The same update of a head and the same insert that an append makes, in the
/// same tables, with nothing around them.
pub fn measure_bare_inserts(
    ask: &BareInsertOptions,
    stopwatch: &dyn Stopwatch,
) -> Result<InsertRate, StoreError> {
    let at = ask.file.to_string_lossy();
    let conn = connect::writer(&ask.file, Duration::ZERO).map_err(|error| sql_error(error, &at))?;
    schema::migrate(&conn, &at, Timestamp::default(), schema::MIGRATIONS)?;
    time_inserts(&conn, ask, stopwatch).map_err(|error| sql_error(error, &at))
}

fn time_inserts(
    conn: &Connection,
    ask: &BareInsertOptions,
    stopwatch: &dyn Stopwatch,
) -> rusqlite::Result<InsertRate> {
    let id = |number: u64| (u128::from(number) << 64 | 7).to_be_bytes();
    let runs = ask.runs.max(1);
    conn.execute_batch("BEGIN")?;
    for run in 0..runs {
        conn.prepare_cached(
            "INSERT INTO run_head (run, state, epoch, last_seq, worker, format)
             VALUES (?1, 1, 1, 0, ?2, 1)",
        )?
        .execute(params![id(run), id(u64::MAX)])?;
    }
    conn.execute_batch("COMMIT")?;
    let body = "x".repeat(ask.body_bytes);
    let mut drive = conn.prepare(UPDATE_HEAD_AS_DRIVER)?;
    let mut insert = conn.prepare(INSERT_EVENT)?;
    let mut begin = conn.prepare("BEGIN IMMEDIATE")?;
    let mut commit = conn.prepare("COMMIT")?;
    let begun = stopwatch.elapsed_nanos();
    let (mut events, mut commits) = (0, 0);
    while events < ask.events {
        let until = ask.events.min(events + ask.per_commit.max(1));
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
    Ok(InsertRate { events, commits, nanos: stopwatch.elapsed_nanos().saturating_sub(begun) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks_of_sorted_samples() {
        let spans = Durations::new(vec![50, 10, 30, 20, 40]);
        let found = [0, 50, 99, 100].map(|percent| spans.percentile(percent));
        assert_eq!(found, [10, 30, 40, 50]);
        assert_eq!(Durations::default().percentile(50), 0);
    }
}
