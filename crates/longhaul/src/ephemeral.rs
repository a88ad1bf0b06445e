//! Runs an agent without storing anything: the caller passes the history and gets the result. Each
//! request has its own run in its own store in memory, which is discarded afterwards.
//!
//! Requests create no files and no locks and share no state. Effects of tools are not undone: a
//! file that a tool wrote is kept.

use std::sync::Arc;

use longhaul_api::run::UsageView;
use longhaul_core::event::Event;
use longhaul_core::id::{IdError, InboxName, RunId, Seq};
use longhaul_core::message::Message;
use longhaul_core::port::model::Model;
use longhaul_core::port::store::StoreError;
use longhaul_core::port::tool::Tool;
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunError;
use longhaul_core::time::{Clock, Millis};
use longhaul_core::wait::WaitEnd;
use longhaul_engine::agent::{Agent, AgentRegistry, RunPolicyDefaults};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::services::{NoContextProviders, Services, StorePorts};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tools::read_output::ReadOutputTool;
use longhaul_engine::tools::registry::{ToolRegistrationError, ToolRegistry};
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Error, Longhaul, RUN_AGENT, Task};
use longhaul_store::{OpenMode, StoreOptions};
use serde::Serialize;

pub use longhaul_api::history::parse_history;
pub use longhaul_engine::services::{
    ContextProviders, ModelResolver, ResolveModelError, ResolvedModel,
};

use crate::assemble::IN_MEMORY_URL;

/// Model resolver that returns the same model for every name.
#[derive(Debug, Clone)]
pub struct SingleModel(pub ResolvedModel);

impl SingleModel {
    /// Creates a resolver for this model. `model_name` has the form `provider/model`.
    pub fn new(model_name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        Self(ResolvedModel { name: model_name.into(), model })
    }
}

impl ModelResolver for SingleModel {
    fn resolve_model_name(&self, _name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
        Ok(self.0.clone())
    }
}

/// Client for ephemeral runs (runs that are not stored), with the models and tools they use. Cheap
/// to clone; clones share only the models, tools and context providers.
#[must_use = "nothing runs until `ask` is called"]
#[derive(Debug, Clone)]
pub struct Ephemeral {
    models: Arc<dyn ModelResolver>,
    tools: ToolRegistry,
    context_providers: Arc<dyn ContextProviders>,
    defaults: RunPolicyDefaults,
}

/// Result of an ephemeral run (a run that is not stored).
#[derive(Debug, Clone)]
pub struct EphemeralOutcome {
    /// Final text of the agent.
    pub text: String,
    /// Structured output of the agent. `None` means that the agent has no output schema.
    pub data: Option<RawJson>,
    /// Names of the called tools in the order of the calls. A tool that was called twice occurs
    /// twice.
    pub tools_called: Vec<String>,
    /// Token usage of the run.
    pub usage: UsageView,
    /// Complete conversation of the run, usable as the history of the next request.
    pub messages: Vec<Message>,
}

/// Reason why an ephemeral run (a run that is not stored) has no result.
#[derive(Debug, thiserror::Error)]
pub enum EphemeralError {
    /// The run failed or was cancelled.
    #[error("{}: {}", .0.code, .0.message)]
    Failed(RunError),
    /// The run would have to wait for a person or an external event, which an ephemeral run can't
    /// do.
    #[error("{wait_text} An ephemeral run can't wait for a person or an event", wait_text = .0)]
    WouldWait(String),
    /// The agent has an effect key (an effect with such a key happens at most once over all runs).
    /// An ephemeral run can't check that, since it does not see the calls of other runs.
    #[error(
        "the agent `{agent}` has an effect key for `{tool}`, which can't be checked in an ephemeral \
         run: the calls of other runs are in the store"
    )]
    EffectKey {
        /// Name of the agent that has an effect key.
        agent: String,
        /// Pattern of the names of the tools whose calls have an effect key.
        tool: String,
    },
    /// The store in memory can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool can't be registered.
    #[error(transparent)]
    Tool(#[from] ToolRegistrationError),
    /// A name, such as that of the agent, is not a valid id.
    #[error(transparent)]
    InvalidId(#[from] IdError),
    /// The engine rejected the request or failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Ephemeral {
    /// Creates a client with these models and tools.
    ///
    /// # Errors
    /// The schema of a tool is invalid, or two tools have the same name.
    pub fn new(
        models: Arc<dyn ModelResolver>,
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
    ) -> Result<Self, ToolRegistrationError> {
        Ok(Self {
            models,
            tools: ToolRegistry::new(tools)?,
            context_providers: Arc::new(NoContextProviders),
            defaults: RunPolicyDefaults::default(),
        })
    }

    /// Sets the context providers: sources of data about the outside world, for agents that use
    /// `perception`.
    pub fn context_providers(self, context_providers: Arc<dyn ContextProviders>) -> Self {
        Self { context_providers, ..self }
    }

    /// Sets the default limits and numbers of retries for agents that do not define them.
    pub fn defaults(self, defaults: RunPolicyDefaults) -> Self {
        Self { defaults, ..self }
    }

    /// Runs an agent on this input, with this history before it. Dropping the future ends the run.
    ///
    /// # Errors
    /// The run failed or would have to wait for somebody, or a name or a tool is invalid.
    pub async fn ask(
        &self,
        agent: Agent,
        history: Vec<Message>,
        input: impl Serialize,
    ) -> Result<EphemeralOutcome, EphemeralError> {
        let task = Task { history, ..Task::new(agent.name.as_str(), input) };
        let longhaul = self.open_engine(agent)?;
        let run = longhaul.submit(task).await?;
        let stop = Shutdown::new();
        let options =
            WorkerOptions { concurrency: 1, ..WorkerOptions::new(InboxName::new("default")?) };
        // On the heap, because the futures of a worker and of a view are large.
        let mut worker = Box::pin(Worker::new(longhaul.services(), options).run(stop.clone()));
        let is_waiting = tokio::select! {
            biased;
            is_waiting = wait_until_run_stopped(&longhaul, run) => Some(is_waiting?),
            // The worker was not asked to stop, so it failed.
            worked = worker.as_mut() => { worked?; None }
        };
        if is_waiting.is_some() {
            stop.request_drain();
            worker.await?;
        }
        Box::pin(build_ephemeral_outcome(&longhaul, run, is_waiting.unwrap_or(false))).await
    }

    fn open_engine(&self, agent: Agent) -> Result<Longhaul, EphemeralError> {
        check_no_effect_keys(&agent)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = StoreOptions::new(IN_MEMORY_URL, OpenMode::Driver, Arc::clone(&clock));
        let store = Arc::new(longhaul_store::open_sqlite_store(options)?);
        let paging = ReadOutputTool::new(store.clone(), store.clone());
        let tools = self.tools.clone().with_tool(Arc::new(paging))?;
        let mut services =
            Services::new(StorePorts::new(store), clock, Arc::clone(&self.models), tools);
        services.context_providers = Arc::clone(&self.context_providers);
        let mut agents = AgentRegistry::default();
        agents.register(Agent {
            // A follow-up message can't reach an ephemeral run.
            keep_open: None,
            // A child run could wait for a person without anybody noticing.
            tools: agent.tools.into_iter().filter(|tool| tool != RUN_AGENT).collect(),
            ..agent
        });
        let mut defaults = self.defaults;
        // Nobody can look at an ephemeral run while it waits for hours, so it fails instead.
        defaults.retry.outage = Millis::ZERO;
        Ok(Longhaul::new(services, agents, defaults))
    }
}

/// Checks that the agent has no effect keys (names of effects that happen at most once over all
/// runs).
///
/// # Errors
/// The agent has an effect key. An ephemeral run does not see the calls of other runs.
pub fn check_no_effect_keys(agent: &Agent) -> Result<(), EphemeralError> {
    match agent.effects.iter().find(|rule| rule.key.is_some()) {
        None => Ok(()),
        Some(rule) => Err(EphemeralError::EffectKey {
            agent: agent.name.to_string(),
            tool: rule.tool.clone(),
        }),
    }
}

/// Waits until the run has ended, or waits for a person or an external event. Returns whether it
/// waits.
async fn wait_until_run_stopped(longhaul: &Longhaul, run: RunId) -> Result<bool, Error> {
    let mut journal = longhaul.watch_run_journal(run, Seq::START).await?;
    while let Some(entries) = journal.next().await? {
        if entries.iter().any(|entry| is_wait_for_outside_event(&entry.event)) {
            return Ok(true);
        }
        for entry in &entries {
            // A child run is for example the one that grades the result.
            if let Event::ChildStarted(started) = &entry.event
                && Box::pin(wait_until_run_stopped(longhaul, started.child)).await?
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether this event means that the run waits for a person or an external event.
#[expect(clippy::wildcard_enum_match_arm, reason = "most events do not make a run wait")]
fn is_wait_for_outside_event(event: &Event) -> bool {
    match event {
        Event::RunWaiting(waiting) => match waiting.wait.row().ended_by {
            WaitEnd::Person | WaitEnd::Program | WaitEnd::Period | WaitEnd::OtherRun => true,
            WaitEnd::Provider | WaitEnd::Child | WaitEnd::Runtime => false,
        },
        Event::RunBlocked(_) | Event::RunPaused(_) => true,
        _ => false,
    }
}

async fn build_ephemeral_outcome(
    longhaul: &Longhaul,
    run: RunId,
    is_waiting: bool,
) -> Result<EphemeralOutcome, EphemeralError> {
    if is_waiting {
        return Err(EphemeralError::WouldWait(longhaul.explain_run(run).await?.message));
    }
    let view = longhaul.get_run(run).await?;
    let Some(output) = view.output else {
        let unknown = || RunError::new(view.status.as_str(), view.now, "");
        return Err(EphemeralError::Failed(view.error.unwrap_or_else(unknown)));
    };
    let messages = longhaul.transcript(run).await?.messages;
    Ok(EphemeralOutcome {
        text: output.text,
        data: output.data,
        tools_called: view.tools_called,
        usage: view.usage,
        messages: messages.into_iter().map(Arc::unwrap_or_clone).collect(),
    })
}
