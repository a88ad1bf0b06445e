//! What lives are lived in: a store, the real engine around it, one tool.
//!
//! Never: a shortcut. A run is submitted, claimed and driven like any other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use longhaul::stateless::OneModel;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{AgentName, InboxName, RunId, ToolName};
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

/// A new store, or one that was left.
pub(crate) fn store(file: &Path) -> anyhow::Result<SqliteStore> {
    let url = format!("sqlite:{}", file.display());
    Ok(open(Options::new(
        url,
        Role::Driver,
        Arc::new(SystemClock),
    ))?)
}

/// The engine around a store, with one model and a tool that gives back so many bytes.
pub(crate) fn longhaul(
    store: &Arc<SqliteStore>,
    model: Arc<dyn Model>,
    result_bytes: usize,
) -> anyhow::Result<Longhaul> {
    longhaul_with(store, model, Echo::new(result_bytes, EffectClass::Keyed)?)
}

/// The same with a tool of any class.
pub(crate) fn longhaul_with(
    store: &Arc<SqliteStore>,
    model: Arc<dyn Model>,
    echo: Echo,
) -> anyhow::Result<Longhaul> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let tools = Toolbox::new([Arc::new(echo) as Arc<dyn Tool>])?;
    let tools = tools.with(Arc::new(ReadOutput::new(store.clone(), store.clone())?))?;
    let model = OneModel::new("scripted/bench", model);
    let ports = Ports::plain(store.clone(), clock, Arc::new(model), tools);
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

/// A task that nothing bounds.
pub(crate) fn task() -> Task {
    Task {
        budget: BudgetPatch {
            caps: Raise::default(),
            warn_percent: None,
        },
        ..Task::new("bench", "go")
    }
}

/// Drives these runs to their ends, all at once, and looks that each has lived so
/// many turns.
pub(crate) async fn drive(longhaul: &Longhaul, runs: &[RunId], turns: u32) -> anyhow::Result<()> {
    let stop = Stop::new();
    let mut options = WorkerOptions::new(InboxName::new("default")?);
    options.concurrency = options.concurrency.max(runs.len());
    // The worker itself says when it is over: whoever watched every fact would
    // be measured too.
    let hooks = Arc::new(Enough {
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
struct Enough {
    stop: Stop,
    left: AtomicUsize,
}

impl Enough {
    fn one_less(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.drain();
        }
    }
}

#[async_trait]
impl Hooks for Enough {
    async fn on_complete(&self, _run: &RunRow) {
        self.one_less();
    }

    async fn on_error(&self, _run: &RunRow) {
        self.one_less();
    }
}

/// Gives back a text of a fixed length.
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
        self.class
    }

    async fn call(&self, _input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(Arc::clone(&self.text)))
    }
}
