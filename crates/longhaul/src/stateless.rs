//! The stateless use: history in, result out, nothing kept. Each question has a
//! run of its own over a store in memory that is forgotten with it.
//!
//! Never: a file, a lock or a word to another question. Effects stay: a tool
//! that writes has written.

use std::pin::pin;
use std::sync::Arc;

use longhaul_api::run::UsageView;
use longhaul_core::event::Event;
use longhaul_core::id::{BadId, InboxName, RunId, Seq};
use longhaul_core::message::Message;
use longhaul_core::port::model::Model;
use longhaul_core::port::store::StoreError;
use longhaul_core::port::tool::Tool;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{Fault, Wait};
use longhaul_core::time::Clock;
use longhaul_engine::agent::{Agent, Defaults, Roster};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::ports::{NoEyes, Ports};
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::stop::Stop;
use longhaul_engine::toolbox::{BadTool, Toolbox};
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Error, Longhaul, Task};
use longhaul_store::{Options, Role};
use serde::Serialize;

pub use longhaul_api::history::history;
pub use longhaul_engine::ports::{Eyes, Found, Models, NoModel};

use crate::assemble::FORGOTTEN;

/// One model under its full name, whatever is asked for.
#[derive(Debug, Clone)]
pub struct OneModel(pub Found);

impl OneModel {
    /// This model, as `provider/model`.
    pub fn new(name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        let name = name.into();
        Self(Found { name, model })
    }
}

impl Models for OneModel {
    fn find(&self, _name: Option<&str>) -> Result<Found, NoModel> {
        Ok(self.0.clone())
    }
}

/// Models and tools for questions of which nothing is kept. Clones share them,
/// and nothing else.
#[derive(Debug, Clone)]
pub struct Ephemeral {
    models: Arc<dyn Models>,
    tools: Toolbox,
    eyes: Arc<dyn Eyes>,
    defaults: Defaults,
}

/// What came of a question.
#[derive(Debug, Clone)]
pub struct Outcome {
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
pub enum Unanswered {
    /// The run ended without one.
    #[error("{}: {}", .0.code, .0.message)]
    Failed(Fault),
    /// Somebody would have to be waited for, and nothing is kept to wait with.
    #[error("{0} A run of which nothing is kept can't wait")]
    Waits(String),
    /// The store in memory can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool can't be taken in.
    #[error(transparent)]
    Tool(#[from] BadTool),
    /// A name of ours is none.
    #[error(transparent)]
    Name(#[from] BadId),
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
        models: Arc<dyn Models>,
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
    ) -> Result<Self, BadTool> {
        Ok(Self {
            models,
            tools: Toolbox::new(tools)?,
            eyes: Arc::new(NoEyes),
            defaults: Defaults::default(),
        })
    }

    /// The same for agents with a perception: these find whoever looks for them.
    #[must_use]
    pub fn eyes(self, eyes: Arc<dyn Eyes>) -> Self {
        Self { eyes, ..self }
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
    ) -> Result<Outcome, Unanswered> {
        let task = Task {
            history,
            ..Task::new(agent.name.as_str(), input)
        };
        let longhaul = self.open(agent)?;
        let run = longhaul.submit(task).await?;
        let stop = Stop::new();
        let options = WorkerOptions {
            concurrency: 1,
            ..WorkerOptions::new(InboxName::new("default")?)
        };
        let mut worker = pin!(Worker::new(longhaul.ports(), options).run(stop.clone()));
        let rest = tokio::select! {
            biased;
            rest = rest(&longhaul, run) => rest?,
            // Nobody told it to, so it met a fault.
            worked = worker.as_mut() => {
                worked?;
                return outcome(&longhaul, run, Rest::Ended).await;
            }
        };
        stop.drain();
        worker.await?;
        outcome(&longhaul, run, rest).await
    }

    fn open(&self, agent: Agent) -> Result<Longhaul, Unanswered> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = Options::new(FORGOTTEN, Role::Driver, Arc::clone(&clock));
        let store = Arc::new(longhaul_store::open(options)?);
        let paging = ReadOutput::new(store.clone(), store.clone())?;
        let tools = self.tools.clone().with(Arc::new(paging))?;
        let mut ports = Ports::plain(store, clock, Arc::clone(&self.models), tools);
        ports.eyes = Arc::clone(&self.eyes);
        let mut roster = Roster::default();
        roster.register(Agent {
            // Who could follow up?
            keep_open: None,
            ..agent
        });
        Ok(Longhaul::new(ports, roster, self.defaults))
    }
}

/// How a run came to rest.
enum Rest {
    Ended,
    /// Somebody else would have to speak.
    Waits,
}

/// Returns when a run has ended, or waits for somebody.
async fn rest(longhaul: &Longhaul, run: RunId) -> Result<Rest, Error> {
    let mut watching = longhaul.watch(run, Seq::START).await?;
    while let Some(entries) = watching.next().await? {
        if entries.iter().any(|entry| waits(&entry.event)) {
            return Ok(Rest::Waits);
        }
    }
    Ok(Rest::Ended)
}

/// Whether a run rests until somebody else speaks.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most facts say nothing about who is waited for"
)]
fn waits(event: &Event) -> bool {
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

async fn outcome(longhaul: &Longhaul, run: RunId, rest: Rest) -> Result<Outcome, Unanswered> {
    if let Rest::Waits = rest {
        return Err(Unanswered::Waits(longhaul.why_view(run).await?.sentence));
    }
    let view = longhaul.show(run).await?;
    let Some(output) = view.output else {
        let unknown = || Fault {
            code: view.status.as_str().to_owned(),
            message: view.now,
            hint: String::new(),
        };
        return Err(Unanswered::Failed(view.error.unwrap_or_else(unknown)));
    };
    let messages = longhaul.transcript(run).await?.messages;
    Ok(Outcome {
        text: output.text,
        data: output.data,
        tools_called: view.tools_called,
        usage: view.usage,
        messages: messages.into_iter().map(Arc::unwrap_or_clone).collect(),
    })
}
