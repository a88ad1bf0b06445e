//! What turns are measured in: a new store, the real engine around it, one model and one tool.
//! There is no shortcut: a run is submitted, claimed and driven like any other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use longhaul::stateless::OneModel;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{AgentName, InboxName, RunId, ToolName};
use longhaul_core::message::Message;
use longhaul_core::policy::budget::{Budget, Raise};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::Model;
use longhaul_core::port::store::RunRow;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::status::Status;
use longhaul_core::time::Clock;
use longhaul_engine::agent::wish::Guards;
use longhaul_engine::agent::{Agent, BudgetPatch, Defaults, Roster};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::ports::Ports;
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::stop::Stop;
use longhaul_engine::toolbox::Toolbox;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Longhaul, Task};
use longhaul_store::{Options, Role, SqliteStore, open};
use serde_json::{Value, json};

use crate::bench::measure::{Meter, TurnCost};
use crate::bench::model_source::ModelSource;

/// Turns of the run before the one that counts: statements are prepared and code is read in once a
/// process, not once a turn.
pub(crate) const WARM_UP_TURNS: u32 = 3;

/// A new store, or one that is there.
pub(crate) fn open_store(file: &Path) -> anyhow::Result<SqliteStore> {
    let url = format!("sqlite:{}", file.display());
    Ok(open(Options::new(
        url,
        Role::Driver,
        Arc::new(SystemClock),
    ))?)
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
pub(crate) struct Executed {
    longhaul: Longhaul,
    runs: Vec<RunId>,
    pub(crate) cost: TurnCost,
}

impl Executed {
    /// Folds the journals: how many bytes the model and the tools have said in them.
    pub(crate) async fn said_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for run in &self.runs {
            let folded = self.longhaul.fold(*run).await?;
            let messages = folded.transcript().messages().iter();
            let said = messages.filter(|message| !matches!(***message, Message::User(_)));
            bytes += said.map(|message| message.bytes()).sum::<u64>();
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
    pub(crate) async fn warm_up(&self) -> anyhow::Result<Executed> {
        self.execute(WARM_UP_TURNS, 1).await
    }

    /// Executes so many runs of so many turns at once.
    pub(crate) async fn execute(&self, turns: u32, runs: u32) -> anyhow::Result<Executed> {
        self.execute_with(self.source.model(turns)?, turns, runs)
            .await
    }

    /// The same with a model that calls the tool so many times.
    pub(crate) async fn execute_with(
        &self,
        model: Arc<dyn Model>,
        turns: u32,
        runs: u32,
    ) -> anyhow::Result<Executed> {
        let longhaul = self.engine(model)?;
        let task = || Task {
            // Nothing bounds it.
            budget: BudgetPatch {
                caps: Raise::default(),
                warn_percent: None,
            },
            ..Task::new("bench", "go")
        };
        let submitted = longhaul
            .submit_all((0..runs).map(|_| task()).collect())
            .await?;
        let runs = submitted.runs().to_vec();
        let meter = Meter::start(&self.store);
        drive(&longhaul, &runs, turns).await?;
        let cost = meter.cost(turns * u32::try_from(runs.len())?);
        Ok(Executed {
            longhaul,
            runs,
            cost,
        })
    }

    fn engine(&self, model: Arc<dyn Model>) -> anyhow::Result<Longhaul> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let echo = Echo::new(self.result_bytes, self.class)?;
        let tools = Toolbox::new([Arc::new(echo) as Arc<dyn Tool>])?;
        let (journal, shelves) = (self.store.clone(), self.store.clone());
        let tools = tools.with(Arc::new(ReadOutput::new(journal, shelves)?))?;
        let model = OneModel::new("scripted/bench", model);
        let ports = Ports::plain(self.store.clone(), clock, Arc::new(model), tools);
        let mut roster = Roster::default();
        roster.register(Agent {
            tools: vec!["echo".to_owned()],
            prompt: "You are measured.".to_owned(),
            // It does the same again and again because that is what is measured.
            guards: Some(Guards {
                identical_calls: None,
            }),
            ..Agent::new(AgentName::new("bench")?)
        });
        let defaults = Defaults {
            budget: Budget::default(),
            ..Defaults::default()
        };
        Ok(Longhaul::new(ports, roster, defaults))
    }
}

/// Drives these runs to their ends, all at once, and checks that each had so many turns.
async fn drive(longhaul: &Longhaul, runs: &[RunId], turns: u32) -> anyhow::Result<()> {
    let stop = Stop::new();
    let mut options = WorkerOptions::new(InboxName::new("default")?);
    options.concurrency = options.concurrency.max(runs.len());
    // The worker itself tells when it is done: a reader of every event would be measured too.
    let hooks = Arc::new(StopAtLast {
        stop: stop.clone(),
        left: AtomicUsize::new(runs.len()),
    });
    let worker = Worker::new(longhaul.ports(), options).hooks(hooks);
    worker.run(stop).await?;
    for run in runs {
        let row = longhaul.ports().store.row(*run).await?;
        let row = row.context("the run is gone")?;
        if row.status != Status::Completed || row.turns != turns + 1 {
            bail!("the run is {:?} after {} turns", row.status, row.turns);
        }
    }
    Ok(())
}

/// Stops the worker at the end of the last run.
#[derive(Debug)]
struct StopAtLast {
    stop: Stop,
    left: AtomicUsize,
}

#[async_trait]
impl Hooks for StopAtLast {
    async fn on_complete(&self, _run: &RunRow) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.drain();
        }
    }

    async fn on_error(&self, run: &RunRow) {
        self.on_complete(run).await;
    }
}

/// Returns a text of a fixed length.
#[derive(Debug)]
pub(crate) struct Echo {
    card: ToolCard,
    text: Arc<str>,
    class: EffectClass,
}

impl Echo {
    /// So many bytes, by calls of this class.
    pub(crate) fn new(bytes: usize, class: EffectClass) -> anyhow::Result<Self> {
        Ok(Self {
            class,
            card: ToolCard {
                name: ToolName::new("echo")?,
                description: "Returns a text.".to_owned(),
                schema: json!({ "type": "object", "properties": { "n": { "type": "integer" } } }),
                verifies: false,
                in_doubt: None,
                timeout: None,
            },
            text: "x".repeat(bytes).into(),
        })
    }
}

#[async_trait]
impl Tool for Echo {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    async fn call(&self, _input: Value, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(Arc::clone(&self.text)))
    }
}
