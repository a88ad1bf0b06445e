//! A store with parked runs, which wait for a person's answer, and the worker that drives them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use longhaul_core::failure::Failure;
use longhaul_core::id::{InboxName, RunId};
use longhaul_core::policy::gate::{Answer, AnswerScope, GateDecision, GateStatus};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::store::{GateFilter, RunRow};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::hooks::WorkerHooks;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Longhaul, Task};
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_store::bench::SortedDurations;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::bench::fixture::BenchFixture;
use crate::bench::measure::{Percentiles, resident_memory_mb};
use crate::bench::model_source::ModelSource;
use crate::bench::report::BenchReport;
use crate::cpu::cpu_time_us;

/// Number of runs that are driven at the same time.
const CONCURRENCY: usize = 32;

/// Number of runs that are submitted at once. One such batch is parked (waits for a person) before
/// the memory is measured, so that one-time costs of the process are not measured.
const BATCH: u32 = 1_000;

/// Maximum number of runs that are resumed.
const RESUMED_RUNS: u32 = 200;

/// Maximum time until the next run is parked (waits for a person), resumed or ended. If it is
/// exceeded, the benchmark fails.
const STEP_TIMEOUT: Millis = Millis::from_secs(120);

/// Script of the model: the first reply asks a person, the reply after the answer ends the run.
const SCRIPT: &str = "replies:
  - tools: [{ name: ask_human, input: { question: Which way? } }]
  - text: Done.
";

/// Measured costs of parked runs, which wait for a person.
#[derive(Debug, Serialize)]
pub(super) struct ParkedRunCosts {
    pub(super) added_memory_mb: f64,
    pub(super) memory_bytes_per_run: f64,
    /// CPU time while all runs waited for a person and nothing happened, in percent of one core.
    pub(super) idle_cpu_percent: f64,
    pub(super) resume: ResumeCost,
}

/// CPU time, elapsed time and commits from the answer to a gate until the next model request of the same run.
#[derive(Debug, Serialize)]
pub(super) struct ResumeCost {
    pub(super) runs: usize,
    pub(super) commits_max: u64,
    pub(super) cpu_us: Percentiles,
    pub(super) wall_us: Percentiles,
}

/// Step of a run that is reported to the benchmark over a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunMilestone {
    Parked,
    RequestedModelAgain,
    Completed,
    Failed,
}

/// A store for parked runs (which wait for a person), the worker that drives them, and the channel
/// that reports their milestones.
pub(super) struct ParkBench {
    fixture: BenchFixture,
    longhaul: Longhaul,
    worker: Worker,
    milestones: UnboundedReceiver<RunMilestone>,
}

impl ParkBench {
    /// Creates a store in this file, and a worker that will drive its runs.
    pub(super) fn open(store_file: &Path) -> anyhow::Result<Self> {
        let fixture = BenchFixture::new(store_file, ModelSource::Scripted { calls: 0 }, 0)?;
        let (sender, milestones) = unbounded_channel();
        let script = Script::parse_yaml("bench", SCRIPT)?;
        let model = ScriptedModel::new("bench", script, Arc::new(SystemClock));
        let model = MilestoneReportingModel { model, milestones: sender.clone() };
        let longhaul = fixture.build_engine_with_tools(Arc::new(model), &["ask_human"])?;
        let mut options = WorkerOptions::new(InboxName::new("default")?);
        options.concurrency = CONCURRENCY;
        let hooks = Arc::new(MilestoneReportingHooks { milestones: sender });
        let worker = Worker::new(longhaul.services(), options).with_hooks(hooks);
        Ok(Self { fixture, longhaul, worker, milestones })
    }

    /// Runs the worker while `runs` runs are parked (made to wait for a person), left waiting for
    /// the time `idle`, and some of them are resumed. Returns the measured costs.
    pub(super) async fn drive_and_measure_parked_runs(
        self,
        (runs, idle): (u32, Millis),
        report: &BenchReport,
    ) -> anyhow::Result<ParkedRunCosts> {
        let Self { fixture, longhaul, worker, milestones } = self;
        let mut parked = ParkedRuns { fixture, longhaul, milestones, runs_to_resume: Vec::new() };
        let stop = Shutdown::new();
        let measure = async {
            let costs = parked.park_resume_and_measure((runs, idle), report).await;
            stop.request_drain();
            costs
        };
        let (worker_result, costs) = tokio::join!(worker.run(stop.clone()), measure);
        worker_result?;
        costs
    }
}

/// Parks, measures and resumes runs while the worker of the benchmark drives them.
struct ParkedRuns {
    fixture: BenchFixture,
    longhaul: Longhaul,
    milestones: UnboundedReceiver<RunMilestone>,
    /// Runs that will be resumed. The ids of all other runs are not kept, because they would add to
    /// the measured memory.
    runs_to_resume: Vec<RunId>,
}

impl ParkedRuns {
    /// Measures the memory of parked runs (which wait for a person), their CPU time while nothing
    /// happens, and the cost of resuming them.
    async fn park_resume_and_measure(
        &mut self,
        (runs, idle): (u32, Millis),
        report: &BenchReport,
    ) -> anyhow::Result<ParkedRunCosts> {
        report.print_progress(&format!("parking {runs} runs"));
        self.park_runs(runs.min(BATCH), 0).await?;
        let memory_before = resident_memory_mb(std::process::id())?;
        self.park_runs(runs, runs.div_ceil(RESUMED_RUNS)).await?;
        let added_memory_mb = resident_memory_mb(std::process::id())? - memory_before;
        report.print_progress(&format!("waiting for {} s", idle.0 / 1_000));
        let cpu_before = cpu_time_us();
        let nanos_before = SystemClock.monotonic_nanos();
        SystemClock.sleep(idle).await;
        let idle_us = (SystemClock.monotonic_nanos() - nanos_before) as f64 / 1e3;
        let idle_cpu_percent = (cpu_time_us() - cpu_before) / idle_us.max(1.0) * 100.0;
        report.print_progress(&format!("resuming {} runs", self.runs_to_resume.len()));
        Ok(ParkedRunCosts {
            added_memory_mb,
            memory_bytes_per_run: added_memory_mb * 1024.0 * 1024.0 / f64::from(runs),
            idle_cpu_percent,
            resume: self.resume_runs().await?,
        })
    }

    /// Submits this many runs and waits until all of them are parked (wait for a person). One of
    /// every `resumed_every` runs is resumed later, none if `resumed_every` is 0.
    async fn park_runs(&mut self, run_count: u32, resumed_every: u32) -> anyhow::Result<()> {
        let mut remaining = run_count;
        while remaining > 0 {
            let batch = remaining.min(BATCH);
            let tasks = (0..batch).map(|_| Task::new("bench", "go")).collect();
            let submitted = self.longhaul.submit_all(tasks).await?;
            for (number, run) in (run_count - remaining..).zip(submitted.run_ids()) {
                if resumed_every > 0 && number.is_multiple_of(resumed_every) {
                    self.runs_to_resume.push(*run);
                }
            }
            for _ in 0..batch {
                self.wait_for_milestone(RunMilestone::Parked).await?;
            }
            remaining -= batch;
        }
        Ok(())
    }

    /// Answers the questions of the chosen runs one after the other, and measures the cost from
    /// each answer to the run's next model request.
    async fn resume_runs(&mut self) -> anyhow::Result<ResumeCost> {
        let (mut cpu_nanos, mut wall_nanos, mut commits_max) = (Vec::new(), Vec::new(), 0);
        for run in std::mem::take(&mut self.runs_to_resume) {
            let filter = GateFilter {
                run: Some(run),
                status: Some(GateStatus::Open),
                limit: 1,
                ..GateFilter::default()
            };
            let gates = self.longhaul.list_gates(filter).await?;
            let gate = gates.first().context("the run asks nothing")?;
            let answer = Answer {
                decision: GateDecision::Answer("left".to_owned()),
                by: "cli:bench".to_owned(),
                scope: AnswerScope::Once,
                note: None,
                payload: None,
                digest: gate.spec.digest,
            };
            let store = &self.fixture.store;
            let before = (store.commit_count(), cpu_time_us(), SystemClock.monotonic_nanos());
            self.longhaul.answer_gate(gate.spec.id, answer).await?;
            self.wait_for_milestone(RunMilestone::RequestedModelAgain).await?;
            wall_nanos.push(SystemClock.monotonic_nanos() - before.2);
            cpu_nanos.push(((cpu_time_us() - before.1) * 1e3) as u64);
            commits_max = commits_max.max(self.fixture.store.commit_count() - before.0);
            self.wait_for_milestone(RunMilestone::Completed).await?;
        }
        Ok(ResumeCost {
            runs: cpu_nanos.len(),
            commits_max,
            cpu_us: Percentiles::from(&SortedDurations::new(cpu_nanos)),
            wall_us: Percentiles::from(&SortedDurations::new(wall_nanos)),
        })
    }

    /// Waits for the next milestone that a run reports. Fails if it is not the expected one or
    /// `STEP_TIMEOUT` passes.
    async fn wait_for_milestone(&mut self, expected: RunMilestone) -> anyhow::Result<()> {
        let milestone = tokio::select! {
            milestone = self.milestones.recv() => milestone.context("the worker has stopped")?,
            () = SystemClock.sleep(STEP_TIMEOUT) => bail!("the worker did nothing for {} s", STEP_TIMEOUT.0 / 1_000),
        };
        if milestone != expected {
            bail!("a run did something unexpected: {milestone:?} instead of {expected:?}");
        }
        Ok(())
    }
}

/// A scripted model that reports the second request of each run to the benchmark.
#[derive(Debug)]
struct MilestoneReportingModel {
    model: ScriptedModel,
    milestones: UnboundedSender<RunMilestone>,
}

#[async_trait]
impl Model for MilestoneReportingModel {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        self.model.estimate(request)
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        if request.turn == 2 {
            _ = self.milestones.send(RunMilestone::RequestedModelAgain);
        }
        self.model.generate(request, sink).await
    }
}

/// Hooks (callbacks of the worker) that report when runs are parked (wait for a person) and when
/// they end.
#[derive(Debug)]
struct MilestoneReportingHooks {
    milestones: UnboundedSender<RunMilestone>,
}

#[async_trait]
impl WorkerHooks for MilestoneReportingHooks {
    async fn on_run_completed(&self, _run: &RunRow) {
        _ = self.milestones.send(RunMilestone::Completed);
    }

    async fn on_run_failed(&self, _run: &RunRow) {
        _ = self.milestones.send(RunMilestone::Failed);
    }

    async fn on_run_idle(&self, _run: &RunRow) {
        _ = self.milestones.send(RunMilestone::Parked);
    }
}
