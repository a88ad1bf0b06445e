//! One run of many turns, through the real engine and the real store.
//!
//! Never: a shortcut. It is submitted, claimed and driven like any other.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{AgentName, InboxName, RunId, ToolName};
use longhaul_core::message::Message;
use longhaul_core::policy::budget::{Budget, Raise};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::store::RunRow;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::status::Status;
use longhaul_core::time::Clock;
use longhaul_engine::agent::{Agent, BudgetPatch, Defaults, Roster};
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_engine::feed::Feed;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::mint::UuidMint;
use longhaul_engine::nudge::Nudges;
use longhaul_engine::ports::{Definitions, Found, Models, Ports};
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::stop::Stop;
use longhaul_engine::tail::Tail;
use longhaul_engine::toolbox::Toolbox;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Longhaul, Task};
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_run::Run;
use longhaul_store::{Options, Role, SqliteStore, open};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// So long is the life before the one that counts.
pub(crate) const WARM_UP_TURNS: u32 = 3;

/// A life to be lived.
pub(crate) struct Life {
    pub(crate) turns: u32,
    pub(crate) result_bytes: usize,
}

/// A life that was lived.
#[derive(Debug)]
pub(crate) struct Lived {
    pub(crate) turns: u32,
    commits: u64,
    cpu_us: f64,
    wall_us: f64,
    stored: u64,
    said: u64,
    /// How long the whole journal takes to fold.
    pub(crate) fold_ms: f64,
}

impl Lived {
    fn each(&self, sum: f64) -> f64 {
        sum / f64::from(self.turns)
    }

    pub(crate) fn commits_per_turn(&self) -> f64 {
        self.each(self.commits as f64)
    }

    pub(crate) fn cpu_us_per_turn(&self) -> f64 {
        self.each(self.cpu_us)
    }

    pub(crate) fn wall_us_per_turn(&self) -> f64 {
        self.each(self.wall_us)
    }

    /// The warm-up is stored too.
    pub(crate) fn stored_per_turn(&self) -> f64 {
        self.stored as f64 / f64::from(self.turns + WARM_UP_TURNS)
    }

    pub(crate) fn said_per_turn(&self) -> f64 {
        self.said as f64 / f64::from(self.turns + WARM_UP_TURNS)
    }

    pub(crate) fn stored_per_said(&self) -> f64 {
        self.stored as f64 / self.said.max(1) as f64
    }
}

impl Life {
    /// Lives it in a new store.
    pub(crate) async fn live(&self, file: &Path) -> anyhow::Result<Lived> {
        let empty = self.size_of_nothing(file)?;
        let store = Arc::new(store(file)?);
        let mut said = self.warm_up(&store).await?;
        let longhaul = self.longhaul(&store)?;
        let run = longhaul.submit(self.task()).await?;
        let before = (store.commits(), cpu_us()?, Stopwatch::start());
        self.drive(&longhaul, run).await?;
        let commits = store.commits() - before.0;
        let cpu_us = cpu_us()? - before.1;
        let wall_us = before.2.nanos() as f64 / 1_000.0;
        let folding = Stopwatch::start();
        let folded = longhaul.fold(run).await?;
        let fold_ms = folding.nanos() as f64 / 1_000_000.0;
        said += said_in(&folded);
        drop((longhaul, folded, store));
        let stored = std::fs::metadata(file)?.len().saturating_sub(empty);
        Ok(Lived {
            turns: self.turns,
            commits,
            cpu_us,
            wall_us,
            stored,
            said,
            fold_ms,
        })
    }

    /// A short life before the one that counts: statements are prepared and code
    /// is read in once a process, not once a turn. What was said in it.
    async fn warm_up(&self, store: &Arc<SqliteStore>) -> anyhow::Result<u64> {
        let short = Self {
            turns: WARM_UP_TURNS,
            result_bytes: self.result_bytes,
        };
        let longhaul = short.longhaul(store)?;
        let run = longhaul.submit(short.task()).await?;
        short.drive(&longhaul, run).await?;
        Ok(said_in(&longhaul.fold(run).await?))
    }

    async fn drive(&self, longhaul: &Longhaul, run: RunId) -> anyhow::Result<()> {
        let stop = Stop::new();
        let options = WorkerOptions::new(InboxName::new("default")?);
        // The worker itself says when it is over: whoever watched every fact
        // would be measured too.
        let hooks = Arc::new(Enough(stop.clone()));
        let worker = Worker::new(longhaul.ports(), options).hooks(hooks);
        worker.run(stop).await?;
        let row = longhaul.ports().store.row(run).await?;
        let row = row.context("the run is gone")?;
        if row.status != Status::Completed || row.turns != self.turns + 1 {
            bail!("the run is {:?} after {} turns", row.status, row.turns);
        }
        Ok(())
    }

    /// What a store takes before anything is in it.
    fn size_of_nothing(&self, file: &Path) -> anyhow::Result<u64> {
        let empty = file
            .with_file_name(format!("empty-{}", self.turns))
            .join("empty.db");
        drop(store(&empty)?);
        Ok(std::fs::metadata(&empty)?.len())
    }

    fn longhaul(&self, store: &Arc<SqliteStore>) -> anyhow::Result<Longhaul> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let tools = Toolbox::new([Arc::new(Echo::new(self.result_bytes)?) as Arc<dyn Tool>])?;
        let tools = tools.with(Arc::new(ReadOutput::new(store.clone(), store.clone())?))?;
        let script = format!(
            "replies:\n  - text: \"Looking at the next one.\"\n    tools: [{{ name: echo, input: {{ n: 1 }} }}]\n    \
             usage: {{ input_tokens: 1000, output_tokens: 20 }}\n  - text: \"Done.\"\nloop: {{ from: 0, to: 1, times: {} }}\n",
            self.turns
        );
        let script = Script::parse("bench", &script)?;
        let model = ScriptedModel::new("bench", script, clock.clone());
        let ports = Ports {
            store: store.clone(),
            shelves: store.clone(),
            keyring: store.clone(),
            mint: Arc::new(UuidMint),
            models: Arc::new(OneModel(Arc::new(model))),
            tools: Arc::new(tools),
            feed: Feed::default(),
            tail: Tail::default(),
            nudges: Nudges::default(),
            definitions: Definitions::default(),
            clock,
        };
        let mut roster = Roster::default();
        roster.register(Agent {
            tools: vec!["echo".to_owned()],
            prompt: "You are measured.".to_owned(),
            ..Agent::new(AgentName::new("bench")?)
        });
        let defaults = Defaults {
            budget: Budget::default(),
            ..Defaults::default()
        };
        Ok(Longhaul::new(ports, roster, defaults))
    }

    fn task(&self) -> Task {
        Task {
            budget: BudgetPatch {
                caps: Raise::default(),
                warn_percent: None,
            },
            ..Task::new("bench", "go")
        }
    }
}

/// The bytes that the model and the tools have said.
fn said_in(run: &Run) -> u64 {
    let messages = run.transcript().messages().iter();
    messages
        .filter(|message| !matches!(***message, Message::User(_)))
        .map(|message| message.bytes())
        .sum()
}

fn store(file: &Path) -> anyhow::Result<SqliteStore> {
    let url = format!("sqlite:{}", file.display());
    Ok(open(Options::new(
        url,
        Role::Driver,
        Arc::new(SystemClock),
    ))?)
}

/// The CPU time of this process so far.
fn cpu_us() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Ok(time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3)
}

/// Stops the worker at the end of its run.
#[derive(Debug)]
struct Enough(Stop);

#[async_trait]
impl Hooks for Enough {
    async fn on_complete(&self, _run: &RunRow) {
        self.0.drain();
    }

    async fn on_error(&self, _run: &RunRow) {
        self.0.drain();
    }
}

/// The one model of the bench.
#[derive(Debug)]
struct OneModel(Arc<ScriptedModel>);

impl Models for OneModel {
    fn find(&self, _name: Option<&str>) -> Result<Found, String> {
        Ok(Found {
            name: self.0.name().to_owned(),
            model: self.0.clone(),
        })
    }
}

/// Gives back a text of a fixed length.
#[derive(Debug)]
struct Echo {
    card: ToolCard,
    text: Arc<str>,
}

impl Echo {
    fn new(bytes: usize) -> anyhow::Result<Self> {
        Ok(Self {
            card: ToolCard {
                name: ToolName::new("echo")?,
                description: "Gives back a text.".to_owned(),
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
        EffectClass::Keyed
    }

    async fn call(&self, _input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(Arc::clone(&self.text)))
    }
}
