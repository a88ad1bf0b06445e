//! The instruments of the benchmarks: a stopwatch, CPU time, memory, commits of a store, and a
//! counter that a benchmark waits for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;

use crate::report::Report;

/// Maximum time between two events that a benchmark waits for. After that it fails.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// The time since the stopwatch was started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures the real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed_us(&self) -> f64 {
        self.0.elapsed().as_nanos() as f64 / 1e3
    }

    pub(crate) fn elapsed_ms(&self) -> f64 {
        self.elapsed_us() / 1e3
    }

    /// Returns how much later than `earlier` this stopwatch was started, or 0 if it was not.
    pub(crate) fn us_after(&self, earlier: Self) -> f64 {
        self.0.saturating_duration_since(earlier.0).as_nanos() as f64 / 1e3
    }
}

/// Returns the CPU time that this process has used, in microseconds.
pub(crate) fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Returns the resident memory of a process, in MB.
pub(crate) fn resident_mb(process_id: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status"))
        .context("the memory of a process can be read only on Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kilobytes.context("the resident memory can't be read from /proc")? / 1024.0)
}

/// Returns the number of transactions that were committed to an open SQLite store, modulo 2^32, by
/// whatever process. SQLite counts them in the header of the WAL index (field `iChange` in
/// sqlite.org/walformat.html), in the byte order of the machine.
fn commit_count(store_file: &Path) -> anyhow::Result<u32> {
    let mut index_file = store_file.as_os_str().to_owned();
    index_file.push("-shm");
    let index = std::fs::read(&index_file).context("the WAL index of the store can't be read")?;
    let counter = index.get(8..12).and_then(|bytes| bytes.try_into().ok());
    Ok(u32::from_ne_bytes(counter.context("the WAL index of the store is too short")?))
}

/// What some work cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) commits: f64,
    pub(crate) cpu_us: f64,
    pub(crate) wall_us: f64,
}

impl Cost {
    /// Returns the average cost of each of `count` units of the work.
    pub(crate) fn per(self, count: u32) -> Self {
        let count = f64::from(count);
        Self {
            commits: self.commits / count,
            cpu_us: self.cpu_us / count,
            wall_us: self.wall_us / count,
        }
    }
}

/// Measures the cost of the work since the meter was started.
#[derive(Debug)]
pub(crate) struct Meter {
    store_file: PathBuf,
    commits: u32,
    cpu_us: f64,
    stopwatch: Stopwatch,
}

impl Meter {
    pub(crate) fn start(store_file: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            store_file: store_file.to_owned(),
            commits: commit_count(store_file)?,
            cpu_us: cpu_us(),
            stopwatch: Stopwatch::start(),
        })
    }

    pub(crate) fn cost(&self) -> anyhow::Result<Cost> {
        let (cpu_us, wall_us) = (cpu_us() - self.cpu_us, self.stopwatch.elapsed_us());
        let commits = commit_count(&self.store_file)?.wrapping_sub(self.commits);
        Ok(Cost { commits: commits.into(), cpu_us, wall_us })
    }
}

/// Measured values, mostly durations in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Percentiles(Vec<f64>);

impl Percentiles {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Returns the given percentile, or 0 if nothing was measured.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let index = self.0.len().saturating_sub(1) * percent / 100;
        self.0.get(index).copied().unwrap_or_default()
    }

    /// Adds the median and the 99th percentile to a report.
    pub(crate) fn report(&self, name: &str, report: &mut Report) {
        for percent in [50, 99] {
            report.figure(&format!("{name}_p{percent}_us"), self.percentile(percent));
        }
    }
}

/// Counts events, and notifies the benchmark when the expected number of them has happened.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    count: AtomicU64,
    expected: AtomicU64,
    reached: Notify,
}

impl Counter {
    /// Counts one event.
    pub(crate) fn add(&self) {
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        if count == self.expected.load(Ordering::SeqCst) {
            self.reached.notify_one();
        }
    }

    /// Expects `more` events in addition to those so far. Called before the first of them can
    /// happen.
    pub(crate) fn expect(&self, more: u32) {
        let expected = self.count.load(Ordering::SeqCst) + u64::from(more);
        self.expected.store(expected, Ordering::SeqCst);
    }

    /// Returns whether all expected events have happened.
    pub(crate) fn is_reached(&self) -> bool {
        self.count.load(Ordering::SeqCst) >= self.expected.load(Ordering::SeqCst)
    }

    /// Waits until all expected events have happened.
    pub(crate) async fn wait(&self, description: &str) -> anyhow::Result<()> {
        while !self.is_reached() {
            let reached = tokio::time::timeout(STEP_TIMEOUT, self.reached.notified()).await;
            reached.with_context(|| format!("timed out waiting for {description}"))?;
        }
        Ok(())
    }
}
