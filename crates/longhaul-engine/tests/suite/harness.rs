//! The real engine in a test's hands: handle and workers over a store in
//! memory, a model and tools that do what the test wrote down.
//!
//! Never: a bare sleep. Facts are waited for, with a deadline.

pub(super) mod context_provider;
pub(super) mod failing_store;
pub(super) mod model;
pub(super) mod tool;
pub(super) mod tool_source;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{AgentName, InboxName, RunId, Seq};
use longhaul_core::policy::gate::{Answer, Decision, GateRow, GateStatus, Scope};
use longhaul_core::port::redact::Redact;
use longhaul_core::port::store::GateFilter;
use longhaul_core::port::tool::Tool;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::agent::config::{PerceptionConfig, PerceptionInterval, PerceptionSource};
use longhaul_engine::agent::{Agent, AgentRegistry, Defaults};
use longhaul_engine::changes::ChangeFeed;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::deltas::DeltaBroadcast;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::id_gen::UuidV7Generator;
use longhaul_engine::notifier::DriverNotifier;
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::services::{
    DefinitionCache, EngineServices, ModelError, ModelResolver, NoContextProviders,
    NoExternalTools, ResolvedModel,
};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tool_registry::ToolRegistry;
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

/// So long a test waits for a fact before it fails; long enough for a machine that
/// builds something else beside it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The tools that the heart knows.
const CONTROL_TOOLS: [&str; 5] =
    ["ask_human", "report_blocked", "report_progress", "wait", "finish"];

/// What a test wants.
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
}

/// A plan with these lines for the model.
pub(crate) fn engine_with(lines: impl IntoIterator<Item = FakeReply>) -> TestEngineBuilder {
    TestEngineBuilder {
        agent: Agent {
            tools: CONTROL_TOOLS.iter().map(|name| (*name).to_owned()).collect(),
            prompt: "You are tested.".into(),
            ..Agent::new(AgentName::new("tester").unwrap())
        },
        replies: lines.into_iter().collect(),
        tools: Vec::new(),
        clock: None,
        window: None,
        compactor: None,
        context_provider: None,
        tool_source: None,
    }
}

impl TestEngineBuilder {
    /// With these tools.
    pub(crate) fn tools(mut self, hands: impl IntoIterator<Item = FakeTool>) -> Self {
        for hand in hands {
            self.agent.tools.push(hand.spec.name.to_string());
            self.tools.push(hand);
        }
        self
    }

    /// With an agent that is a little different.
    pub(crate) fn agent(mut self, change: impl FnOnce(&mut Agent)) -> Self {
        change(&mut self.agent);
        self
    }

    /// With a model into whose window so many tokens fit.
    pub(crate) fn window_tokens(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// With a second model that sums up, and a first that is not played back.
    pub(crate) fn compactor(mut self, lines: impl IntoIterator<Item = FakeReply>) -> Self {
        self.compactor = Some(lines.into_iter().collect());
        self
    }

    /// With somebody who looks at the world.
    pub(crate) fn perception(
        mut self,
        witness: &FakeContextProvider,
        every: PerceptionInterval,
    ) -> Self {
        self.context_provider = Some(witness.clone());
        let eye = PerceptionSource::Named("witness".into());
        self.agent.perception = Some(PerceptionConfig { source: eye, every });
        self
    }

    /// With tools that others bring.
    pub(crate) fn external_tools(mut self, stock: &FakeToolSource) -> Self {
        self.tool_source = Some(stock.clone());
        self.agent.tools.push(tool_source::SOURCE_NAME.into());
        self
    }

    /// With a clock that only the test moves.
    pub(crate) fn with_sim_clock(mut self) -> Self {
        self.clock = Some(SimClock::new());
        self
    }

    /// The house, with nobody at work in it.
    pub(crate) fn build(self) -> TestEngine {
        let clock: Arc<dyn Clock> = match &self.clock {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(SystemClock),
        };
        let behind = match &self.clock {
            Some(clock) => MemStore::new(clock.clone()),
            None => MemStore::new(SystemClock),
        };
        let keyring = Arc::new(behind.clone());
        let store = Arc::new(FailingStore::new(behind));
        let actor = Arc::new(FakeModel::default());
        actor.set_replies(self.replies);
        if let Some(tokens) = self.window {
            actor.set_window(tokens);
        }
        let helper = self.compactor.map(|lines| {
            let helper = Arc::new(FakeModel::default());
            helper.set_replies(lines);
            helper
        });
        let models = Arc::new(FakeModels {
            model: actor.clone(),
            compactor: helper,
            compactor_missing: AtomicBool::new(false),
            missing_message: Mutex::default(),
        });
        let paging = ReadOutput::new(store.clone(), store.clone()).unwrap();
        let hands = self.tools.into_iter().map(|hand| Arc::new(hand) as Arc<dyn Tool>);
        let ports = EngineServices {
            store: store.clone(),
            records: store.clone(),
            auth: keyring,
            clock,
            ids: Arc::new(UuidV7Generator),
            models: models.clone(),
            tools: Arc::new(
                ToolRegistry::new(hands.chain([Arc::new(paging) as Arc<dyn Tool>])).unwrap(),
            ),
            tool_source: match self.tool_source {
                Some(stock) => Arc::new(stock),
                None => Arc::new(NoExternalTools),
            },
            context_providers: match self.context_provider {
                Some(witness) => Arc::new(witness),
                None => Arc::new(NoContextProviders),
            },
            redact: Arc::new(OneSecret),
            deltas: DeltaBroadcast::default(),
            changes: ChangeFeed::default(),
            notifier: DriverNotifier::default(),
            definitions: DefinitionCache::default(),
        };
        let mut roster = AgentRegistry::default();
        roster.register(self.agent);
        TestEngine {
            longhaul: Longhaul::new(ports, roster, Defaults::default()),
            model: actor,
            store,
            models,
            clock: self.clock,
            workers: JoinSet::new(),
        }
    }

    /// The house, with one worker in it.
    pub(crate) fn start(self) -> TestEngine {
        let mut house = self.build();
        house.spawn_worker(|_| {});
        house
    }
}

/// The one secret of the house.
pub(crate) const SECRET: &str = "xyzzy-plugh";

/// Knows the one secret.
#[derive(Debug)]
struct OneSecret;

impl Redact for OneSecret {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match text.contains(SECRET) {
            true => text.replace(SECRET, "{{secret:WORD}}").into(),
            false => text.into(),
        }
    }

    fn partial_match_len(&self, text: &str) -> usize {
        let begun = (1..SECRET.len()).rev();
        let mut begun = begun.filter(|end| text.ends_with(&SECRET[..*end]));
        begun.next().unwrap_or(0)
    }
}

/// Models by name: one of them, unless it is gone.
#[derive(Debug)]
pub(crate) struct FakeModels {
    model: Arc<FakeModel>,
    /// Who sums up.
    pub(crate) compactor: Option<Arc<FakeModel>>,
    /// It is known and not there.
    pub(crate) compactor_missing: AtomicBool,
    /// What is missing.
    pub(crate) missing_message: Mutex<Option<&'static str>>,
}

impl ModelResolver for FakeModels {
    fn resolve(&self, name: Option<&str>) -> Result<ResolvedModel, ModelError> {
        if let Some(sentence) = *self.missing_message.lock().unwrap() {
            return Err(ModelError::NotConfigured(sentence.to_owned()));
        }
        if name == Some("other/helper") && self.compactor_missing.load(Ordering::Relaxed) {
            return Err(ModelError::NotConfigured("There is no `other/helper` here.".to_owned()));
        }
        let named = name.filter(|name| name.contains('/'));
        let (name, model) = match (&self.compactor, name) {
            (Some(helper), Some("compact" | "other/helper")) => ("other/helper", helper),
            (Some(_), _) => ("other/actor", &self.model),
            (None, _) => (named.unwrap_or("scripted/actor"), &self.model),
        };
        let (name, model) = (name.to_owned(), model.clone());
        Ok(ResolvedModel { name, model })
    }
}

/// A store, a handle, and whoever works.
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
    /// One worker more; what is given back stops it.
    pub(crate) fn spawn_worker(&mut self, change: impl FnOnce(&mut WorkerOptions)) -> Shutdown {
        let options = self.options(change);
        self.spawn(Worker::new(self.longhaul.services(), options))
    }

    /// One worker more that tells somebody.
    pub(crate) fn spawn_worker_with_hooks(&mut self, hooks: Arc<dyn Hooks>) -> Shutdown {
        let options = self.options(|_| {});
        self.spawn(Worker::new(self.longhaul.services(), options).with_hooks(hooks))
    }

    fn options(&self, change: impl FnOnce(&mut WorkerOptions)) -> WorkerOptions {
        let mut options = WorkerOptions {
            poll: Millis(50),
            drain_timeout: Millis(30),
            ..WorkerOptions::new(InboxName::new("default").unwrap())
        };
        if self.clock.is_some() {
            // A test that lets days pass at once would count everybody as dead.
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

    /// Returns when a worker has gone home in good order.
    pub(crate) async fn worker_stopped(&mut self) {
        let gone = tokio::time::timeout(TIMEOUT, self.workers.join_next()).await;
        let gone = gone.expect("the worker goes home").expect("there was one");
        gone.expect("it does not panic").expect("it meets no fault");
    }

    /// Submits a task.
    pub(crate) async fn submit(&self) -> RunId {
        let task = Task::new("tester", "Do it.");
        self.longhaul.submit(task).await.unwrap()
    }

    /// The journal up to the first fact of this kind that comes after `after`.
    pub(crate) async fn until_after(&self, run: RunId, after: Seq, kind: &str) -> Vec<Entry> {
        let mut seen: Vec<Entry> = Vec::new();
        let mut watching = self.longhaul.watch(run, after).await.unwrap();
        let found = |seen: &[Entry]| seen.iter().position(|entry| entry.event.kind() == kind);
        let looking = async {
            while found(&seen).is_none() {
                match watching.next().await.unwrap() {
                    Some(more) => seen.extend(more),
                    None => break,
                }
            }
        };
        let _ = tokio::time::timeout(TIMEOUT, looking).await;
        match found(&seen) {
            Some(place) => {
                seen.truncate(place + 1);
                seen
            }
            None => panic!("no {kind} in {:?}", kinds(&seen)),
        }
    }

    /// The journal up to the first fact of this kind.
    pub(crate) async fn until(&self, run: RunId, kind: &str) -> Vec<Entry> {
        self.until_after(run, Seq::START, kind).await
    }

    /// The whole journal of a run that ends, which must be a good one.
    pub(crate) async fn ended(&self, run: RunId) -> Vec<Entry> {
        let mut seen: Vec<Entry> = Vec::new();
        let mut watching = self.longhaul.watch(run, Seq::START).await.unwrap();
        let looking = async {
            while let Some(more) = watching.next().await.unwrap() {
                seen.extend(more);
            }
        };
        let over = tokio::time::timeout(TIMEOUT, looking).await;
        assert!(over.is_ok(), "it does not end: {:?}", kinds(&seen));
        assert_eq!(self.model.violations(), Vec::<String>::new());
        seen
    }

    /// Lets time pass, second by second, until there is a fact of this kind.
    pub(crate) async fn advance_until(&self, run: RunId, kind: &str) -> Vec<Entry> {
        let clock = self.clock.as_ref().expect("a clock that stands");
        let mut seen: Vec<Entry> = Vec::new();
        let mut watching = self.longhaul.watch(run, Seq::START).await.unwrap();
        let passing = async {
            while !seen.iter().any(|entry| entry.event.kind() == kind) {
                let waited = tokio::time::timeout(Duration::from_millis(2), watching.next()).await;
                match waited {
                    Ok(more) => seen.extend(more.unwrap().unwrap_or_default()),
                    Err(_) => drop(clock.advance(Millis::from_secs(1))),
                }
            }
        };
        let _ = tokio::time::timeout(TIMEOUT, passing).await;
        let found = seen.iter().any(|entry| entry.event.kind() == kind);
        assert!(found, "no {kind} in {:?}", kinds(&seen));
        seen
    }

    /// The one gate of a run that is open, as soon as the run rests at it.
    pub(crate) async fn gate(&self, run: RunId) -> GateRow {
        let mut watching = self.longhaul.watch(run, Seq::START).await.unwrap();
        let looking = async {
            loop {
                let row = self.longhaul.services().store.get_run(run).await.unwrap().unwrap();
                let open = self.open_gates(run).await;
                match open.last() {
                    Some(gate) if row.worker.is_none() && is_idle(row.status) => {
                        return gate.clone();
                    }
                    Some(_) | None => assert!(!row.status.is_terminal(), "it has ended"),
                }
                watching.next().await.unwrap();
            }
        };
        let found = tokio::time::timeout(TIMEOUT, looking).await;
        found.expect("the run rests at a gate")
    }

    /// The gates of a run that are open.
    pub(crate) async fn open_gates(&self, run: RunId) -> Vec<GateRow> {
        let ask = GateFilter {
            run: Some(run),
            status: Some(GateStatus::Open),
            limit: 100,
            ..GateFilter::default()
        };
        self.longhaul.gates(ask).await.unwrap()
    }

    /// What the newest question to the model showed as results.
    pub(crate) fn results(&self) -> Vec<(String, bool)> {
        model::results(self.model.requests().last().expect("it was asked"))
    }

    /// What the newest question to the model holds of users' words.
    pub(crate) fn user_texts(&self) -> Vec<String> {
        model::user_texts(self.model.requests().last().expect("it was asked"))
    }
}

const fn is_idle(status: Status) -> bool {
    matches!(status, Status::Waiting | Status::Blocked | Status::Paused)
}

/// The kinds of some facts.
pub(crate) fn kinds(journal: &[Entry]) -> Vec<&'static str> {
    journal.iter().map(|entry| entry.event.kind()).collect()
}

/// How often there is a fact of this kind.
pub(crate) fn count(journal: &[Entry], kind: &str) -> usize {
    journal.iter().filter(|entry| entry.event.kind() == kind).count()
}

/// How a journal ends: the text of a result, or the code of a failure.
pub(crate) fn outcome_text(journal: &[Entry]) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only ends are looked at")]
    match &journal.last().expect("a journal").event {
        Event::RunCompleted(done) => done.output.text.clone(),
        Event::RunFailed(failed) => failed.error.code.clone(),
        other => other.kind().to_owned(),
    }
}

/// An answer to a gate, of what it shows.
pub(crate) fn answer(gate: &GateRow, decision: Decision) -> Answer {
    Answer {
        decision,
        by: "cli:anna".into(),
        scope: Scope::Once,
        note: None,
        payload: None,
        digest: gate.spec.digest,
    }
}
