//! `longhaul-bench queue`: how fast tasks without work go from the queue to their end, how soon an
//! idle worker claims one, and whether long queues and busy lanes slow that down.

use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use longhaul::Task;

use crate::disk::measure_disk;
use crate::fixture::{BATCH, Fixture, FixtureSpec, script_name, script_of_turns};
use crate::measure::{Cost, Counter, Meter, Percentiles, Stopwatch, resident_mb};
use crate::options::Options;
use crate::report::Report;

/// Number of tasks that are driven at the same time.
const CONCURRENCY: u32 = 32;

/// How often each rate is measured. The fastest measurement counts.
const ROUNDS: u32 = 3;

/// Number of claims of an idle worker that are measured.
const IDLE_CLAIMS: u32 = 200;

/// Number of tasks in the short queue.
const SHORT_QUEUE: u32 = 1_000;

/// Minimum ratio of the rate with a long queue, or behind busy lanes, to the rate without.
const FLAT_TARGET: f64 = 0.8;

/// Target time from a submit until an idle worker has claimed the run, less two disk writes.
const CLAIM_US_TARGET: f64 = 1_000.0;

/// Arguments of `longhaul-bench queue`.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// Number of tasks to drive
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    tasks: u32,
    /// Number of tasks in the long queue, and behind two busy lanes
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    queued: u32,
}

impl QueueArgs {
    pub(crate) async fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let folder = options.temp_folder()?;
        let (tasks, queued) = (self.tasks, self.queued);
        let conditions = format!("{tasks} tasks, {CONCURRENCY} at a time, WAL, synchronous=FULL");
        let mut report = options.report("queue", &conditions);
        let sync_us = measure_disk(folder.path(), &mut report)?;
        let open = |name: &str| {
            let (folder, scripts) = (folder.path().join(name), vec![script_of_turns(0)]);
            Fixture::open(FixtureSpec { folder, scripts, mock: None, result_bytes: 0 })
        };
        report.progress(&format!("executing {tasks} tasks"));
        let fixture = open("tasks").await?;
        queue_tasks(&fixture, tasks.min(BATCH)).await?;
        drive(&fixture, tasks.min(BATCH)).await?;
        queue_tasks(&fixture, tasks).await?;
        let cost = drive(&fixture, tasks).await?;
        report
            .section("tasks")
            .figure("tasks_per_s", rate(tasks, cost))
            .figure("commits_per_task", cost.per(tasks).commits)
            .figure("cpu_us_per_task", cost.per(tasks).cpu_us)
            .figure("disk_syncs_per_s", 1e6 / sync_us)
            .figure("resident_mb", resident_mb(std::process::id())?);
        report.progress("measuring claims of an idle worker");
        let claims = measure_idle_claims(&fixture).await?;
        let target = 2.0 * sync_us + CLAIM_US_TARGET;
        report
            .section("claim_when_idle")
            .at_most("p50_us", claims.percentile(50), target)
            .figure("p99_us", claims.percentile(99));
        drop(fixture);
        let mut flat = 0.0;
        for (name, in_queue, behind_lanes) in [
            ("short_queue", SHORT_QUEUE, 0),
            ("long_queue", queued, 0),
            ("behind_lanes", SHORT_QUEUE, queued),
        ] {
            report.progress(&format!("executing tasks: {name}"));
            let fixture = open(name).await?;
            let count = tasks.min(BATCH);
            queue_tasks_in_busy_lanes(&fixture, behind_lanes).await?;
            queue_tasks(&fixture, in_queue + ROUNDS * count).await?;
            let mut best = 0.0_f64;
            for _ in 0..ROUNDS {
                best = best.max(rate(count, drive(&fixture, count).await?));
            }
            report.section(name).figure("other_tasks", f64::from(in_queue + behind_lanes));
            report.figure("tasks_per_s", best);
            match name {
                "short_queue" => flat = best,
                _ => _ = report.at_least("rate_to_short_queue", best / flat, FLAT_TARGET),
            }
        }
        Ok(report)
    }
}

fn rate(tasks: u32, cost: Cost) -> f64 {
    f64::from(tasks) * 1e6 / cost.wall_us
}

fn no_work(fixture: &Fixture) -> Task {
    fixture.task(&script_name(0))
}

/// Submits tasks and syncs the store to disk, so that no measurement waits for earlier writes.
async fn queue_tasks(fixture: &Fixture, count: u32) -> anyhow::Result<()> {
    fixture.submit(count, |_| no_work(fixture)).await?;
    std::fs::File::open(&fixture.store_file)?.sync_all()?;
    Ok(())
}

/// Queues tasks in two lanes. The first run of each lane holds it, because it is in an inbox that no
/// worker serves.
async fn queue_tasks_in_busy_lanes(fixture: &Fixture, count: u32) -> anyhow::Result<()> {
    let task = |number: u32| {
        let task = no_work(fixture).lane(if number.is_multiple_of(2) { "left" } else { "right" });
        if number < 2 { task.inbox("unserved") } else { task }
    };
    fixture.submit(count, task).await?;
    Ok(())
}

/// Drives queued tasks until `count` of them have called their model. Those that are then in
/// progress are released.
async fn drive(fixture: &Fixture, count: u32) -> anyhow::Result<Cost> {
    fixture.requests.expect(count);
    let meter = Meter::start(&fixture.store_file)?;
    let worker = fixture.worker(CONCURRENCY).spawn();
    fixture.requests.wait("the tasks").await?;
    let cost = meter.cost()?;
    worker.stop().await?;
    Ok(cost)
}

/// Measures the times from the end of a submit to the claim of its run by an idle worker.
async fn measure_idle_claims(fixture: &Fixture) -> anyhow::Result<Percentiles> {
    let (claims, idle) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let claimed_at = Arc::new(Mutex::new(Stopwatch::start()));
    let worker = {
        let (claims, claimed_at) = (Arc::clone(&claims), Arc::clone(&claimed_at));
        fixture.worker(CONCURRENCY).on_task_start(move |_| {
            *claimed_at.lock().unwrap_or_else(PoisonError::into_inner) = Stopwatch::start();
            claims.add();
        })
    };
    let emptied = Arc::clone(&idle);
    idle.expect(1);
    let worker = worker.on_empty(move || emptied.add()).spawn();
    let mut micros = Vec::new();
    for _ in 0..IDLE_CLAIMS {
        idle.wait("an idle worker").await?;
        idle.expect(1);
        claims.expect(1);
        fixture.runtime.submit(no_work(fixture)).await?;
        let submitted_at = Stopwatch::start();
        claims.wait("a claim").await?;
        let claimed_at = *claimed_at.lock().unwrap_or_else(PoisonError::into_inner);
        micros.push(claimed_at.us_after(submitted_at));
    }
    worker.stop().await?;
    Ok(Percentiles::new(micros))
}
