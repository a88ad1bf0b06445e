//! `longhaul-bench park`: runs that wait for a person: their memory, the CPU time while nothing
//! happens, and the cost from an answer to the next model request.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use longhaul::Answer;

use crate::fixture::{BATCH, Fixture, FixtureSpec};
use crate::measure::{Counter, Meter, Percentiles, resident_mb};
use crate::options::Options;
use crate::report::Report;

/// Number of runs that are driven at the same time.
const CONCURRENCY: u32 = 32;

/// Maximum number of runs that are resumed.
const RESUMED_MAX: u32 = 200;

/// Script of the model: the first reply asks a person, the reply after the answer ends the run.
const SCRIPT: &str = "replies:
  - tools: [{ name: ask_human, input: { question: Which way? } }]
  - text: Done.
";

/// Maximum memory of a parked run.
const BYTES_PER_RUN_TARGET: f64 = 100.0;
/// Maximum CPU time while nothing happens, in percent of one core.
const IDLE_CPU_PERCENT_TARGET: f64 = 1.0;
/// Maximum number of commits, and CPU time, from an answer to the next model request.
const RESUME_COMMITS_TARGET: f64 = 4.0;
const RESUME_CPU_US_TARGET: f64 = 2_000.0;

/// Arguments of `longhaul-bench park`.
#[derive(Debug, Args)]
pub(crate) struct ParkArgs {
    /// Number of runs that wait for a person
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    /// Time without work for which the CPU time is measured, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    idle: u32,
}

impl ParkArgs {
    pub(crate) async fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let folder = options.temp_folder()?;
        let conditions = format!("{} runs that wait for an answer, one worker", self.runs);
        let mut report = options.report("park", &conditions);
        let scripts = vec![("asks".to_owned(), SCRIPT.to_owned())];
        let folder = folder.path().join("project");
        let spec = FixtureSpec { folder, scripts, mock: None, result_bytes: 0 };
        let fixture = Fixture::open(spec).await?;
        let idle = Arc::new(Counter::default());
        let worker = {
            let (idle, requests) = (Arc::clone(&idle), Arc::clone(&fixture.requests));
            fixture.worker(CONCURRENCY).on_empty(move || {
                // The worker has nothing to do: if all models were asked, all runs are parked.
                if requests.is_reached() {
                    idle.add();
                }
            })
        };
        idle.expect(1);
        let worker = worker.spawn();
        idle.wait("the worker").await?;
        // One batch is parked before, so that one-time costs of the process are not measured.
        park_runs(&fixture, &idle, BATCH).await?;
        report.progress(&format!("parking {} runs", self.runs));
        let memory_before = resident_mb(std::process::id())?;
        park_runs(&fixture, &idle, self.runs).await?;
        let added_mb = resident_mb(std::process::id())? - memory_before;
        report.progress(&format!("waiting {} s without work", self.idle));
        let meter = Meter::start(&fixture.store_file)?;
        tokio::time::sleep(Duration::from_secs(self.idle.into())).await;
        let cost = meter.cost()?;
        report
            .section("parked")
            .figure("runs", f64::from(self.runs))
            .figure("added_memory_mb", added_mb)
            .at_most(
                "bytes_per_run",
                added_mb * 1_048_576.0 / f64::from(self.runs),
                BYTES_PER_RUN_TARGET,
            )
            .at_most(
                "idle_cpu_percent",
                cost.cpu_us * 100.0 / cost.wall_us,
                IDLE_CPU_PERCENT_TARGET,
            );
        report.progress("resuming runs");
        self.measure_resume(&fixture, (&idle, &mut report)).await?;
        worker.stop().await?;
        Ok(report)
    }

    /// Answers questions one after the other, and measures from each answer to the next model
    /// request.
    async fn measure_resume(
        &self,
        fixture: &Fixture,
        (idle, report): (&Counter, &mut Report),
    ) -> anyhow::Result<()> {
        let (mut cpu, mut wall, mut commits) = (Vec::new(), Vec::new(), Vec::new());
        let count = self.runs.min(RESUMED_MAX) as usize;
        for gate in fixture.runtime.gates().open().await?.into_iter().take(count) {
            fixture.requests.expect(1);
            idle.expect(1);
            let meter = Meter::start(&fixture.store_file)?;
            fixture.runtime.answer(gate.id, Answer::text("left")).await?;
            fixture.requests.wait("the resumed run").await?;
            let cost = meter.cost()?;
            cpu.push(cost.cpu_us);
            wall.push(cost.wall_us);
            commits.push(cost.commits);
            idle.wait("the end of the resumed run").await?;
        }
        let [cpu, wall, commits] = [cpu, wall, commits].map(Percentiles::new);
        report
            .section("resume")
            .figure("runs", count as f64)
            .at_most("commits_p50", commits.percentile(50), RESUME_COMMITS_TARGET)
            .figure("commits_max", commits.percentile(100))
            .at_most("cpu_p50_us", cpu.percentile(50), RESUME_CPU_US_TARGET)
            .figure("cpu_p99_us", cpu.percentile(99));
        wall.report("wall", report);
        Ok(())
    }
}

/// Submits runs and waits until all of them wait for a person.
async fn park_runs(fixture: &Fixture, idle: &Counter, count: u32) -> anyhow::Result<()> {
    for first in (0..count).step_by(BATCH as usize) {
        let batch = BATCH.min(count - first);
        fixture.requests.expect(batch);
        idle.expect(1);
        fixture.submit(batch, |_| fixture.task("asks")).await?;
        idle.wait("the runs to be parked").await?;
    }
    Ok(())
}
