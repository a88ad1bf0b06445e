//! The real engine in a test's hands: handle and workers over a store in
//! memory, a model and tools that do what the test wrote down.
//!
//! Never: a bare sleep. Facts are waited for, with a deadline.

pub(super) mod eye;
pub(super) mod model;
pub(super) mod shaky;
pub(super) mod stock;
pub(super) mod tool;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{AgentName, InboxName, RunId, Seq};
use longhaul_core::policy::gate::{Answer, Decision, GateRow, GateStatus, Scope};
use longhaul_core::port::redact::Redact;
use longhaul_core::port::store::GatesAsk;
use longhaul_core::port::tool::Tool;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::agent::wish::{Every, Eye, Sight};
use longhaul_engine::agent::{Agent, Defaults, Roster};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::feed::Feed;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::mint::UuidMint;
use longhaul_engine::nudge::Nudges;
use longhaul_engine::ports::{Definitions, Found, Models, NoEyes, NoModel, NoSupplies, Ports};
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::stop::Stop;
use longhaul_engine::tail::Tail;
use longhaul_engine::toolbox::Toolbox;
use longhaul_engine::worker::{Worker, WorkerOptions};
use longhaul_engine::{Error, Longhaul, Task};
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::mem_store::MemStore;
use tokio::task::JoinSet;

use crate::suite::house::eye::Witness;
use crate::suite::house::model::{Actor, Line};
use crate::suite::house::shaky::Shaky;
use crate::suite::house::stock::Stock;
use crate::suite::house::tool::Hand;

/// So long a test waits for a fact before it fails; long enough for a machine that
/// builds something else beside it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The tools that the heart knows.
const CONTROL: [&str; 5] = [
    "ask_human",
    "report_blocked",
    "report_progress",
    "wait",
    "finish",
];

/// What a test wants.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) agent: Agent,
    pub(crate) lines: Vec<Line>,
    hands: Vec<Hand>,
    clock: Option<SimClock>,
    window: Option<u64>,
    helper: Option<Vec<Line>>,
    eye: Option<Witness>,
    stock: Option<Stock>,
}

/// A plan with these lines for the model.
pub(crate) fn plan(lines: impl IntoIterator<Item = Line>) -> Plan {
    Plan {
        agent: Agent {
            tools: CONTROL.iter().map(|name| (*name).to_owned()).collect(),
            prompt: "You are tested.".into(),
            ..Agent::new(AgentName::new("tester").unwrap())
        },
        lines: lines.into_iter().collect(),
        hands: Vec::new(),
        clock: None,
        window: None,
        helper: None,
        eye: None,
        stock: None,
    }
}

impl Plan {
    /// With these tools.
    pub(crate) fn hands(mut self, hands: impl IntoIterator<Item = Hand>) -> Self {
        for hand in hands {
            self.agent.tools.push(hand.card.name.to_string());
            self.hands.push(hand);
        }
        self
    }

    /// With an agent that is a little different.
    pub(crate) fn agent(mut self, change: impl FnOnce(&mut Agent)) -> Self {
        change(&mut self.agent);
        self
    }

    /// With a model into whose window so many tokens fit.
    pub(crate) fn narrow(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// With a second model that sums up, and a first that is not played back.
    pub(crate) fn helped_by(mut self, lines: impl IntoIterator<Item = Line>) -> Self {
        self.helper = Some(lines.into_iter().collect());
        self
    }

    /// With somebody who looks at the world.
    pub(crate) fn looking(mut self, witness: &Witness, every: Every) -> Self {
        self.eye = Some(witness.clone());
        let eye = Eye::Named("witness".into());
        self.agent.perception = Some(Sight { eye, every });
        self
    }

    /// With tools that others bring.
    pub(crate) fn supplied(mut self, stock: &Stock) -> Self {
        self.stock = Some(stock.clone());
        self.agent.tools.push(stock::NAME.into());
        self
    }

    /// With a clock that only the test moves.
    pub(crate) fn at_standing_clock(mut self) -> Self {
        self.clock = Some(SimClock::new());
        self
    }

    /// The house, with nobody at work in it.
    pub(crate) fn open(self) -> House {
        let clock: Arc<dyn Clock> = match &self.clock {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(SystemClock),
        };
        let behind = match &self.clock {
            Some(clock) => MemStore::new(clock.clone()),
            None => MemStore::new(SystemClock),
        };
        let keyring = Arc::new(behind.clone());
        let store = Arc::new(Shaky::new(behind));
        let actor = Arc::new(Actor::default());
        actor.learn(self.lines);
        if let Some(tokens) = self.window {
            actor.narrow(tokens);
        }
        let helper = self.helper.map(|lines| {
            let helper = Arc::new(Actor::default());
            helper.learn(lines);
            helper
        });
        let models = Arc::new(Shelf {
            actor: actor.clone(),
            helper,
            helper_left: AtomicBool::new(false),
            gone: Mutex::default(),
        });
        let paging = ReadOutput::new(store.clone(), store.clone()).unwrap();
        let hands = self
            .hands
            .into_iter()
            .map(|hand| Arc::new(hand) as Arc<dyn Tool>);
        let ports = Ports {
            store: store.clone(),
            shelves: store.clone(),
            keyring,
            clock,
            mint: Arc::new(UuidMint),
            models: models.clone(),
            tools: Arc::new(
                Toolbox::new(hands.chain([Arc::new(paging) as Arc<dyn Tool>])).unwrap(),
            ),
            supplies: match self.stock {
                Some(stock) => Arc::new(stock),
                None => Arc::new(NoSupplies),
            },
            eyes: match self.eye {
                Some(witness) => Arc::new(witness),
                None => Arc::new(NoEyes),
            },
            redact: Arc::new(OneSecret),
            feed: Feed::default(),
            tail: Tail::default(),
            nudges: Nudges::default(),
            definitions: Definitions::default(),
        };
        let mut roster = Roster::default();
        roster.register(self.agent);
        House {
            longhaul: Longhaul::new(ports, roster, Defaults::default()),
            actor,
            store,
            models,
            clock: self.clock,
            workers: JoinSet::new(),
        }
    }

    /// The house, with one worker in it.
    pub(crate) fn at_work(self) -> House {
        let mut house = self.open();
        house.hire(|_| {});
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

    fn unfinished(&self, text: &str) -> usize {
        let begun = (1..SECRET.len()).rev();
        let mut begun = begun.filter(|end| text.ends_with(&SECRET[..*end]));
        begun.next().unwrap_or(0)
    }
}

/// Models by name: one of them, unless it is gone.
#[derive(Debug)]
pub(crate) struct Shelf {
    actor: Arc<Actor>,
    /// Who sums up.
    pub(crate) helper: Option<Arc<Actor>>,
    /// It is known and not there.
    pub(crate) helper_left: AtomicBool,
    /// What is missing.
    pub(crate) gone: Mutex<Option<&'static str>>,
}

impl Models for Shelf {
    fn find(&self, name: Option<&str>) -> Result<Found, NoModel> {
        if let Some(sentence) = *self.gone.lock().unwrap() {
            return Err(NoModel::Unset(sentence.to_owned()));
        }
        if name == Some("other/helper") && self.helper_left.load(Ordering::Relaxed) {
            return Err(NoModel::Unset(
                "There is no `other/helper` here.".to_owned(),
            ));
        }
        let named = name.filter(|name| name.contains('/'));
        let (name, model) = match (&self.helper, name) {
            (Some(helper), Some("compact" | "other/helper")) => ("other/helper", helper),
            (Some(_), _) => ("other/actor", &self.actor),
            (None, _) => (named.unwrap_or("scripted/actor"), &self.actor),
        };
        let (name, model) = (name.to_owned(), model.clone());
        Ok(Found { name, model })
    }
}

/// A store, a handle, and whoever works.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) longhaul: Longhaul,
    pub(crate) actor: Arc<Actor>,
    pub(crate) store: Arc<Shaky>,
    pub(crate) models: Arc<Shelf>,
    pub(crate) clock: Option<SimClock>,
    pub(crate) workers: JoinSet<Result<(), Error>>,
}

impl House {
    /// One worker more; what is given back stops it.
    pub(crate) fn hire(&mut self, change: impl FnOnce(&mut WorkerOptions)) -> Stop {
        let options = self.options(change);
        self.employ(Worker::new(self.longhaul.ports(), options))
    }

    /// One worker more that tells somebody.
    pub(crate) fn hire_telling(&mut self, hooks: Arc<dyn Hooks>) -> Stop {
        let options = self.options(|_| {});
        self.employ(Worker::new(self.longhaul.ports(), options).hooks(hooks))
    }

    fn options(&self, change: impl FnOnce(&mut WorkerOptions)) -> WorkerOptions {
        let mut options = WorkerOptions {
            poll: Millis(50),
            drain: Millis(30),
            ..WorkerOptions::new(InboxName::new("default").unwrap())
        };
        if self.clock.is_some() {
            // A test that lets days pass at once would count everybody as dead.
            options.lease = Millis::from_secs(1_000_000_000);
        }
        change(&mut options);
        options
    }

    fn employ(&mut self, worker: Worker) -> Stop {
        let stop = Stop::new();
        self.workers.spawn(worker.run(stop.clone()));
        stop
    }

    /// Returns when a worker has gone home in good order.
    pub(crate) async fn gone_home(&mut self) {
        let gone = tokio::time::timeout(PATIENCE, self.workers.join_next()).await;
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
        let _ = tokio::time::timeout(PATIENCE, looking).await;
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
        let over = tokio::time::timeout(PATIENCE, looking).await;
        assert!(over.is_ok(), "it does not end: {:?}", kinds(&seen));
        assert_eq!(self.actor.wrong(), Vec::<String>::new());
        seen
    }

    /// Lets time pass, second by second, until there is a fact of this kind.
    pub(crate) async fn pass_until(&self, run: RunId, kind: &str) -> Vec<Entry> {
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
        let _ = tokio::time::timeout(PATIENCE, passing).await;
        let found = seen.iter().any(|entry| entry.event.kind() == kind);
        assert!(found, "no {kind} in {:?}", kinds(&seen));
        seen
    }

    /// The one gate of a run that is open, as soon as the run rests at it.
    pub(crate) async fn gate(&self, run: RunId) -> GateRow {
        let mut watching = self.longhaul.watch(run, Seq::START).await.unwrap();
        let looking = async {
            loop {
                let row = self.longhaul.ports().store.row(run).await.unwrap().unwrap();
                let open = self.open_gates(run).await;
                match open.last() {
                    Some(gate) if row.worker.is_none() && rests(row.status) => return gate.clone(),
                    Some(_) | None => assert!(!row.status.is_terminal(), "it has ended"),
                }
                watching.next().await.unwrap();
            }
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        found.expect("the run rests at a gate")
    }

    /// The gates of a run that are open.
    pub(crate) async fn open_gates(&self, run: RunId) -> Vec<GateRow> {
        let ask = GatesAsk {
            run: Some(run),
            status: Some(GateStatus::Open),
            limit: 100,
            ..GatesAsk::default()
        };
        self.longhaul.gates(ask).await.unwrap()
    }

    /// What the newest question to the model showed as results.
    pub(crate) fn results(&self) -> Vec<(String, bool)> {
        model::results(self.actor.asked().last().expect("it was asked"))
    }

    /// What the newest question to the model holds of users' words.
    pub(crate) fn heard(&self) -> Vec<String> {
        model::heard(self.actor.asked().last().expect("it was asked"))
    }
}

const fn rests(status: Status) -> bool {
    matches!(status, Status::Waiting | Status::Blocked | Status::Paused)
}

/// The kinds of some facts.
pub(crate) fn kinds(journal: &[Entry]) -> Vec<&'static str> {
    journal.iter().map(|entry| entry.event.kind()).collect()
}

/// How often there is a fact of this kind.
pub(crate) fn count(journal: &[Entry], kind: &str) -> usize {
    journal
        .iter()
        .filter(|entry| entry.event.kind() == kind)
        .count()
}

/// How a journal ends: the text of a result, or the code of a failure.
pub(crate) fn end(journal: &[Entry]) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only ends are looked at")]
    match &journal.last().expect("a journal").event {
        Event::RunCompleted(done) => done.output.text.clone(),
        Event::RunFailed(failed) => failed.fault.code.clone(),
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
