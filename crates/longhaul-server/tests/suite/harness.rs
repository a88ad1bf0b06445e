//! A real server for tests: a socket, an in-memory store, and a model and tools that follow a
//! script. Tests wait for events with a timeout and never just sleep.

pub(super) mod blocking_auth_store;
pub(super) mod client;
pub(super) mod gated_reads;
pub(super) mod model;
pub(super) mod sse;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::access::Role;
use longhaul_core::id::{AgentName, ApiKeyName, InboxName, RunId, Seq};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
};
use longhaul_core::policy::spend_cap::SpendCap;
use longhaul_core::port::redact::NoRedaction;
use longhaul_core::port::tool::Tool;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::Longhaul;
use longhaul_engine::agent::AgentDirectory;
use longhaul_engine::agent::{Agent, AgentRegistry, RunPolicyDefaults};
use longhaul_engine::background::spend_caps::SpendCaps;
use longhaul_engine::changes::JournalChangeFeed;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::counters::EngineCounters;
use longhaul_engine::drive::deltas::ReplyDeltaBroadcast;
use longhaul_engine::handle::NewKeyRequest;
use longhaul_engine::id_gen::UuidV7Generator;
use longhaul_engine::notifier::DriverNotifier;
use longhaul_engine::secret::Secret;
use longhaul_engine::services::{
    AgentDefinitionCache, NoContextProviders, NoExternalTools, Services,
};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tools::read_output::ReadOutputTool;
use longhaul_engine::tools::registry::ToolRegistry;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_server::{App, ServerOptions, serve};
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::mem_store::MemStore;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::suite::harness::blocking_auth_store::BlockingAuthStore;
use crate::suite::harness::client::{TestRequest, TestResponse, get, post, send_request};
use crate::suite::harness::gated_reads::GatedReads;
use crate::suite::harness::model::{FakeModels, FakeReply, FakeTool};

/// Timeout for the events that tests wait for. Long enough for a machine that is busy with a
/// build.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Tools of the test agent.
const TOOLS: [&str; 7] =
    ["ask_human", "report_blocked", "report_progress", "wait", "finish", "send", "look"];

/// Configuration of a test server.
#[derive(Debug)]
pub(crate) struct TestServerBuilder {
    agent: Agent,
    replies: Vec<FakeReply>,
    clock: Option<SimClock>,
    options: ServerOptions,
    defaults: RunPolicyDefaults,
    caps: Vec<SpendCap>,
}

/// Creates a configuration with these model replies. The tool `send` needs approval.
pub(crate) fn server_with(lines: impl IntoIterator<Item = FakeReply>) -> TestServerBuilder {
    let ask_rule = GateRule {
        tool: "send".into(),
        match_glob: None,
        action: GateRuleAction::Ask("May it <script>alert(1)</script> & send?".into()),
        always: false,
        timeout: Some(GateTimeout::After(Millis::from_secs(3_600))),
        on_timeout: GateTimeoutAction::Reject,
        in_doubt: None,
        approvers: ApprovalRequirement::default(),
        remind: None,
        escalation: Vec::new(),
        tags: Vec::new(),
    };
    TestServerBuilder {
        agent: Agent {
            tools: TOOLS.iter().map(|name| (*name).to_owned()).collect(),
            prompt: "You are tested.".into(),
            rules: vec![ask_rule],
            max_turns: Some(2_000),
            ..Agent::new(AgentName::new("tester").unwrap())
        },
        replies: lines.into_iter().collect(),
        clock: None,
        options: ServerOptions::new(Secret::new("lh_", [7; 32])),
        defaults: RunPolicyDefaults::default(),
        caps: Vec::new(),
    }
}

/// Creates a configuration whose run asks for approval before it sends `hi`.
pub(crate) fn server_with_gate() -> TestServerBuilder {
    server_with([FakeReply::Call("send", json!({ "text": "hi <b>you</b>" }))])
}

impl TestServerBuilder {
    pub(crate) fn agent(mut self, change: impl FnOnce(&mut Agent)) -> Self {
        change(&mut self.agent);
        self
    }

    pub(crate) fn options(mut self, change: impl FnOnce(&mut ServerOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Sets the maximum number of runs in a lane.
    pub(crate) fn lane_depth(mut self, max: u32) -> Self {
        self.defaults.lane_depth_max = max;
        self
    }

    pub(crate) fn caps(mut self, caps: impl IntoIterator<Item = SpendCap>) -> Self {
        self.caps = caps.into_iter().collect();
        self
    }

    /// Uses a clock that only the test moves.
    pub(crate) fn with_sim_clock(mut self) -> Self {
        self.clock = Some(SimClock::new());
        self
    }

    fn services(
        &self,
        auth_store: &Arc<BlockingAuthStore>,
        reads: &Arc<GatedReads>,
        models: &Arc<FakeModels>,
    ) -> Services {
        let store = auth_store.store();
        let clock: Arc<dyn Clock> = match &self.clock {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(SystemClock),
        };
        let shared_store: Arc<MemStore> = Arc::new(store.clone());
        let tools: [Arc<dyn Tool>; 3] = [
            Arc::new(ReadOutputTool::new(shared_store.clone(), shared_store)),
            Arc::new(FakeTool::new("send", EffectClass::Once)),
            Arc::new(FakeTool::new("look", EffectClass::Pure)),
        ];
        Services {
            store: reads.clone(),
            records: Arc::new(store.clone()),
            auth: auth_store.clone(),
            schedules: Arc::new(store.clone()),
            clock,
            ids: Arc::new(UuidV7Generator),
            models: models.clone(),
            tools: Arc::new(ToolRegistry::new(tools).unwrap()),
            tool_source: Arc::new(NoExternalTools),
            context_providers: Arc::new(NoContextProviders),
            redact: Arc::new(NoRedaction),
            deltas: ReplyDeltaBroadcast::default(),
            changes: JournalChangeFeed::default(),
            notifier: DriverNotifier::default(),
            definitions: AgentDefinitionCache::default(),
            provider_blocks: longhaul_engine::drive::provider_blocks::BlockedProviderCache::default(
            ),
            counters: EngineCounters::default(),
            caps: SpendCaps::new(self.caps.clone()).unwrap(),
            agents: AgentDirectory::default(),
            sandboxes: Default::default(),
            repositories: Arc::new(longhaul_core::port::repositories::NoRepositories),
        }
    }

    /// Starts the server without a worker.
    pub(crate) async fn open(self) -> TestServer {
        let store = match &self.clock {
            Some(clock) => MemStore::new(clock.clone()),
            None => MemStore::new(SystemClock),
        };
        let auth_store = Arc::new(BlockingAuthStore::new(store.clone()));
        let models = Arc::new(FakeModels::new(self.replies.clone()));
        let reads = Arc::new(GatedReads::new(store));
        let services = self.services(&auth_store, &reads, &models);
        let mut agents = AgentRegistry::default();
        agents.register(self.agent);
        let longhaul = Longhaul::new(services, agents, self.defaults);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let key = self.options.local_key.reveal().to_owned();
        let app = App::new(longhaul.clone(), self.options, address);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let stop_token = stop.clone();
        tasks.spawn(async move {
            serve(listener, app, stop_token.cancelled()).await.unwrap();
        });
        TestServer {
            address,
            longhaul,
            auth: auth_store,
            reads,
            models,
            clock: self.clock,
            key,
            stop,
            server_task: tasks,
            workers: JoinSet::new(),
        }
    }

    /// Starts the server with one worker.
    pub(crate) async fn start(self) -> TestServer {
        let mut server = self.open().await;
        server.spawn_worker();
        server
    }
}

/// A server and its workers.
#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) longhaul: Longhaul,
    pub(crate) auth: Arc<BlockingAuthStore>,
    pub(crate) reads: Arc<GatedReads>,
    pub(crate) models: Arc<FakeModels>,
    clock: Option<SimClock>,
    /// The local machine key.
    pub(crate) key: String,
    stop: CancellationToken,
    server_task: JoinSet<()>,
    workers: JoinSet<()>,
}

impl TestServer {
    /// Starts one more worker.
    pub(crate) fn spawn_worker(&mut self) {
        let mut options = WorkerOptions {
            poll: Millis(50),
            drain_timeout: Millis(30),
            ..WorkerOptions::new(InboxName::new("default").unwrap())
        };
        options.inboxes.push(InboxName::new("mail").unwrap());
        if self.clock.is_some() {
            // Otherwise a test that advances the clock by days would make all workers count as
            // dead.
            options.lease = Millis::from_secs(1_000_000_000);
        }
        let worker = Worker::new(self.longhaul.services(), options);
        self.workers.spawn(async move {
            worker.run(Shutdown::new()).await.unwrap();
        });
    }

    /// Begins the shutdown.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the server has stopped.
    pub(crate) async fn wait_stopped(&mut self) {
        let join_result = tokio::time::timeout(TIMEOUT, self.server_task.join_next()).await;
        join_result.expect("the server stops").expect("the server task exists").unwrap();
    }

    /// Waits until the server accepts no more connections.
    pub(crate) async fn wait_until_listener_closed(&self) {
        let until_refused = async {
            while TcpStream::connect(self.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        let result = tokio::time::timeout(TIMEOUT, until_refused).await;
        result.expect("the listener is closed");
    }

    /// Waits until there are only this number of subscribers.
    pub(crate) async fn wait_for_subscribers(&self, count: usize) {
        let changes = &self.longhaul.services().changes;
        let poll = async {
            while changes.subscriber_count() > count {
                tokio::task::yield_now().await;
            }
        };
        let result = tokio::time::timeout(TIMEOUT, poll).await;
        assert!(result.is_ok(), "{} subscribers", changes.subscriber_count());
    }

    /// Returns the clock that only the test moves.
    pub(crate) fn clock(&self) -> &SimClock {
        self.clock.as_ref().expect("a simulated clock")
    }

    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Sends one request on its own connection.
    pub(crate) async fn send(&self, request: TestRequest) -> TestResponse {
        send_request(self.address, &request, &self.key).await
    }

    pub(crate) async fn get_json(&self, path: impl Into<String>) -> Value {
        self.send(get(path)).await.expect(200)
    }

    pub(crate) async fn create_key(&self, name: &str, role: Role) -> String {
        let request = NewKeyRequest {
            name: ApiKeyName::new(name).unwrap(),
            role,
            ttl: None,
            by: "a test".to_owned(),
        };
        let new_key = self.longhaul.create_key(request).await.unwrap();
        new_key.secret.reveal().to_owned()
    }

    /// Submits a task and returns its run.
    pub(crate) async fn submit(&self) -> String {
        let run = self.send(post("/v1/runs", &task())).await.expect(201);
        run["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a run has an event of this type.
    pub(crate) async fn wait_for_event(&self, run: &str, kind: &str) {
        let id: RunId = run.parse().unwrap();
        let mut journal = self.longhaul.watch_run_journal(id, Seq::START).await.unwrap();
        let search = async {
            while let Some(entries) = journal.next().await.unwrap() {
                if entries.iter().any(|entry| entry.event.kind() == kind) {
                    return true;
                }
            }
            false
        };
        let found = tokio::time::timeout(TIMEOUT, search).await;
        assert_eq!(found.ok(), Some(true), "no {kind} in {run}");
    }

    pub(crate) async fn wait_until_ended(&self, run: &str) -> Value {
        let id: RunId = run.parse().unwrap();
        let mut journal = self.longhaul.watch_run_journal(id, Seq::START).await.unwrap();
        let search = async { while journal.next().await.unwrap().is_some() {} };
        let result = tokio::time::timeout(TIMEOUT, search).await;
        assert!(result.is_ok(), "{run} did not end");
        self.get_json(format!("/v1/runs/{run}")).await
    }

    /// Waits until a run is parked at a gate and returns its newest open gate.
    pub(crate) async fn wait_for_gate(&self, run: &str) -> Value {
        let id: RunId = run.parse().unwrap();
        let mut journal = self.longhaul.watch_run_journal(id, Seq::START).await.unwrap();
        let search = async {
            loop {
                let row = self.longhaul.run_row(id).await.unwrap();
                let list = self.get_json(format!("/v1/gates?status=open&run={run}")).await;
                let gate = list["data"][0].clone();
                if !gate.is_null() && row.worker.is_none() {
                    return gate;
                }
                assert!(!row.status.is_terminal(), "the run has ended");
                journal.next().await.unwrap();
            }
        };
        let found = tokio::time::timeout(TIMEOUT, search).await;
        found.expect("the run is parked at a gate")
    }

    /// Submits a run that parks at a gate, and returns the run and the gate.
    pub(crate) async fn submit_until_gate(&self) -> (String, Value) {
        let run = self.submit().await;
        let gate = self.wait_for_gate(&run).await;
        (run, gate)
    }

    /// Asserts that the server still works: it responds and accepts a task.
    pub(crate) async fn assert_healthy(&self) {
        self.send(get("/livez").without_key()).await.expect(200);
        self.submit().await;
    }
}

/// Returns the body of a task.
pub(crate) fn task() -> Value {
    json!({ "agent": "tester", "input": "Do it." })
}
