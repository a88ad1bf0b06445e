//! A real server in a test's hands: over a socket, a store in memory, a model
//! and tools that do what the test wrote down.
//!
//! Never: a bare sleep. Facts are waited for, with a deadline.

pub(super) mod client;
pub(super) mod model;
pub(super) mod reads;
pub(super) mod ring;
pub(super) mod sse;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::access::Role;
use longhaul_core::id::{AgentName, InboxName, KeyName, RunId, Seq};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, Verdict};
use longhaul_core::port::redact::NoSecrets;
use longhaul_core::port::tool::Tool;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::Longhaul;
use longhaul_engine::agent::{Agent, Defaults, Roster};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::feed::Feed;
use longhaul_engine::handle::KeyAsk;
use longhaul_engine::mint::UuidMint;
use longhaul_engine::nudge::Nudges;
use longhaul_engine::ports::{Definitions, NoEyes, NoSupplies, Ports};
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::secret::Secret;
use longhaul_engine::stop::Stop;
use longhaul_engine::tail::Tail;
use longhaul_engine::toolbox::Toolbox;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_server::{App, Options, serve};
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::mem_store::MemStore;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::suite::kit::client::{Answer, Ask, exchange, get, post};
use crate::suite::kit::model::{Hand, Line, Shelf};
use crate::suite::kit::reads::GatedReads;
use crate::suite::kit::ring::Ring;

/// So long a test waits for a fact before it fails; long enough for a machine that
/// builds something else beside it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The tools that the agent of every test has.
const TOOLS: [&str; 7] = [
    "ask_human",
    "report_blocked",
    "report_progress",
    "wait",
    "finish",
    "send",
    "look",
];

/// What a test wants.
#[derive(Debug)]
pub(crate) struct Plan {
    agent: Agent,
    lines: Vec<Line>,
    clock: Option<SimClock>,
    options: Options,
}

/// A plan with these lines for the model. A person is asked before `send`.
pub(crate) fn plan(lines: impl IntoIterator<Item = Line>) -> Plan {
    let ask = GateRule {
        tool: "send".into(),
        subject: None,
        verdict: Verdict::Ask("May it <script>alert(1)</script> & send?".into()),
        always: false,
        timeout: Some(Millis::from_secs(3_600)),
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    };
    Plan {
        agent: Agent {
            tools: TOOLS.iter().map(|name| (*name).to_owned()).collect(),
            prompt: "You are tested.".into(),
            rules: vec![ask],
            max_turns: Some(2_000),
            ..Agent::new(AgentName::new("tester").unwrap())
        },
        lines: lines.into_iter().collect(),
        clock: None,
        options: Options::new(Secret::new("lh_", [7; 32])),
    }
}

/// A plan whose run asks a person before it sends `hi`.
pub(crate) fn asking() -> Plan {
    plan([Line::Call("send", json!({ "text": "hi <b>you</b>" }))])
}

impl Plan {
    /// With an agent that is a little different.
    pub(crate) fn agent(mut self, change: impl FnOnce(&mut Agent)) -> Self {
        change(&mut self.agent);
        self
    }

    /// With a server that is a little different.
    pub(crate) fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// With a clock that only the test moves.
    pub(crate) fn at_standing_clock(mut self) -> Self {
        self.clock = Some(SimClock::new());
        self
    }

    fn ports(&self, ring: &Arc<Ring>, reads: &Arc<GatedReads>, models: &Arc<Shelf>) -> Ports {
        let store = ring.store();
        let clock: Arc<dyn Clock> = match &self.clock {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(SystemClock),
        };
        let shelf: Arc<MemStore> = Arc::new(store.clone());
        let hands: [Arc<dyn Tool>; 3] = [
            Arc::new(ReadOutput::new(shelf.clone(), shelf).unwrap()),
            Arc::new(Hand::new("send", EffectClass::Once)),
            Arc::new(Hand::new("look", EffectClass::Pure)),
        ];
        Ports {
            store: reads.clone(),
            shelves: Arc::new(store.clone()),
            keyring: ring.clone(),
            clock,
            mint: Arc::new(UuidMint),
            models: models.clone(),
            tools: Arc::new(Toolbox::new(hands).unwrap()),
            supplies: Arc::new(NoSupplies),
            eyes: Arc::new(NoEyes),
            redact: Arc::new(NoSecrets),
            feed: Feed::default(),
            tail: Tail::default(),
            nudges: Nudges::default(),
            definitions: Definitions::default(),
        }
    }

    /// The server, with nobody who drives runs.
    pub(crate) async fn open(self) -> Server {
        let store = match &self.clock {
            Some(clock) => MemStore::new(clock.clone()),
            None => MemStore::new(SystemClock),
        };
        let ring = Arc::new(Ring::new(store.clone()));
        let models = Arc::new(Shelf::new(self.lines.clone()));
        let reads = Arc::new(GatedReads::new(store));
        let ports = self.ports(&ring, &reads, &models);
        let mut roster = Roster::default();
        roster.register(self.agent);
        let longhaul = Longhaul::new(ports, roster, Defaults::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let key = self.options.local_key.reveal().to_owned();
        let app = App::new(longhaul.clone(), self.options, address);
        let stop = CancellationToken::new();
        let mut crew = JoinSet::new();
        let stopped = stop.clone();
        crew.spawn(async move {
            serve(listener, app, stopped.cancelled()).await.unwrap();
        });
        Server {
            address,
            longhaul,
            ring,
            reads,
            models,
            clock: self.clock,
            key,
            stop,
            crew,
            workers: JoinSet::new(),
        }
    }

    /// The server, with one worker behind it.
    pub(crate) async fn at_work(self) -> Server {
        let mut server = self.open().await;
        server.hire();
        server
    }
}

/// A server, and whoever works behind it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) longhaul: Longhaul,
    pub(crate) ring: Arc<Ring>,
    pub(crate) reads: Arc<GatedReads>,
    pub(crate) models: Arc<Shelf>,
    clock: Option<SimClock>,
    /// The machine's own key.
    pub(crate) key: String,
    stop: CancellationToken,
    crew: JoinSet<()>,
    workers: JoinSet<()>,
}

impl Server {
    /// One worker more.
    pub(crate) fn hire(&mut self) {
        let mut options = WorkerOptions {
            poll: Millis(50),
            drain: Millis(30),
            ..WorkerOptions::new(InboxName::new("default").unwrap())
        };
        options.inboxes.push(InboxName::new("mail").unwrap());
        if self.clock.is_some() {
            // A test that lets days pass at once would count everybody as dead.
            options.lease = Millis::from_secs(1_000_000_000);
        }
        let worker = Worker::new(self.longhaul.ports(), options);
        self.workers.spawn(async move {
            worker.run(Stop::new()).await.unwrap();
        });
    }

    /// Tells it to stop.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns when it has stopped.
    pub(crate) async fn stopped(&mut self) {
        let gone = tokio::time::timeout(PATIENCE, self.crew.join_next()).await;
        gone.expect("it stops").expect("it was there").unwrap();
    }

    /// Returns when nobody is let in any more.
    pub(crate) async fn no_longer_accepts(&self) {
        let trying = async {
            while TcpStream::connect(self.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        let shut = tokio::time::timeout(PATIENCE, trying).await;
        shut.expect("the door is shut");
    }

    /// Returns when only so many listen.
    pub(crate) async fn until_listeners(&self, count: usize) {
        let tail = &self.longhaul.ports().tail;
        let waiting = async {
            while tail.listeners() > count {
                tokio::task::yield_now().await;
            }
        };
        let gone = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(gone.is_ok(), "{} listen", tail.listeners());
    }

    /// The clock that only the test moves.
    pub(crate) fn clock(&self) -> &SimClock {
        self.clock.as_ref().expect("a clock that stands")
    }

    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, asked: Ask) -> Answer {
        exchange(self.address, &asked, &self.key).await
    }

    /// What a path shows.
    pub(crate) async fn look(&self, path: impl Into<String>) -> Value {
        self.ask(get(path)).await.expect(200)
    }

    /// A key of this role.
    pub(crate) async fn make_key(&self, name: &str, role: Role) -> String {
        let ask = KeyAsk {
            name: KeyName::new(name).unwrap(),
            role,
            span: None,
            by: "a test".to_owned(),
        };
        let made = self.longhaul.make_key(ask).await.unwrap();
        made.secret.reveal().to_owned()
    }

    /// Submits a task; its run.
    pub(crate) async fn submit(&self) -> String {
        let made = self.ask(post("/v1/runs", &task())).await.expect(201);
        made["id"].as_str().unwrap().to_owned()
    }

    /// Returns as soon as a run has a fact of this kind.
    pub(crate) async fn until(&self, run: &str, kind: &str) {
        let id: RunId = run.parse().unwrap();
        let mut watching = self.longhaul.watch(id, Seq::START).await.unwrap();
        let looking = async {
            while let Some(more) = watching.next().await.unwrap() {
                if more.iter().any(|entry| entry.event.kind() == kind) {
                    return true;
                }
            }
            false
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        assert_eq!(found.ok(), Some(true), "no {kind} in {run}");
    }

    /// Waits for the end of a run.
    pub(crate) async fn ended(&self, run: &str) -> Value {
        let id: RunId = run.parse().unwrap();
        let mut watching = self.longhaul.watch(id, Seq::START).await.unwrap();
        let looking = async { while watching.next().await.unwrap().is_some() {} };
        let over = tokio::time::timeout(PATIENCE, looking).await;
        assert!(over.is_ok(), "{run} does not end");
        self.look(format!("/v1/runs/{run}")).await
    }

    /// The newest open gate of a run, as soon as the run rests at it.
    pub(crate) async fn gate(&self, run: &str) -> Value {
        let id: RunId = run.parse().unwrap();
        let mut watching = self.longhaul.watch(id, Seq::START).await.unwrap();
        let looking = async {
            loop {
                let row = self.longhaul.row(id).await.unwrap();
                let list = self.look(format!("/v1/gates?status=open&run={run}")).await;
                let gate = list["data"][0].clone();
                if !gate.is_null() && row.worker.is_none() {
                    return gate;
                }
                assert!(!row.status.is_terminal(), "it has ended");
                watching.next().await.unwrap();
            }
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        found.expect("the run rests at a gate")
    }

    /// A run that rests at a gate: the run and the gate.
    pub(crate) async fn at_gate(&self) -> (String, Value) {
        let run = self.submit().await;
        let gate = self.gate(&run).await;
        (run, gate)
    }

    /// Whether it is still in good health: it answers, and takes work.
    pub(crate) async fn is_well(&self) {
        self.ask(get("/livez").bare()).await.expect(200);
        self.submit().await;
    }
}

/// A task as a body.
pub(crate) fn task() -> Value {
    json!({ "agent": "tester", "input": "Do it." })
}
