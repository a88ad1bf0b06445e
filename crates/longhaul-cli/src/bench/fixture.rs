//! What turns are measured in: a new store, the real engine around it, one model and one tool.
//! There is no shortcut: a run is submitted, claimed and driven like any other.

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
use longhaul_engine::agent::{Agent, AgentRegistry, BudgetPatch, Defaults};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::services::EngineServices;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tool_registry::ToolRegistry;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Longhaul, Task};
use longhaul_store::{OpenMode, SqliteStore, StoreOptions, open};
use serde_json::{Value, json};

use crate::bench::measure::{TurnCost, TurnMeter};
use crate::bench::model_source::ModelSource;

/// Turns of the run before the one that counts: statements are prepared and code is read in once a
/// process, not once a turn.
pub(crate) const WARM_UP_TURNS: u32 = 3;

/// A new store, or one that is there.
pub(crate) fn open_store(file: &Path) -> anyhow::Result<SqliteStore> {
    let url = format!("sqlite:{}", file.display());
    Ok(open(StoreOptions::new(url, OpenMode::Driver, Arc::new(SystemClock)))?)
}

/// A store, and what its runs are made of.
pub(crate) struct Fixture {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) source: ModelSource,
    /// Length of each tool's result.
    pub(crate) result_bytes: usize,
    /// Effect class of the tool's calls.
    pub(crate) class: EffectClass,
}

/// Runs that were driven to their ends.
pub(crate) struct ExecutionResult {
    longhaul: Longhaul,
    runs: Vec<RunId>,
    pub(crate) cost: TurnCost,
}

impl ExecutionResult {
    /// Folds the journals: how many bytes the model and the tools have said in them.
    pub(crate) async fn transcript_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for run in &self.runs {
            let folded = self.longhaul.fold(*run).await?;
            let messages = folded.transcript().messages().iter();
            let said = messages.filter(|message| !matches!(***message, Message::User(_)));
            bytes += said.map(|message| message.estimated_bytes()).sum::<u64>();
        }
        Ok(bytes)
    }
}

impl Fixture {
    /// A new store with a tool whose calls go side by side.
    pub(crate) fn new(
        file: &Path,
        source: ModelSource,
        result_bytes: usize,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            store: Arc::new(open_store(file)?),
            source,
            result_bytes,
            class: EffectClass::Keyed,
        })
    }

    /// A short run before those that count.
    pub(crate) async fn warm_up(&self) -> anyhow::Result<ExecutionResult> {
        self.execute(WARM_UP_TURNS, 1).await
    }

    /// Executes so many runs of so many turns at once.
    pub(crate) async fn execute(&self, turns: u32, runs: u32) -> anyhow::Result<ExecutionResult> {
        self.execute_with(self.source.model(turns)?, turns, runs).await
    }

    /// The same with a model that calls the tool so many times.
    pub(crate) async fn execute_with(
        &self,
        model: Arc<dyn Model>,
        turns: u32,
        runs: u32,
    ) -> anyhow::Result<ExecutionResult> {
        let longhaul = self.build_engine(model)?;
        let task = || Task {
            // Nothing bounds it.
            budget: BudgetPatch { caps: BudgetRaise::default(), warn_percent: None },
            ..Task::new("bench", "go")
        };
        let submitted = longhaul.submit_all((0..runs).map(|_| task()).collect()).await?;
        let runs = submitted.runs().to_vec();
        let meter = TurnMeter::start(&self.store);
        drive_to_end(&longhaul, &runs, turns).await?;
        let cost = meter.cost(turns * u32::try_from(runs.len())?);
        Ok(ExecutionResult { longhaul, runs, cost })
    }

    fn build_engine(&self, model: Arc<dyn Model>) -> anyhow::Result<Longhaul> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let echo = EchoTool::new(self.result_bytes, self.class)?;
        let tools = ToolRegistry::new([Arc::new(echo) as Arc<dyn Tool>])?;
        let (journal, shelves) = (self.store.clone(), self.store.clone());
        let tools = tools.with_tool(Arc::new(ReadOutput::new(journal, shelves)?))?;
        let model = SingleModel::new("scripted/bench", model);
        let ports = EngineServices::minimal(self.store.clone(), clock, Arc::new(model), tools);
        let mut roster = AgentRegistry::default();
        roster.register(Agent {
            tools: vec!["echo".to_owned()],
            prompt: "You are measured.".to_owned(),
            // It does the same again and again because that is what is measured.
            guards: Some(LoopGuardConfig { identical_calls: None }),
            ..Agent::new(AgentName::new("bench")?)
        });
        let defaults = Defaults { budget: Budget::default(), ..Defaults::default() };
        Ok(Longhaul::new(ports, roster, defaults))
    }
}

/// Drives these runs to their ends, all at once, and checks that each had so many turns.
async fn drive_to_end(longhaul: &Longhaul, runs: &[RunId], turns: u32) -> anyhow::Result<()> {
    let stop = Shutdown::new();
    let mut options = WorkerOptions::new(InboxName::new("default")?);
    options.concurrency = options.concurrency.max(runs.len());
    // The worker itself tells when it is done: a reader of every event would be measured too.
    let hooks =
        Arc::new(StopAfterLast { shutdown: stop.clone(), remaining: AtomicUsize::new(runs.len()) });
    let worker = Worker::new(longhaul.services(), options).with_hooks(hooks);
    worker.run(stop).await?;
    for run in runs {
        let row = longhaul.services().store.get_run(*run).await?;
        let row = row.context("the run is gone")?;
        if row.status != Status::Completed || row.turns != turns + 1 {
            bail!("the run is {:?} after {} turns", row.status, row.turns);
        }
    }
    Ok(())
}

/// Stops the worker at the end of the last run.
#[derive(Debug)]
struct StopAfterLast {
    shutdown: Shutdown,
    remaining: AtomicUsize,
}

#[async_trait]
impl Hooks for StopAfterLast {
    async fn on_complete(&self, _run: &RunRow) {
        if self.remaining.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shutdown.drain();
        }
    }

    async fn on_error(&self, run: &RunRow) {
        self.on_complete(run).await;
    }
}

/// Returns a text of a fixed length.
#[derive(Debug)]
pub(crate) struct EchoTool {
    spec: ToolSpec,
    text: Arc<str>,
    class: EffectClass,
}

impl EchoTool {
    /// So many bytes, by calls of this class.
    pub(crate) fn new(bytes: usize, class: EffectClass) -> anyhow::Result<Self> {
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
            text: "x".repeat(bytes).into(),
        })
    }
}

#[async_trait]
impl Tool for EchoTool {
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
