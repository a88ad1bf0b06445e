//! The stateless use: history in, result out, nothing kept. Each question has a
//! run of its own over a store in memory that is forgotten with it.
//!
//! Never: a file, a lock or a word to another question. Effects stay: a tool
//! that writes has written.

use std::pin::pin;
use std::sync::Arc;

use longhaul_api::run::UsageView;
use longhaul_core::event::Event;
use longhaul_core::id::{IdError, InboxName, RunId, Seq};
use longhaul_core::message::Message;
use longhaul_core::port::model::Model;
use longhaul_core::port::store::StoreError;
use longhaul_core::port::tool::Tool;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{RunError, Wait};
use longhaul_core::time::Clock;
use longhaul_engine::agent::{Agent, AgentRegistry, Defaults};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::services::{EngineServices, NoContextProviders};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tool_registry::{ToolRegistrationError, ToolRegistry};
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Error, Longhaul, Task};
use longhaul_store::{OpenMode, StoreOptions};
use serde::Serialize;

pub use longhaul_api::history::parse_history;
pub use longhaul_engine::services::{ContextProviders, ModelError, ModelResolver, ResolvedModel};

use crate::assemble::IN_MEMORY_URL;

/// One model under its full name, whatever is asked for.
#[derive(Debug, Clone)]
pub struct SingleModel(pub ResolvedModel);

impl SingleModel {
    /// This model, as `provider/model`.
    pub fn new(name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        let name = name.into();
        Self(ResolvedModel { name, model })
    }
}

impl ModelResolver for SingleModel {
    fn resolve(&self, _name: Option<&str>) -> Result<ResolvedModel, ModelError> {
        Ok(self.0.clone())
    }
}

/// Models and tools for questions of which nothing is kept. Clones share them,
/// and nothing else.
#[derive(Debug, Clone)]
pub struct Ephemeral {
    models: Arc<dyn ModelResolver>,
    tools: ToolRegistry,
    context_providers: Arc<dyn ContextProviders>,
    defaults: Defaults,
}

/// What came of a question.
#[derive(Debug, Clone)]
pub struct EphemeralOutcome {
    /// The final words.
    pub text: String,
    /// The structured answer.
    pub data: Option<RawJson>,
    /// The tools called, in order and with repeats.
    pub tools_called: Vec<String>,
    /// Tokens.
    pub usage: UsageView,
    /// The whole conversation: the history of the next question.
    pub messages: Vec<Message>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum EphemeralError {
    /// The run ended without one.
    #[error("{}: {}", .0.code, .0.message)]
    Failed(RunError),
    /// Somebody would have to be waited for, and nothing is kept to wait with.
    #[error("{0} A run of which nothing is kept can't wait")]
    WouldWait(String),
    /// The store in memory can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool can't be taken in.
    #[error(transparent)]
    Tool(#[from] ToolRegistrationError),
    /// A name of ours is none.
    #[error(transparent)]
    InvalidId(#[from] IdError),
    /// The engine refuses, or met a fault.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Ephemeral {
    /// For questions to these models with these tools.
    ///
    /// # Errors
    /// The schema of a tool is broken, or two have one name.
    pub fn new(
        models: Arc<dyn ModelResolver>,
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
    ) -> Result<Self, ToolRegistrationError> {
        Ok(Self {
            models,
            tools: ToolRegistry::new(tools)?,
            context_providers: Arc::new(NoContextProviders),
            defaults: Defaults::default(),
        })
    }

    /// The same for agents with a perception: these find whoever looks for them.
    #[must_use]
    pub fn context_providers(self, eyes: Arc<dyn ContextProviders>) -> Self {
        Self { context_providers: eyes, ..self }
    }

    /// The same with these caps and retries where the agent names none.
    #[must_use]
    pub fn defaults(self, defaults: Defaults) -> Self {
        Self { defaults, ..self }
    }

    /// Asks an agent, after this history. To stop waiting ends the run.
    ///
    /// # Errors
    /// The run failed, or would have to wait for somebody; or a name or a tool can't be used.
    pub async fn ask(
        &self,
        agent: Agent,
        history: Vec<Message>,
        input: impl Serialize,
    ) -> Result<EphemeralOutcome, EphemeralError> {
        let task = Task { history, ..Task::new(agent.name.as_str(), input) };
        let longhaul = self.open(agent)?;
        let run = longhaul.submit(task).await?;
        let stop = Shutdown::new();
        let options =
            WorkerOptions { concurrency: 1, ..WorkerOptions::new(InboxName::new("default")?) };
        let mut worker = pin!(Worker::new(longhaul.services(), options).run(stop.clone()));
        let rest = tokio::select! {
            biased;
            rest = wait_until_stopped(&longhaul, run) => rest?,
            // Nobody told it to, so it met a fault.
            worked = worker.as_mut() => {
                worked?;
                return build_outcome(&longhaul, run, RunStop::Ended).await;
            }
        };
        stop.drain();
        worker.await?;
        build_outcome(&longhaul, run, rest).await
    }

    fn open(&self, agent: Agent) -> Result<Longhaul, EphemeralError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = StoreOptions::new(IN_MEMORY_URL, OpenMode::Driver, Arc::clone(&clock));
        let store = Arc::new(longhaul_store::open(options)?);
        let paging = ReadOutput::new(store.clone(), store.clone())?;
        let tools = self.tools.clone().with_tool(Arc::new(paging))?;
        let mut ports = EngineServices::minimal(store, clock, Arc::clone(&self.models), tools);
        ports.context_providers = Arc::clone(&self.context_providers);
        let mut roster = AgentRegistry::default();
        roster.register(Agent {
            // Who could follow up?
            keep_open: None,
            ..agent
        });
        Ok(Longhaul::new(ports, roster, self.defaults))
    }
}

/// How a run came to rest.
enum RunStop {
    Ended,
    /// Somebody else would have to speak.
    Waiting,
}

/// Returns when a run has ended, or waits for somebody.
async fn wait_until_stopped(longhaul: &Longhaul, run: RunId) -> Result<RunStop, Error> {
    let mut watching = longhaul.watch(run, Seq::START).await?;
    while let Some(entries) = watching.next().await? {
        if entries.iter().any(|entry| needs_input(&entry.event)) {
            return Ok(RunStop::Waiting);
        }
    }
    Ok(RunStop::Ended)
}

/// Whether a run rests until somebody else speaks.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most facts say nothing about who is waited for"
)]
fn needs_input(event: &Event) -> bool {
    match event {
        Event::RunWaiting(waiting) => match waiting.wait {
            Wait::Approval(_)
            | Wait::Question(_)
            | Wait::Blocked(_)
            | Wait::Budget(_)
            | Wait::Signal(_)
            | Wait::Message(_) => true,
            Wait::Timer(_)
            | Wait::Child(_)
            | Wait::RateLimit(_)
            | Wait::Retry(_)
            | Wait::SandboxSlot
            | Wait::Worker => false,
        },
        Event::RunBlocked(_) | Event::RunPaused(_) => true,
        _ => false,
    }
}

async fn build_outcome(
    longhaul: &Longhaul,
    run: RunId,
    rest: RunStop,
) -> Result<EphemeralOutcome, EphemeralError> {
    if let RunStop::Waiting = rest {
        return Err(EphemeralError::WouldWait(longhaul.why_view(run).await?.message));
    }
    let view = longhaul.show(run).await?;
    let Some(output) = view.output else {
        let unknown = || RunError {
            code: view.status.as_str().to_owned(),
            message: view.now,
            hint: String::new(),
        };
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
