//! What is measured everywhere: the limits of the disk, percentiles, and the cost of a turn.

use std::path::Path;

use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_store::SqliteStore;
use longhaul_store::bench::{BareInsertOptions, Durations, measure_bare_inserts, measure_sync};
use serde::Serialize;

use crate::bench::report::Report;
use crate::cpu::cpu_us;

/// Number of writes and of bare commits that are measured.
const WRITE_COUNT: usize = 500;

/// Upper bounds of half and of almost all spans, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl From<&Durations> for Percentiles {
    fn from(spans: &Durations) -> Self {
        Self {
            p50: nanos_to_micros(spans.percentile(50)),
            p99: nanos_to_micros(spans.percentile(99)),
        }
    }
}

pub(crate) fn nanos_to_micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// The raw limits of the disk, measured in the folder of the bench.
#[derive(Debug, Serialize)]
pub(crate) struct DiskLimits {
    fdatasync_us: Percentiles,
    pub(crate) bare_commit_us: f64,
    bare_commits_per_second: f64,
}

impl DiskLimits {
    /// Measures the limits and adds them to the report.
    pub(crate) fn measure(folder: &Path, report: &mut Report) -> anyhow::Result<()> {
        report.print_progress("measuring the disk");
        let nanos = || SystemClock.monotonic_nanos();
        let syncs = Percentiles::from(&measure_sync(folder, WRITE_COUNT, &nanos)?);
        let ask = BareInsertOptions {
            file: folder.join("bare.db"),
            runs: 1,
            events: WRITE_COUNT as u64,
            body_bytes: 900,
            per_commit: 1,
        };
        let per_second = measure_bare_inserts(&ask, &nanos)?.per_second().max(1.0);
        let disk = Self {
            fdatasync_us: syncs,
            bare_commit_us: 1e6 / per_second,
            bare_commits_per_second: per_second,
        };
        report.add_line(format!(
            "write of 8 KiB + fdatasync    p50 {:.0} us   p99 {:.0} us",
            syncs.p50, syncs.p99
        ));
        report.add_line(format!(
            "a commit of bare SQLite       mean {:.0} us, {per_second:.0} a second",
            disk.bare_commit_us
        ));
        report.add_figures(&disk)
    }
}

/// The average cost of the turns of some runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TurnCost {
    pub(crate) commits_per_turn: f64,
    pub(crate) cpu_us_per_turn: f64,
    pub(crate) wall_us_per_turn: f64,
}

impl TurnCost {
    /// Its figures as cells of a table.
    pub(crate) fn cells(&self) -> [String; 3] {
        [
            format!("{:.2}", self.commits_per_turn),
            format!("{:.0}", self.cpu_us_per_turn),
            format!("{:.0}", self.wall_us_per_turn),
        ]
    }
}

/// Counts commits and time from its start on.
#[derive(Debug)]
pub(crate) struct TurnMeter<'a> {
    store: &'a SqliteStore,
    commits: u64,
    cpu_us: f64,
    nanos: u64,
}

impl<'a> TurnMeter<'a> {
    pub(crate) fn start(store: &'a SqliteStore) -> Self {
        Self {
            store,
            commits: store.commits(),
            cpu_us: cpu_us(),
            nanos: SystemClock.monotonic_nanos(),
        }
    }

    /// The cost of each of so many turns since the start.
    pub(crate) fn cost(&self, turns: u32) -> TurnCost {
        let turns = f64::from(turns);
        TurnCost {
            commits_per_turn: (self.store.commits() - self.commits) as f64 / turns,
            cpu_us_per_turn: (cpu_us() - self.cpu_us) / turns,
            wall_us_per_turn: nanos_to_micros(SystemClock.monotonic_nanos() - self.nanos) / turns,
        }
    }
}
