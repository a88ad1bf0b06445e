//! Measurements that several benchmarks share: disk speed, percentiles and the cost of a turn.

use std::path::Path;

use anyhow::Context as _;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_store::SqliteStore;
use longhaul_store::bench::{
    PlainSqlInsertBenchOptions, SortedDurations, measure_fsync, measure_plain_sql_inserts,
};
use serde::Serialize;

use crate::bench::report::BenchReport;
use crate::cpu::cpu_time_us;

/// Number of disk writes, and of SQLite commits without Longhaul, that are measured.
const WRITE_COUNT: usize = 500;

/// The 50th and 99th percentile of measured durations, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl From<&SortedDurations> for Percentiles {
    fn from(durations: &SortedDurations) -> Self {
        Self {
            p50: nanos_to_micros(durations.percentile(50)),
            p99: nanos_to_micros(durations.percentile(99)),
        }
    }
}

pub(crate) fn nanos_to_micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// Speed of the disk without Longhaul: durations of fdatasync calls and of bare SQLite commits in
/// the benchmark's folder.
#[derive(Debug, Serialize)]
pub(crate) struct DiskSpeed {
    fdatasync_us: Percentiles,
    pub(crate) bare_commit_us: f64,
    bare_commits_per_second: f64,
}

impl DiskSpeed {
    /// Measures the speed of the disk that holds this folder, and adds the figures to the report.
    pub(crate) fn measure_disk_speed(
        folder: &Path,
        report: &mut BenchReport,
    ) -> anyhow::Result<Self> {
        report.print_progress("measuring the disk");
        let now_nanos = || SystemClock.monotonic_nanos();
        let fdatasync_us = Percentiles::from(&measure_fsync(folder, WRITE_COUNT, &now_nanos)?);
        let options = PlainSqlInsertBenchOptions {
            file: folder.join("bare.db"),
            runs: 1,
            events: WRITE_COUNT as u64,
            body_bytes: 900,
            per_commit: 1,
        };
        let per_second =
            measure_plain_sql_inserts(&options, &now_nanos)?.events_per_second().max(1.0);
        let disk = Self {
            fdatasync_us,
            bare_commit_us: 1e6 / per_second,
            bare_commits_per_second: per_second,
        };
        report.add_text_line(format!(
            "write of 8 KiB + fdatasync    p50 {:.0} us   p99 {:.0} us",
            fdatasync_us.p50, fdatasync_us.p99
        ));
        report.add_text_line(format!(
            "a commit of bare SQLite       mean {:.0} us, {per_second:.0} per second",
            disk.bare_commit_us
        ));
        report.add_json_fields(&disk)?;
        Ok(disk)
    }
}

pub(crate) fn resident_memory_mb(process_id: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status"))
        .context("the memory of a process can be read only on Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kilobytes.context("the resident memory can't be read from /proc")? / 1024.0)
}

/// Average cost of a turn: commits, CPU time and wall time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TurnCost {
    pub(crate) commits_per_turn: f64,
    pub(crate) cpu_us_per_turn: f64,
    pub(crate) wall_us_per_turn: f64,
}

impl TurnCost {
    /// Returns commits, CPU time and wall time as table cells.
    pub(crate) fn cost_table_cells(&self) -> [String; 3] {
        [
            format!("{:.2}", self.commits_per_turn),
            format!("{:.0}", self.cpu_us_per_turn),
            format!("{:.0}", self.wall_us_per_turn),
        ]
    }
}

/// Measures commits, CPU time and wall time since the meter was started.
#[derive(Debug)]
pub(crate) struct TurnMeter<'a> {
    store: &'a SqliteStore,
    commits: u64,
    cpu_us: f64,
    nanos: u64,
}

impl<'a> TurnMeter<'a> {
    pub(crate) fn start_metering(store: &'a SqliteStore) -> Self {
        Self {
            store,
            commits: store.commit_count(),
            cpu_us: cpu_time_us(),
            nanos: SystemClock.monotonic_nanos(),
        }
    }

    /// Returns the average cost of a turn, given the number of turns since the meter was started.
    pub(crate) fn average_turn_cost(&self, turns: u32) -> TurnCost {
        let turns = f64::from(turns);
        TurnCost {
            commits_per_turn: (self.store.commit_count() - self.commits) as f64 / turns,
            cpu_us_per_turn: (cpu_time_us() - self.cpu_us) / turns,
            wall_us_per_turn: nanos_to_micros(SystemClock.monotonic_nanos() - self.nanos) / turns,
        }
    }
}
