//! A store with queued no-op tasks, and a worker that drives them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::Context as _;
use async_trait::async_trait;
use longhaul_core::id::{AgentName, InboxName, LaneKey, RunId, Seq};
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::port::store::{CreateRunsRequest, RunRow, Store as _};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::hooks::WorkerHooks;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Longhaul, Task};
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_run::submit::new_run_from_task;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::bench::fixture::BenchFixture;
use crate::bench::measure::TurnMeter;
use crate::bench::model_source::ModelSource;

/// Number of tasks that are driven at the same time.
pub(super) const CONCURRENCY: usize = 32;

/// Number of tasks that are created by one transaction.
const BATCH: u32 = 1_000;

/// Number of rounds of a rate measurement, of which the fastest counts.
const ROUNDS: u32 = 3;

/// Number of claims of an idle worker that are measured.
const IDLE_CLAIMS: usize = 200;

/// Average cost of driving one task to its end. Submitting the task is not included.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct QueuedTaskCost {
    pub(super) tasks_per_second: f64,
    pub(super) commits_per_task: f64,
    pub(super) cpu_us_per_task: f64,
    pub(super) events_per_task: f64,
    pub(super) bytes_per_event: usize,
}

/// A store for measured tasks, and the engine that drives them.
pub(super) struct QueueBench {
    folder: PathBuf,
    fixture: BenchFixture,
    longhaul: Longhaul,
}

impl QueueBench {
    /// Creates a store in a new folder, because a process drives at most one store per folder.
    pub(super) fn open(store_folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir(store_folder).context("the folder of the store can't be created")?;
        let file = store_folder.join("queue.db");
        let fixture = BenchFixture::new(&file, ModelSource::Scripted { calls: 1 }, 0)?;
        let script = Script::parse_yaml("bench", "replies: [{ text: Done. }]")?;
        let model = ScriptedModel::new("bench", script, Arc::new(SystemClock));
        let longhaul = fixture.build_engine(Arc::new(model))?;
        Ok(Self { folder: store_folder.to_owned(), fixture, longhaul })
    }

    /// Drives this many tasks and returns their average cost.
    pub(super) async fn measure_task_cost(&self, count: u32) -> anyhow::Result<QueuedTaskCost> {
        let warm_up = count.min(BATCH);
        self.queue_tasks_and_get_first_run(warm_up).await?;
        self.drive_runs_and_measure_rate(warm_up).await?;
        let first_run = self.queue_tasks_and_get_first_run(count).await?;
        let store = &self.fixture.store;
        let seq_before = store.last_global_seq().await?;
        let meter = TurnMeter::start_metering(store);
        let tasks_per_second = self.drive_runs_and_measure_rate(count).await?;
        let cost = meter.average_turn_cost(count);
        let events = store.last_global_seq().await?.0 - seq_before.0;
        let journal = self.longhaul.read_run_journal(first_run, Seq(1), 100).await?;
        let mut bytes = 0;
        for entry in &journal {
            bytes += entry.event.encode()?.len();
        }
        Ok(QueuedTaskCost {
            tasks_per_second,
            commits_per_task: cost.commits_per_turn,
            cpu_us_per_task: cost.cpu_us_per_turn,
            events_per_task: events as f64 / f64::from(count),
            bytes_per_event: bytes / journal.len().max(1),
        })
    }

    /// Returns the rate at which `count` tasks are driven while `in_queue` more tasks are queued,
    /// and `behind_lanes` tasks wait in two lanes whose first run does not end.
    pub(super) async fn measure_task_rate(
        &self,
        count: u32,
        in_queue: u32,
        behind_lanes: u32,
    ) -> anyhow::Result<f64> {
        let count = count.min(BATCH);
        self.queue_tasks_behind_busy_lanes(behind_lanes).await?;
        self.queue_tasks_and_get_first_run(in_queue + ROUNDS * count).await?;
        let mut best = 0.0_f64;
        for _ in 0..ROUNDS {
            best = best.max(self.drive_runs_and_measure_rate(count).await?);
        }
        Ok(best)
    }

    /// Returns the times from the end of a submit to the claim of its run by an idle worker, in
    /// nanoseconds.
    pub(super) async fn measure_claim_delay_nanos(&self) -> anyhow::Result<Vec<u64>> {
        let stop = Shutdown::new();
        let (claims, mut claim_times) = unbounded_channel();
        let worker = self.build_worker(Arc::new(ClaimTimeHooks { claims }))?;
        let measure = async {
            let mut durations = Vec::new();
            // The worker is idle.
            claim_times.recv().await.context("the worker has stopped")?;
            for _ in 0..IDLE_CLAIMS {
                self.longhaul.submit(Task::new("bench", "go")).await?;
                let submitted_at = SystemClock.monotonic_nanos();
                let claimed_at = claim_times.recv().await.context("the worker has stopped")?;
                durations.push(claimed_at.saturating_sub(submitted_at));
                // The run has ended, and the worker is idle again.
                claim_times.recv().await.context("the worker has stopped")?;
            }
            stop.request_drain();
            anyhow::Ok(durations)
        };
        let (worker_result, durations) = tokio::join!(worker.run(stop.clone()), measure);
        worker_result?;
        durations
    }

    /// Submits tasks and returns the run of the first one.
    async fn queue_tasks_and_get_first_run(&self, count: u32) -> anyhow::Result<RunId> {
        let mut first_run = None;
        let mut remaining = count;
        while remaining > 0 {
            let batch = remaining.min(BATCH);
            let tasks = (0..batch).map(|_| Task::new("bench", "go")).collect();
            let submitted = self.longhaul.submit_all(tasks).await?;
            first_run = first_run.or(submitted.run_ids().first().copied());
            remaining -= batch;
        }
        self.flush_to_disk()?;
        first_run.context("at least one task is measured")
    }

    /// Syncs the files of the store to disk, so that no measurement waits for earlier writes.
    fn flush_to_disk(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                std::fs::File::open(entry.path())?.sync_all()?;
            }
        }
        Ok(())
    }

    /// Queues tasks in two lanes. The first run of each lane is in an inbox that no worker serves,
    /// so that it holds the lane.
    async fn queue_tasks_behind_busy_lanes(&self, count: u32) -> anyhow::Result<()> {
        let mut remaining = count;
        while remaining > 0 {
            let batch = remaining.min(BATCH);
            let mut runs = Vec::new();
            for number in 0..batch {
                let id = RunId::from_bits(uuid::Uuid::now_v7().as_u128());
                let is_head = remaining == count && number < 2;
                let inbox = InboxName::new(if is_head { "unserved" } else { "default" })?;
                let agent = AgentName::new("bench")?;
                let mut task = TaskSpec::new(id, agent, RawJson::null(), inbox);
                task.lane = Some(LaneKey::new(if number % 2 == 0 { "left" } else { "right" })?);
                let mut run = new_run_from_task(id, task)?;
                run.lane_depth_max = u32::MAX;
                runs.push(run);
            }
            let request = CreateRunsRequest { runs, blobs: Vec::new(), idempotency: None };
            self.fixture.store.create_runs(request).await?;
            remaining -= batch;
        }
        Ok(())
    }

    /// Drives this many of the queued tasks to their ends and returns the tasks per second.
    async fn drive_runs_and_measure_rate(&self, count: u32) -> anyhow::Result<f64> {
        let stop = Shutdown::new();
        let hooks = Arc::new(CompletionCountHooks {
            stop: stop.clone(),
            remaining: AtomicU32::new(count),
            ended_at: AtomicU64::new(0),
        });
        let worker = self.build_worker(Arc::clone(&hooks) as Arc<dyn WorkerHooks>)?;
        let start = SystemClock.monotonic_nanos();
        worker.run(stop).await?;
        let nanos = hooks.ended_at.load(Ordering::Relaxed).saturating_sub(start);
        Ok(f64::from(count) * 1e9 / nanos.max(1) as f64)
    }

    fn build_worker(&self, hooks: Arc<dyn WorkerHooks>) -> anyhow::Result<Worker> {
        let mut options = WorkerOptions::new(InboxName::new("default")?);
        options.concurrency = CONCURRENCY;
        Ok(Worker::new(self.longhaul.services(), options).with_hooks(hooks))
    }
}

/// Hooks (callbacks of the worker) that stop the worker when a given number of runs has completed,
/// and record the time of the last completion.
#[derive(Debug)]
struct CompletionCountHooks {
    stop: Shutdown,
    remaining: AtomicU32,
    ended_at: AtomicU64,
}

#[async_trait]
impl WorkerHooks for CompletionCountHooks {
    async fn on_run_completed(&self, _run: &RunRow) {
        if self.remaining.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.ended_at.store(SystemClock.monotonic_nanos(), Ordering::Relaxed);
            self.stop.request_drain();
        }
    }
}

/// Hooks (callbacks of the worker) that report the times at which the worker claims a run or finds
/// none.
#[derive(Debug)]
struct ClaimTimeHooks {
    claims: UnboundedSender<u64>,
}

#[async_trait]
impl WorkerHooks for ClaimTimeHooks {
    async fn on_run_claimed(&self, _run: RunId) {
        _ = self.claims.send(SystemClock.monotonic_nanos());
    }

    async fn on_no_run_found(&self) {
        _ = self.claims.send(SystemClock.monotonic_nanos());
    }
}
