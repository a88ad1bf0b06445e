//! `longhaul bench park`: measures what parked runs, which wait for a person, cost: memory, CPU
//! time while nothing happens, and the resume of one of them.

mod parked_runs;

use std::path::PathBuf;

use clap::Args;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::bench::park::parked_runs::{ParkBench, ParkedRunCosts};
use crate::bench::report::{self, BenchReport, met_or_missed};
use crate::runtime;

/// Number of parked runs (which wait for a person) up to which `SMALL_MEMORY_MB_TARGET` applies.
const SMALL_RUNS: u32 = 100_000;

/// Target for the memory that up to 100,000 parked runs (which wait for a person) add to the
/// process, in MB.
const SMALL_MEMORY_MB_TARGET: f64 = 20.0;

/// Target for the memory that up to a million parked runs (which wait for a person) add to the
/// process, in MB.
const LARGE_MEMORY_MB_TARGET: f64 = 100.0;

/// Target CPU time while all runs wait for a person and nothing happens, in percent of one core.
const IDLE_CPU_PERCENT_TARGET: f64 = 1.0;

/// Target number of commits from a person's answer to a waiting run until its next model request.
const RESUME_COMMITS_TARGET: u64 = 4;

/// Target CPU time from a person's answer to a waiting run until its next model request, in
/// microseconds.
const RESUME_CPU_US_TARGET: f64 = 2_000.0;

/// Arguments of `longhaul bench park`.
#[derive(Debug, Args)]
pub(crate) struct BenchParkCommand {
    /// Number of runs that wait for a person
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    /// Time for which the CPU time is measured while nothing happens, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    idle: u32,
    /// Folder for the store; the speed of its disk matters
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print the measurements as one JSON object
    #[arg(long)]
    json: bool,
}

impl BenchParkCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(self.dir.as_deref())?;
        let conditions = format!(
            "{} runs that wait for an answer, one worker, WAL, synchronous=FULL",
            self.runs
        );
        let mut report = BenchReport::new("park", &conditions, self.json);
        let idle = Millis::from_secs(u64::from(self.idle));
        let bench = ParkBench::open(&folder.path().join("park.db"))?;
        let runtime = runtime::build_multi_thread_tokio()?;
        let measured =
            runtime.block_on(bench.drive_and_measure_parked_runs((self.runs, idle), &report))?;
        self.add_costs_to_report(&mut report, &measured)?;
        report.print()
    }

    /// Adds the measured costs to the report, and whether each of them meets its target.
    fn add_costs_to_report(
        &self,
        report: &mut BenchReport,
        measured: &ParkedRunCosts,
    ) -> anyhow::Result<()> {
        let memory_target = match self.runs {
            ..=SMALL_RUNS => SMALL_MEMORY_MB_TARGET,
            _ => LARGE_MEMORY_MB_TARGET,
        };
        report.add_text_line(format!(
            "memory of the parked runs     {:.1} MB, {:.0} bytes per run   target below {memory_target:.0} MB: {}",
            measured.added_memory_mb,
            measured.memory_bytes_per_run,
            met_or_missed(measured.added_memory_mb < memory_target),
        ));
        report.add_text_line(format!(
            "CPU in {} s without work      {:.2} % of a core   target below {IDLE_CPU_PERCENT_TARGET:.0} %: {}",
            self.idle,
            measured.idle_cpu_percent,
            met_or_missed(measured.idle_cpu_percent < IDLE_CPU_PERCENT_TARGET),
        ));
        let resume = &measured.resume;
        report.add_text_line(format!(
            "from an answer to the next model request, {} runs:",
            resume.runs
        ));
        report.add_text_line(format!(
            "  commits                     max {}   target at most {RESUME_COMMITS_TARGET}: {}",
            resume.commits_max,
            met_or_missed(resume.commits_max <= RESUME_COMMITS_TARGET),
        ));
        report.add_text_line(format!(
            "  CPU                         p50 {:.0} us   p99 {:.0} us   target p50 at most {RESUME_CPU_US_TARGET:.0} us: {}",
            resume.cpu_us.p50,
            resume.cpu_us.p99,
            met_or_missed(resume.cpu_us.p50 <= RESUME_CPU_US_TARGET),
        ));
        report.add_text_line(format!(
            "  wall time                   p50 {:.0} us   p99 {:.0} us",
            resume.wall_us.p50, resume.wall_us.p99,
        ));
        report.add_json_fields(&json!({ "runs": self.runs, "idle_seconds": self.idle }))?;
        report.add_json_fields(measured)
    }
}
