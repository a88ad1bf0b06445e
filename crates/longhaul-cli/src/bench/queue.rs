//! `longhaul bench queue`: measures how fast no-op tasks go from the queue to their end, compared
//! with plain SQLite inserts (the bare loop), and whether long queues and busy lanes slow that
//! down.

mod load;

use std::path::PathBuf;

use clap::Args;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_store::bench::{
    PlainSqlInsertBenchOptions, SortedDurations, measure_plain_sql_inserts,
};
use serde::Serialize;
use serde_json::json;

use crate::bench::measure::{DiskSpeed, Percentiles, resident_memory_mb};
use crate::bench::queue::load::{CONCURRENCY, QueueBench, QueuedTaskCost};
use crate::bench::report::{self, BenchReport, met_or_missed};
use crate::runtime;

/// Minimum ratio of the task rate to that of the bare loop: plain SQLite inserts with as many rows
/// per task.
const RATIO_TARGET: f64 = 0.4;

/// Minimum ratio of the task rate with a long queue, or with many tasks behind busy lanes, to the
/// rate without them.
const FLAT_TARGET: f64 = 0.8;

/// Number of queued tasks in the short queue.
const SHORT_QUEUE: u32 = 1_000;

/// Target time from a submit until an idle worker has claimed the run, less the time of two
/// commits, in microseconds.
const CLAIM_TARGET_US: f64 = 1_000.0;

/// Maximum number of events that the bare loop (plain SQLite inserts) writes.
const BARE_EVENTS_MAX: u64 = 50_000;

/// Arguments of `longhaul bench queue`.
#[derive(Debug, Args)]
pub(crate) struct BenchQueueCommand {
    /// Folder to write in; a temporary folder is created there and removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of tasks to drive
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    tasks: u32,
    /// Number of tasks in the long queue, and behind two busy lanes
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    queued: u32,
    /// Print the measurements as one JSON object
    #[arg(long)]
    json: bool,
}

/// Task rates with a short queue, with a long queue, and with many queued tasks that can't start
/// because their lane runs one task at a time.
#[derive(Debug, Serialize)]
struct QueueTaskRates {
    short_queue_tasks_per_second: f64,
    long_queue_tasks_per_second: f64,
    long_queue_ratio: f64,
    behind_lanes_tasks_per_second: f64,
    behind_lanes_ratio: f64,
}

impl BenchQueueCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(Some(&self.dir))?;
        let tasks = self.tasks;
        let conditions =
            format!("{tasks} no-op tasks, {CONCURRENCY} at a time, WAL, synchronous=FULL");
        let mut report = BenchReport::new("queue", &conditions, self.json);
        let disk = DiskSpeed::measure_disk_speed(folder.path(), &mut report)?;
        let runtime = runtime::build_multi_thread_tokio()?;
        report.print_progress(&format!("executing {tasks} tasks"));
        let bench = QueueBench::open(&folder.path().join("tasks"))?;
        let cost = runtime.block_on(bench.measure_task_cost(tasks))?;
        let memory_mb = resident_memory_mb(std::process::id())?;
        self.add_comparison_with_bare_sqlite(
            &mut report,
            &cost,
            folder.path().join("bare-queue.db"),
        )?;
        report.print_progress("measuring claims of an idle worker");
        let claims = Percentiles::from(&SortedDurations::new(
            runtime.block_on(bench.measure_claim_delay_nanos())?,
        ));
        let limit = 2.0 * disk.bare_commit_us + CLAIM_TARGET_US;
        let verdict = met_or_missed(claims.p50 <= limit);
        report.add_text_line(format!(
            "claim when idle               p50 {:.0} us   p99 {:.0} us   target: p50 at most 2 commits + 1 ms, {limit:.0} us: {verdict}",
            claims.p50, claims.p99
        ));
        report.add_text_line(format!("resident memory               {memory_mb:.0} MB"));
        self.measure_and_add_task_rates(&mut report, &runtime, folder.path())?;
        report.add_json_fields(&json!({
            "tasks": tasks, "concurrency": CONCURRENCY, "queued": self.queued,
            "claim_when_idle_us": claims, "resident_memory_mb": memory_mb,
        }))?;
        report.print()
    }

    /// Measures plain SQLite inserts (the bare loop) with the same number of rows per task and per
    /// commit as the measured tasks, and adds both task rates to the report.
    fn add_comparison_with_bare_sqlite(
        &self,
        report: &mut BenchReport,
        cost: &QueuedTaskCost,
        file: PathBuf,
    ) -> anyhow::Result<()> {
        let events_per_task = cost.events_per_task.max(1.0);
        let per_commit = (events_per_task / cost.commits_per_task).round().max(1.0);
        let options = PlainSqlInsertBenchOptions {
            file,
            runs: CONCURRENCY as u64,
            events: ((f64::from(self.tasks) * events_per_task) as u64).min(BARE_EVENTS_MAX),
            body_bytes: cost.bytes_per_event,
            per_commit: per_commit as u64,
        };
        let bare_rate = measure_plain_sql_inserts(&options, &|| SystemClock.monotonic_nanos())?;
        let bare_tasks_per_second = bare_rate.events_per_second() / events_per_task;
        let ratio = cost.tasks_per_second / bare_tasks_per_second.max(f64::MIN_POSITIVE);
        let titles = ["tasks/s", "commits per task", "events per task", "CPU us per task"];
        let row = vec![
            format!("{:.0}", cost.tasks_per_second),
            format!("{:.2}", cost.commits_per_task),
            format!("{events_per_task:.1}"),
            format!("{:.0}", cost.cpu_us_per_task),
            format!("{bare_tasks_per_second:.0}"),
            format!("{ratio:.2}"),
        ];
        report.add_table(&[&titles[..], &["bare loop tasks/s", "ratio"]].concat(), &[row]);
        let verdict = met_or_missed(ratio >= RATIO_TARGET);
        report.add_text_line(format!(
            "target: ratio to the bare loop {RATIO_TARGET} or more: {verdict}"
        ));
        report.add_json_fields(cost)?;
        report.add_json_fields(
            &json!({ "bare_tasks_per_second": bare_tasks_per_second, "ratio": ratio }),
        )
    }

    /// Measures how a long queue and busy lanes change the task rate, and adds the rates to the
    /// report.
    fn measure_and_add_task_rates(
        &self,
        report: &mut BenchReport,
        runtime: &tokio::runtime::Runtime,
        folder: &std::path::Path,
    ) -> anyhow::Result<()> {
        let queued = self.queued;
        let measure = |name: &str, in_queue: u32, behind_lanes: u32| {
            let bench = QueueBench::open(&folder.join(name))?;
            runtime.block_on(bench.measure_task_rate(self.tasks, in_queue, behind_lanes))
        };
        report.print_progress(&format!("executing tasks while {SHORT_QUEUE} others are queued"));
        let short_queue_rate = measure("short", SHORT_QUEUE, 0)?;
        report.print_progress(&format!("executing tasks while {queued} others are queued"));
        let long_queue_rate = measure("long", queued, 0)?;
        report.print_progress(&format!(
            "executing tasks while {queued} other tasks wait in two busy lanes"
        ));
        let behind_lanes_rate = measure("lanes", SHORT_QUEUE, queued)?;
        let rates = QueueTaskRates {
            short_queue_tasks_per_second: short_queue_rate,
            long_queue_tasks_per_second: long_queue_rate,
            long_queue_ratio: long_queue_rate / short_queue_rate.max(f64::MIN_POSITIVE),
            behind_lanes_tasks_per_second: behind_lanes_rate,
            behind_lanes_ratio: behind_lanes_rate / short_queue_rate.max(f64::MIN_POSITIVE),
        };
        let row = |label: String, rate: f64| {
            vec![
                label,
                format!("{rate:.0}"),
                format!("{:.2}", rate / short_queue_rate.max(f64::MIN_POSITIVE)),
            ]
        };
        let rows = [
            row(format!("{SHORT_QUEUE} tasks queued"), short_queue_rate),
            row(format!("{queued} tasks queued"), long_queue_rate),
            row(
                format!("{SHORT_QUEUE} tasks queued, {queued} waiting in two busy lanes"),
                behind_lanes_rate,
            ),
        ];
        report.add_table(&["other tasks", "tasks/s", "ratio"], &rows);
        let is_target_met =
            rates.long_queue_ratio >= FLAT_TARGET && rates.behind_lanes_ratio >= FLAT_TARGET;
        let verdict = met_or_missed(is_target_met);
        report.add_text_line(format!(
            "target: rate of at least {FLAT_TARGET} times the first row: {verdict}"
        ));
        report.add_json_fields(&rates)
    }
}
