//! Test harness: the real engine over an in-memory store, with fake models and tools.
//!
//! Tests wait for events with a timeout and never sleep for a fixed time.

pub(super) mod children;
pub(super) mod context_provider;
pub(super) mod failing_store;
pub(super) mod model;
mod store_fault;
pub(super) mod tool;
pub(super) mod tool_source;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{AgentName, InboxName, RunId, Seq};
use longhaul_core::policy::gate::{Answer, AnswerScope, GateDecision, GateRow, GateStatus};
use longhaul_core::port::redact::Redact;
use longhaul_core::port::store::GateFilter;
use longhaul_core::port::tool::Tool;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::agent::config::{PerceptionConfig, PerceptionInterval, PerceptionSource};
use longhaul_engine::agent::{Agent, AgentRegistry, RunPolicyDefaults};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::sandboxes::SandboxRegistry;
use longhaul_engine::services::{
    ModelResolver, NoContextProviders, NoExternalTools, ResolveModelError, ResolvedModel, Services,
    StorePorts,
};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tools::read_output::ReadOutputTool;
use longhaul_engine::tools::registry::ToolRegistry;
use longhaul_engine::worker::WorkerHooks;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Error, Longhaul, Task};
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::mem_store::MemStore;
use tokio::task::JoinSet;

use crate::suite::harness::context_provider::FakeContextProvider;
use crate::suite::harness::failing_store::FailingStore;
use crate::suite::harness::model::{FakeModel, FakeReply};
use crate::suite::harness::tool::FakeTool;
use crate::suite::harness::tool_source::FakeToolSource;

/// Maximum time that a test waits for an event. Long enough for a machine that is busy with a
/// build.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

const CONTROL_TOOLS: [&str; 5] =
    ["ask_human", "report_blocked", "report_progress", "wait", "finish"];

#[derive(Debug)]
pub(crate) struct TestEngineBuilder {
    pub(crate) agent: Agent,
    pub(crate) replies: Vec<FakeReply>,
    tools: Vec<FakeTool>,
    clock: Option<SimClock>,
    window: Option<u64>,
    compactor: Option<Vec<FakeReply>>,
    context_provider: Option<FakeContextProvider>,
    tool_source: Option<FakeToolSource>,
    sandboxes: SandboxRegistry,
}

/// Creates a builder with these replies for the model.
pub(crate) fn engine_with(replies: impl IntoIterator<Item = FakeReply>) -> TestEngineBuilder {
    TestEngineBuilder {
        agent: Agent {
            tools: CONTROL_TOOLS.iter().map(|name| (*name).to_owned()).collect(),
            prompt: "You are tested.".into(),
            ..Agent::new(AgentName::new("tester").unwrap())
        },
        replies: replies.into_iter().collect(),
        tools: Vec::new(),
        clock: None,
        window: None,
        compactor: None,
        context_provider: None,
        tool_source: None,
        sandboxes: SandboxRegistry::default(),
    }
}

impl TestEngineBuilder {
    /// Adds tools.
    pub(crate) fn tools(mut self, tools: impl IntoIterator<Item = FakeTool>) -> Self {
        for tool in tools {
            self.agent.tools.push(tool.spec.name.to_string());
            self.tools.push(tool);
        }
        self
    }

    pub(crate) fn agent(mut self, change: impl FnOnce(&mut Agent)) -> Self {
        change(&mut self.agent);
        self
    }

    /// Limits the context window of the model to a number of tokens.
    pub(crate) fn window_tokens(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Adds a second model that writes summaries, and gives the first one a name that is not
    /// scripted.
    pub(crate) fn compactor(mut self, replies: impl IntoIterator<Item = FakeReply>) -> Self {
        self.compactor = Some(replies.into_iter().collect());
        self
    }

    /// Adds a context provider.
    pub(crate) fn perception(
        mut self,
        provider: &FakeContextProvider,
        every: PerceptionInterval,
    ) -> Self {
        self.context_provider = Some(provider.clone());
        let source = PerceptionSource::Named("test_provider".into());
        self.agent.perception = Some(PerceptionConfig { source, every });
        self
    }

    /// Adds a source of external tools.
    pub(crate) fn external_tools(mut self, source: &FakeToolSource) -> Self {
        self.tool_source = Some(source.clone());
        self.agent.tools.push(tool_source::SOURCE_NAME.into());
        self
    }

    pub(crate) fn sandboxes(mut self, sandboxes: SandboxRegistry) -> Self {
        self.sandboxes = sandboxes;
        self
    }

    /// Uses a clock that only the test advances.
    pub(crate) fn with_sim_clock(mut self) -> Self {
        self.clock = Some(SimClock::new());
        self
    }

    /// Builds the engine without a worker.
    pub(crate) fn build(self) -> TestEngine {
        let clock: Arc<dyn Clock> = match &self.clock {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(SystemClock),
        };
        let inner = match &self.clock {
            Some(clock) => MemStore::new(clock.clone()),
            None => MemStore::new(SystemClock),
        };
        let auth = Arc::new(inner.clone());
        let store = Arc::new(FailingStore::new(inner));
        let actor = Arc::new(FakeModel::default());
        actor.set_replies(self.replies);
        if let Some(tokens) = self.window {
            actor.set_window(tokens);
        }
        let compactor = self.compactor.map(|replies| {
            let compactor = Arc::new(FakeModel::default());
            compactor.set_replies(replies);
            compactor
        });
        let models = Arc::new(FakeModels {
            model: actor.clone(),
            compactor,
            compactor_missing: AtomicBool::new(false),
            missing_message: Mutex::default(),
        });
        let read_output = ReadOutputTool::new(store.clone(), store.clone());
        let tools = self.tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>);
        let tools = tools.chain([Arc::new(read_output) as Arc<dyn Tool>]);
        let tools = ToolRegistry::new(tools).unwrap();
        let services = Services {
            store: store.clone(),
            records: store.clone(),
            tool_source: match self.tool_source {
                Some(source) => Arc::new(source),
                None => Arc::new(NoExternalTools),
            },
            context_providers: match self.context_provider {
                Some(provider) => Arc::new(provider),
                None => Arc::new(NoContextProviders),
            },
            redact: Arc::new(OneSecret),
            sandboxes: self.sandboxes,
            ..Services::new(StorePorts::new(auth), clock, models.clone(), tools)
        };
        let mut agents = AgentRegistry::default();
        agents.register(self.agent);
        TestEngine {
            longhaul: Longhaul::new(services, agents, RunPolicyDefaults::default()),
            model: actor,
            store,
            models,
            clock: self.clock,
            workers: JoinSet::new(),
        }
    }

    /// Builds the engine with one worker.
    pub(crate) fn start(self) -> TestEngine {
        let mut engine = self.build();
        engine.spawn_worker(|_| {});
        engine
    }
}

/// The only secret that the engine redacts.
pub(crate) const SECRET: &str = "xyzzy-plugh";

/// Redacts the only secret.
#[derive(Debug)]
struct OneSecret;

impl Redact for OneSecret {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match text.contains(SECRET) {
            true => text.replace(SECRET, "{{secret:WORD}}").into(),
            false => text.into(),
        }
    }

    fn partial_secret_suffix_len(&self, text: &str) -> usize {
        let prefix_lens = (1..SECRET.len()).rev();
        let mut prefix_lens = prefix_lens.filter(|end| text.ends_with(&SECRET[..*end]));
        prefix_lens.next().unwrap_or(0)
    }
}

/// A model resolver with one model or two, which can be made unavailable.
#[derive(Debug)]
pub(crate) struct FakeModels {
    model: Arc<FakeModel>,
    /// Model that writes summaries.
    pub(crate) compactor: Option<Arc<FakeModel>>,
    /// Whether the second model is configured but unavailable.
    pub(crate) compactor_missing: AtomicBool,
    /// Error message of a missing model. `None` means that the model is available.
    pub(crate) missing_message: Mutex<Option<&'static str>>,
}

impl ModelResolver for FakeModels {
    fn resolve_model_name(&self, name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
        if let Some(message) = *self.missing_message.lock().unwrap() {
            return Err(ResolveModelError::NotConfigured(message.to_owned()));
        }
        if name == Some("other/helper") && self.compactor_missing.load(Ordering::Relaxed) {
            return Err(ResolveModelError::NotConfigured(
                "There is no `other/helper` here.".to_owned(),
            ));
        }
        let requested = name.filter(|name| name.contains('/'));
        let (name, model) = match (&self.compactor, name) {
            (Some(compactor), Some("compact" | "other/helper")) => ("other/helper", compactor),
            (Some(_), _) => ("other/actor", &self.model),
            (None, _) => (requested.unwrap_or("scripted/actor"), &self.model),
        };
        let (name, model) = (name.to_owned(), model.clone());
        Ok(ResolvedModel { name, model })
    }

    fn idle_tick_model_of_same_provider(&self, name: Option<&str>) -> Option<String> {
        let (provider, _) = name?.split_once('/')?;
        (provider == "real").then(|| "real/provider-idle".to_owned())
    }
}

/// An engine with its store and workers.
#[derive(Debug)]
pub(crate) struct TestEngine {
    pub(crate) longhaul: Longhaul,
    pub(crate) model: Arc<FakeModel>,
    pub(crate) store: Arc<FailingStore>,
    pub(crate) models: Arc<FakeModels>,
    pub(crate) clock: Option<SimClock>,
    pub(crate) workers: JoinSet<Result<(), Error>>,
}

impl TestEngine {
    /// Starts a worker. The returned signal shuts it down.
    pub(crate) fn spawn_worker(&mut self, change: impl FnOnce(&mut WorkerOptions)) -> Shutdown {
        let options = self.options(change);
        self.spawn(Worker::new(self.longhaul.services(), options))
    }

    /// Starts a worker with hooks.
    pub(crate) fn spawn_worker_with_hooks(&mut self, hooks: Arc<dyn WorkerHooks>) -> Shutdown {
        self.spawn_worker_with(|_| {}, |worker| worker.with_hooks(hooks))
    }

    /// Starts a worker with these options and settings.
    pub(crate) fn spawn_worker_with(
        &mut self,
        change: impl FnOnce(&mut WorkerOptions),
        set: impl FnOnce(Worker) -> Worker,
    ) -> Shutdown {
        let options = self.options(change);
        self.spawn(set(Worker::new(self.longhaul.services(), options)))
    }

    /// Starts a worker that fires schedules.
    pub(crate) fn spawn_worker_with_schedules(&mut self) -> Shutdown {
        let options = self.options(|_| {});
        let worker = Worker::new(self.longhaul.services(), options);
        self.spawn(worker.with_schedules(&self.longhaul))
    }

    fn options(&self, change: impl FnOnce(&mut WorkerOptions)) -> WorkerOptions {
        let mut options = WorkerOptions {
            poll: Millis(50),
            drain_timeout: Millis(30),
            ..WorkerOptions::new(InboxName::new("default").unwrap())
        };
        if self.clock.is_some() {
            // Otherwise every worker would count as dead in a test that advances the clock by days.
            options.lease = Millis::from_secs(1_000_000_000);
        }
        change(&mut options);
        options
    }

    fn spawn(&mut self, worker: Worker) -> Shutdown {
        let stop = Shutdown::new();
        self.workers.spawn(worker.run(stop.clone()));
        stop
    }

    /// Waits until a worker has shut down without an error.
    pub(crate) async fn worker_stopped(&mut self) {
        let joined = tokio::time::timeout(TIMEOUT, self.workers.join_next()).await;
        let joined = joined.expect("the worker shuts down").expect("a worker was running");
        joined.expect("the worker does not panic").expect("the worker does not fail");
    }

    /// Submits a task.
    pub(crate) async fn submit(&self) -> RunId {
        let task = Task::new("tester", "Do it.");
        self.longhaul.submit(task).await.unwrap()
    }

    /// Returns the journal from `after` up to the first event of this kind.
    pub(crate) async fn until_after(
        &self,
        run: RunId,
        after: Seq,
        kind: &str,
    ) -> Vec<JournalEntry> {
        let mut entries: Vec<JournalEntry> = Vec::new();
        let mut watcher = self.longhaul.watch_run_journal(run, after).await.unwrap();
        let found =
            |entries: &[JournalEntry]| entries.iter().position(|entry| entry.event.kind() == kind);
        let search = async {
            while found(&entries).is_none() {
                match watcher.next().await.unwrap() {
                    Some(more) => entries.extend(more),
                    None => break,
                }
            }
        };
        let _ = tokio::time::timeout(TIMEOUT, search).await;
        match found(&entries) {
            Some(index) => {
                entries.truncate(index + 1);
                entries
            }
            None => panic!("no {kind} in {:?}", kinds(&entries)),
        }
    }

    /// Returns the journal up to the first event of this kind.
    pub(crate) async fn until(&self, run: RunId, kind: &str) -> Vec<JournalEntry> {
        self.until_after(run, Seq::START, kind).await
    }

    /// Returns the whole journal of a run that ends, and checks that the model saw only valid
    /// conversations.
    pub(crate) async fn ended(&self, run: RunId) -> Vec<JournalEntry> {
        let mut entries: Vec<JournalEntry> = Vec::new();
        let mut watcher = self.longhaul.watch_run_journal(run, Seq::START).await.unwrap();
        let search = async {
            while let Some(more) = watcher.next().await.unwrap() {
                entries.extend(more);
            }
        };
        let result = tokio::time::timeout(TIMEOUT, search).await;
        assert!(result.is_ok(), "the run does not end: {:?}", kinds(&entries));
        assert_eq!(self.model.violations(), Vec::<String>::new());
        entries
    }

    /// Advances the clock second by second until there is an event of this kind.
    pub(crate) async fn advance_until(&self, run: RunId, kind: &str) -> Vec<JournalEntry> {
        let clock = self.clock.as_ref().expect("a simulated clock");
        let mut entries: Vec<JournalEntry> = Vec::new();
        let mut watcher = self.longhaul.watch_run_journal(run, Seq::START).await.unwrap();
        let advance = async {
            while !entries.iter().any(|entry| entry.event.kind() == kind) {
                let result = tokio::time::timeout(Duration::from_millis(2), watcher.next()).await;
                match result {
                    Ok(more) => entries.extend(more.unwrap().unwrap_or_default()),
                    Err(_) => drop(clock.advance(Millis::from_secs(1))),
                }
            }
        };
        let _ = tokio::time::timeout(TIMEOUT, advance).await;
        let found = entries.iter().any(|entry| entry.event.kind() == kind);
        assert!(found, "no {kind} in {:?}", kinds(&entries));
        entries
    }

    /// Returns the newest open gate of a run, once the run is parked.
    pub(crate) async fn gate(&self, run: RunId) -> GateRow {
        let mut watcher = self.longhaul.watch_run_journal(run, Seq::START).await.unwrap();
        let search = async {
            loop {
                let row = self.longhaul.services().store.get_run(run).await.unwrap().unwrap();
                let open = self.open_gates(run).await;
                match open.last() {
                    Some(gate) if row.worker.is_none() && is_idle(row.status) => {
                        return gate.clone();
                    }
                    Some(_) | None => assert!(!row.status.is_terminal(), "the run has ended"),
                }
                watcher.next().await.unwrap();
            }
        };
        let found = tokio::time::timeout(TIMEOUT, search).await;
        found.expect("the run parks at a gate")
    }

    pub(crate) async fn open_gates(&self, run: RunId) -> Vec<GateRow> {
        let filter = GateFilter {
            run: Some(run),
            status: Some(GateStatus::Open),
            limit: 100,
            ..GateFilter::default()
        };
        self.longhaul.list_gates(filter).await.unwrap()
    }

    /// Returns the tool results in the last model request.
    pub(crate) fn results(&self) -> Vec<(String, bool)> {
        model::results(self.model.requests().last().expect("the model was called"))
    }

    /// Returns the user messages in the last model request.
    pub(crate) fn user_texts(&self) -> Vec<String> {
        model::user_texts(self.model.requests().last().expect("the model was called"))
    }
}

const fn is_idle(status: Status) -> bool {
    matches!(status, Status::Waiting | Status::Blocked | Status::Paused)
}

/// Returns the kinds of the events.
pub(crate) fn kinds(journal: &[JournalEntry]) -> Vec<&'static str> {
    journal.iter().map(|entry| entry.event.kind()).collect()
}

/// Counts the events of a kind.
pub(crate) fn count(journal: &[JournalEntry], kind: &str) -> usize {
    journal.iter().filter(|entry| entry.event.kind() == kind).count()
}

/// Returns how a journal ends: the text of the result, the code of the failure, or the kind of the
/// last event.
pub(crate) fn outcome_text(journal: &[JournalEntry]) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only events that end a run matter here")]
    match &journal.last().expect("the journal is not empty").event {
        Event::RunCompleted(done) => done.output.text.clone(),
        Event::RunFailed(failed) => failed.error.code.clone(),
        other => other.kind().to_owned(),
    }
}

/// Builds an answer to a gate, for the input that the gate shows.
pub(crate) fn answer(gate: &GateRow, decision: GateDecision) -> Answer {
    Answer {
        decision,
        by: "cli:anna".into(),
        scope: AnswerScope::Once,
        note: None,
        payload: None,
        digest: gate.spec.digest,
    }
}
