//! The fixture of the benchmarks: a runtime in a project folder of its own, with one agent, scripted
//! models and one tool. Runs are submitted, claimed and driven as in any program.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use longhaul::models::{
    CostEstimate, DeltaSink, Failure, Model, ModelRequest, ModelResponse, ScriptedModel, scripted,
};
use longhaul::policy::LoopGuardConfig;
use longhaul::schemars::JsonSchema;
use longhaul::tools::{self, EffectClass, ToolContext, ToolFailure, ToolOutput, TypedTool};
use longhaul::{Agent, Mode, RunHandle, Runtime, Task, Worker, async_trait};
use serde::Deserialize;

use crate::measure::{Cost, Counter, Meter};
use crate::process::MockModel;

/// Settings of the project: budgets that no run reaches, and lanes of any length.
const SETTINGS: &str =
    "[budget]\nturns = 1000000\nactive_time = \"24h\"\n[lanes]\ndepth = 10000000\n";

/// Number of tasks that are submitted at once.
pub(crate) const BATCH: u32 = 1_000;

/// Parameters of a fixture.
#[derive(Debug, Clone)]
pub(crate) struct FixtureSpec<'a> {
    /// Folder of the project, which is created. A process drives at most one store per folder.
    pub(crate) folder: PathBuf,
    /// Names and contents of the scripts that the models play.
    pub(crate) scripts: Vec<(String, String)>,
    /// Server that plays the scripts. `None` means that they are played in this process.
    pub(crate) mock: Option<&'a MockModel>,
    /// Length of each tool result, in bytes.
    pub(crate) result_bytes: usize,
}

/// A runtime whose runs are measured.
pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) store_file: PathBuf,
    /// Requests to the models that are played in this process.
    pub(crate) requests: Arc<Counter>,
    model_prefix: &'static str,
}

/// Returns the name of the script with this number of turns.
pub(crate) fn script_name(turns: u32) -> String {
    format!("turns-{turns}")
}

/// Returns a script that calls the tool in each of `turns` turns and then ends the run.
pub(crate) fn script_of_turns(turns: u32) -> (String, String) {
    let turn = "  - text: Looking at the next one.\n    tools: [{ name: echo, input: { n: 1 } }]\n    \
                usage: { input_tokens: 1000, output_tokens: 20 }\n";
    let script = match turns {
        0 => "replies: [{ text: Done. }]".to_owned(),
        _ => {
            format!("replies:\n{turn}  - text: Done.\nloop: {{ from: 0, to: 1, times: {turns} }}\n")
        }
    };
    (script_name(turns), script)
}

impl Fixture {
    pub(crate) async fn open(spec: FixtureSpec<'_>) -> anyhow::Result<Self> {
        let FixtureSpec { folder, scripts, mock, result_bytes } = spec;
        std::fs::create_dir_all(&folder)?;
        let mut settings = SETTINGS.to_owned();
        let requests = Arc::new(Counter::default());
        let mut builder = Runtime::builder().project(&folder);
        if let Some(mock) = mock {
            settings.push_str(&mock.provider_settings());
            for (name, _) in &scripts {
                // No conversation reaches this window, so none is compacted.
                settings.push_str(&format!(
                    "[prices.\"mock/{name}\"]\ninput = 0\noutput = 0\nwindow = 1000000000000\n"
                ));
            }
        } else {
            for (name, script) in &scripts {
                let model = scripted(name, script)?;
                let model = CountedModel { model, requests: Arc::clone(&requests) };
                builder = builder.model(name, model);
            }
        }
        std::fs::write(folder.join("longhaul.toml"), settings)?;
        let model_prefix = if mock.is_some() { "mock/" } else { "" };
        let first = &scripts.first().context("a fixture needs a script")?.0;
        let agent = Agent::new("bench")
            .model(format!("{model_prefix}{first}"))
            .prompt("You are measured.")
            .tool(tools::typed(EchoTool("x".repeat(result_bytes).into())))
            .tool("ask_human")
            // Identical calls are repeated on purpose.
            .define(|agent| agent.guards = Some(LoopGuardConfig::OFF));
        let runtime = builder.agent(agent).open().await?;
        let store_file = folder.join(".longhaul/longhaul.db");
        Ok(Self { runtime, store_file, requests, model_prefix })
    }

    /// Returns a task whose model plays the script with this name.
    pub(crate) fn task(&self, script: &str) -> Task {
        Task::new("bench").model(format!("{}{script}", self.model_prefix)).input("go")
    }

    /// Submits `count` tasks that `task` creates from their numbers.
    pub(crate) async fn submit(
        &self,
        count: u32,
        task: impl Fn(u32) -> Task,
    ) -> anyhow::Result<Vec<RunHandle>> {
        let mut runs = Vec::new();
        for first in (0..count).step_by(BATCH as usize) {
            let tasks = (first..count.min(first + BATCH)).map(&task);
            runs.extend_from_slice(self.runtime.submit_all(tasks, Mode::Parallel).await?.runs());
        }
        Ok(runs)
    }

    /// Executes `runs` concurrent runs of `turns` turns each. Returns them and their total cost.
    pub(crate) async fn execute(
        &self,
        turns: u32,
        runs: u32,
    ) -> anyhow::Result<(Vec<RunHandle>, Cost)> {
        let handles = self.submit(runs, |_| self.task(&script_name(turns))).await?;
        let (ends, ended_turns) = (Arc::new(Counter::default()), Arc::new(AtomicU32::new(0)));
        ends.expect(runs);
        let (completed, failed) = (Arc::clone(&ends), Arc::clone(&ends));
        let total = Arc::clone(&ended_turns);
        let worker =
            self.worker(runs).on_task_error(move |_| failed.add()).on_task_complete(move |run| {
                total.fetch_add(run.turns, Ordering::Relaxed);
                completed.add();
            });
        let meter = Meter::start(&self.store_file)?;
        let worker = worker.spawn();
        ends.wait("the end of the runs").await?;
        let cost = meter.cost()?;
        worker.stop().await?;
        // The reply that ends a run completes a turn too.
        let (found, expected) = (ended_turns.load(Ordering::Relaxed), runs * (turns + 1));
        ensure!(found == expected, "the runs completed {found} turns instead of {expected}");
        Ok((handles, cost))
    }

    /// Returns a worker that drives this many runs at the same time.
    pub(crate) fn worker(&self, concurrency: u32) -> Worker {
        self.runtime.worker().max_concurrent(concurrency as usize)
    }
}

/// Returns the size of a file, or 0 if it does not exist.
pub(crate) fn file_bytes(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// A scripted model whose requests are counted.
#[derive(Debug)]
struct CountedModel {
    model: ScriptedModel,
    requests: Arc<Counter>,
}

#[async_trait]
impl Model for CountedModel {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        self.model.estimate(request)
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        self.requests.add();
        self.model.generate(request, sink).await
    }
}

/// A tool that returns a text of a fixed length.
#[derive(Debug)]
struct EchoTool(Arc<str>);

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "longhaul::schemars")]
struct EchoInput {
    #[serde(rename = "n")]
    _n: u32,
}

#[async_trait]
impl TypedTool for EchoTool {
    type Input = EchoInput;
    const NAME: &'static str = "echo";
    const DESCRIPTION: &'static str = "Returns a text.";
    const CLASS: EffectClass = EffectClass::Keyed;

    async fn call(&self, _: EchoInput, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(Arc::clone(&self.0)))
    }
}
