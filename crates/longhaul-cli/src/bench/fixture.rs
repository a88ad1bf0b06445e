//! The fixture for measuring turns: a new store, the real engine, one model and one tool. Runs are
//! submitted, claimed and driven as in production.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use longhaul::ephemeral::SingleModel;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{AgentName, InboxName, RunId, ToolName};
use longhaul_core::message::Message;
use longhaul_core::policy::budget::{Budget, BudgetRaise};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::Model;
use longhaul_core::port::store::RunRow;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::status::Status;
use longhaul_core::time::Clock;
use longhaul_engine::agent::config::LoopGuardConfig;
use longhaul_engine::agent::{Agent, AgentRegistry, BudgetPatch, RunPolicyDefaults};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::hooks::WorkerHooks;
use longhaul_engine::read_output::ReadOutputTool;
use longhaul_engine::services::EngineServices;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tool_registry::ToolRegistry;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Longhaul, Task};
use longhaul_store::{OpenMode, SqliteStore, StoreOptions, open_sqlite_store};
use serde_json::{Value, json};

use crate::bench::measure::{TurnCost, TurnMeter};
use crate::bench::model_source::ModelSource;

/// Number of turns of the warm-up run. The warm-up keeps one-time costs of the process, such as
/// preparing statements and loading code, out of the measurement.
pub(crate) const WARM_UP_TURNS: u32 = 3;

/// Opens the store in this file in order to drive its runs. Creates the store if it is missing.
pub(crate) fn open_bench_store(file: &Path) -> anyhow::Result<SqliteStore> {
    let url = format!("sqlite:{}", file.display());
    Ok(open_sqlite_store(StoreOptions::new(url, OpenMode::Driver, Arc::new(SystemClock)))?)
}

/// A store for measured runs, the model of these runs, and the parameters of their tool.
pub(crate) struct BenchFixture {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) source: ModelSource,
    /// Length of each tool result, in bytes.
    pub(crate) result_bytes: usize,
    /// Effect class of the tool's calls, which decides whether they run in parallel.
    pub(crate) class: EffectClass,
}

/// The runs that were executed, and the average cost of their turns.
pub(crate) struct BenchRunsResult {
    longhaul: Longhaul,
    runs: Vec<RunId>,
    pub(crate) cost: TurnCost,
}

impl BenchRunsResult {
    /// Returns the total length of the runs' model replies and tool results, in bytes.
    pub(crate) async fn measure_transcript_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for run in &self.runs {
            let replayed_run = self.longhaul.replay_run(*run).await?;
            let messages = replayed_run.transcript().messages().iter();
            let replies = messages.filter(|message| !matches!(***message, Message::User(_)));
            bytes += replies.map(|message| message.estimated_bytes()).sum::<u64>();
        }
        Ok(bytes)
    }
}

impl BenchFixture {
    /// Creates a fixture with a new store in this file and a tool whose calls run in parallel.
    pub(crate) fn new(
        file: &Path,
        source: ModelSource,
        result_bytes: usize,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            store: Arc::new(open_bench_store(file)?),
            source,
            result_bytes,
            class: EffectClass::Keyed,
        })
    }

    /// Executes one short run, so that one-time costs are not measured later.
    pub(crate) async fn execute_warm_up_run(&self) -> anyhow::Result<BenchRunsResult> {
        self.execute_runs(WARM_UP_TURNS, 1).await
    }

    /// Executes `runs` concurrent runs of `turns` turns each.
    pub(crate) async fn execute_runs(
        &self,
        turns: u32,
        runs: u32,
    ) -> anyhow::Result<BenchRunsResult> {
        self.execute_runs_with_model(self.source.create_model(turns)?, turns, runs).await
    }

    /// Executes `runs` concurrent runs with this model. The model must end each run after `turns`
    /// turns.
    pub(crate) async fn execute_runs_with_model(
        &self,
        model: Arc<dyn Model>,
        turns: u32,
        runs: u32,
    ) -> anyhow::Result<BenchRunsResult> {
        let longhaul = self.build_engine(model)?;
        let task = || Task {
            // No limits.
            budget: BudgetPatch { caps: BudgetRaise::default(), warn_percent: None },
            ..Task::new("bench", "go")
        };
        let submitted = longhaul.submit_all((0..runs).map(|_| task()).collect()).await?;
        let runs = submitted.run_ids().to_vec();
        let meter = TurnMeter::start_metering(&self.store);
        drive_runs_to_end(&longhaul, &runs, turns).await?;
        let cost = meter.average_turn_cost(turns * u32::try_from(runs.len())?);
        Ok(BenchRunsResult { longhaul, runs, cost })
    }

    /// Builds an engine with this model on the store of this fixture.
    pub(crate) fn build_engine(&self, model: Arc<dyn Model>) -> anyhow::Result<Longhaul> {
        self.build_engine_with_tools(model, &["echo"])
    }

    /// Builds an engine with this model and with an agent that has these tools.
    pub(crate) fn build_engine_with_tools(
        &self,
        model: Arc<dyn Model>,
        tool_names: &[&str],
    ) -> anyhow::Result<Longhaul> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let echo = FixedTextTool::new(self.result_bytes, self.class)?;
        let tools = ToolRegistry::new([Arc::new(echo) as Arc<dyn Tool>])?;
        let (journal, records) = (self.store.clone(), self.store.clone());
        let tools = tools.with_tool(Arc::new(ReadOutputTool::new(journal, records)?))?;
        let model = SingleModel::new("scripted/bench", model);
        let services =
            EngineServices::from_single_store(self.store.clone(), clock, Arc::new(model), tools);
        let mut agents = AgentRegistry::default();
        agents.register(Agent {
            tools: tool_names.iter().map(|name| (*name).to_owned()).collect(),
            prompt: "You are measured.".to_owned(),
            // The benchmark repeats identical calls on purpose.
            guards: Some(LoopGuardConfig::OFF),
            ..Agent::new(AgentName::new("bench")?)
        });
        let defaults =
            RunPolicyDefaults { budget: Budget::default(), ..RunPolicyDefaults::default() };
        Ok(Longhaul::new(services, agents, defaults))
    }
}

/// Drives these runs to their ends, concurrently, and checks that each took the expected turns.
async fn drive_runs_to_end(longhaul: &Longhaul, runs: &[RunId], turns: u32) -> anyhow::Result<()> {
    let stop = Shutdown::new();
    let mut options = WorkerOptions::new(InboxName::new("default")?);
    options.concurrency = options.concurrency.max(runs.len());
    // A hook detects the end. A reader of every event would be measured too.
    let hooks = Arc::new(StopAfterLastRunHooks {
        shutdown: stop.clone(),
        remaining: AtomicUsize::new(runs.len()),
    });
    let worker = Worker::new(longhaul.services(), options).with_hooks(hooks);
    worker.run(stop).await?;
    for run in runs {
        let row = longhaul.services().store.get_run(*run).await?;
        let row = row.context("the run was not found")?;
        if row.status != Status::Completed || row.turns != turns + 1 {
            bail!("the run is {:?} after {} turns", row.status, row.turns);
        }
    }
    Ok(())
}

/// Hooks (callbacks of the worker) that stop the worker when the last run has ended.
#[derive(Debug)]
struct StopAfterLastRunHooks {
    shutdown: Shutdown,
    remaining: AtomicUsize,
}

#[async_trait]
impl WorkerHooks for StopAfterLastRunHooks {
    async fn on_run_completed(&self, _run: &RunRow) {
        if self.remaining.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shutdown.request_drain();
        }
    }

    async fn on_run_failed(&self, run: &RunRow) {
        self.on_run_completed(run).await;
    }
}

/// A tool that returns a text of a fixed length.
#[derive(Debug)]
pub(crate) struct FixedTextTool {
    spec: ToolSpec,
    text: Arc<str>,
    class: EffectClass,
}

impl FixedTextTool {
    /// Creates a tool that returns `text_bytes` bytes of text. Its calls have this effect class,
    /// which also decides whether they run in parallel.
    pub(crate) fn new(text_bytes: usize, class: EffectClass) -> anyhow::Result<Self> {
        Ok(Self {
            class,
            spec: ToolSpec {
                name: ToolName::new("echo")?,
                description: "Returns a text.".to_owned(),
                schema: json!({ "type": "object", "properties": { "n": { "type": "integer" } } }),
                can_verify: false,
                in_doubt: None,
                timeout: None,
            },
            text: "x".repeat(text_bytes).into(),
        })
    }
}

#[async_trait]
impl Tool for FixedTextTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    async fn call(&self, _input: Value, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(Arc::clone(&self.text)))
    }
}
