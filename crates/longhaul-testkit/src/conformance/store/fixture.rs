//! Short words for the checks: a world with a store, and how one acts in it.
//!
//! Never: a check, and never a rule of the store.

use longhaul_core::change::{Batch, Change, LANE_DEPTH_MAX, NewRun};
use longhaul_core::event::run::RunCreated;
use longhaul_core::event::{EVENT_FORMAT, Event};
use longhaul_core::id::{AgentName, Epoch, InboxName, LaneKey, RunId, Seq, WorkerId};
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, Claim, ClaimRequest, Heartbeat, HeartbeatAck, OpenOutcome,
    OpenRequest, ReadRequest, Refused, RunRow,
};
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;

use crate::conformance::harness::Harness;
use crate::conformance::store::batches::{
    BatchExt as _, end_batch, events_batch, park_batch, progress,
};
use crate::ids::SeededIds;

/// The ttl of every worker in the checks.
pub const TTL: Millis = Millis::from_secs(15);

/// A store and everything a check needs to act on it. Clones share it.
#[derive(Debug, Clone)]
pub struct StoreFixture {
    /// The store, its shelves and its clock.
    pub harness: Harness,
    /// New ids.
    pub ids: SeededIds,
}

impl StoreFixture {
    /// The world around one store.
    pub fn new(at: Harness) -> Self {
        let ids = SeededIds::new(1);
        Self { harness: at, ids }
    }

    /// Asserts that nothing crossed.
    pub async fn assert_consistent(&self) {
        let found = self.harness.records.repair().await.expect("repair");
        assert!(found.is_clean(), "{found:?}");
    }

    /// Lets time pass.
    pub fn advance(&self, span: Millis) {
        self.harness.clock.advance(span);
    }

    /// A run that is not opened yet. Its facts say what its task says.
    pub fn new_run(&self, change: impl FnOnce(&mut TaskSpec)) -> NewRun {
        let id = self.ids.run();
        let mut task = TaskSpec::new(id, agent("writer"), RawJson::null(), inbox("main"));
        change(&mut task);
        let created = RunCreated { task: task.clone() };
        NewRun {
            id,
            task,
            events: vec![Event::RunCreated(Box::new(created))],
            lane_depth_max: LANE_DEPTH_MAX,
        }
    }

    /// Opens one run.
    pub async fn open(&self, change: impl FnOnce(&mut TaskSpec)) -> RunId {
        let new = self.new_run(change);
        let id = new.id;
        assert_eq!(self.open_runs(vec![new]).await, OpenOutcome::Created(vec![id]));
        id
    }

    /// Opens so many runs of one lane, one after another.
    pub async fn open_in_lane(&self, lane: &str, count: usize) -> Vec<RunId> {
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(self.open(|task| task.lane = Some(lane_key(lane))).await);
        }
        runs
    }

    /// Asks for runs without a key.
    pub async fn open_runs(&self, runs: Vec<NewRun>) -> OpenOutcome {
        let ask = OpenRequest { runs, blobs: Vec::new(), idempotency: None };
        self.harness.store.open_runs(ask).await.expect("open")
    }

    /// A new worker that has just given a sign of life.
    pub async fn worker(&self) -> WorkerId {
        let worker = self.ids.worker();
        self.heartbeat(worker).await;
        worker
    }

    /// A worker's sign of life.
    pub async fn heartbeat(&self, worker: WorkerId) -> HeartbeatAck {
        self.heartbeat_with(heartbeat(worker)).await
    }

    /// A sign of life as given.
    pub async fn heartbeat_with(&self, beat: Heartbeat) -> HeartbeatAck {
        self.harness.store.heartbeat(beat).await.expect("renew")
    }

    /// Everything that a worker can get from the inbox `main`.
    pub async fn claim(&self, worker: WorkerId) -> Vec<Claim> {
        self.claim_with(claim_request(worker)).await
    }

    /// A claim as given.
    pub async fn claim_with(&self, ask: ClaimRequest) -> Vec<Claim> {
        self.harness.store.claim(ask).await.expect("claim")
    }

    /// The next run that this worker gets, if any.
    pub async fn try_claim_one(&self, worker: WorkerId) -> Option<ClaimedRun> {
        let ask = ClaimRequest { limit: 1, ..claim_request(worker) };
        let claimed = self.claim_with(ask).await.pop()?;
        Some(ClaimedRun::new(self, worker, &claimed))
    }

    /// The next run that this worker gets.
    pub async fn claim_one(&self, worker: WorkerId) -> ClaimedRun {
        self.try_claim_one(worker).await.expect("a run is ready")
    }

    /// A run opened, claimed by a worker of its own, and in the check's hands.
    pub async fn open_and_claim(&self, change: impl FnOnce(&mut TaskSpec)) -> ClaimedRun {
        let run = self.open(change).await;
        let held = self.claim_one(self.worker().await).await;
        assert_eq!(held.run, run, "another run was ready");
        held
    }

    /// What an outsider says to a run.
    pub async fn append_outside(&self, run: RunId, batch: Batch) -> Appended {
        self.append(run, Author::Outsider, batch).await
    }

    /// What somebody writes who has read up to `after` a run that nobody drives.
    pub async fn append_as_closer(&self, run: RunId, after: Seq, batch: Batch) -> Appended {
        self.append(run, Author::Closer { after }, batch).await
    }

    /// An append as given.
    pub async fn append(&self, run: RunId, author: Author, batch: Batch) -> Appended {
        let append = AppendRequest { run, author, batch };
        self.harness.store.append(append).await.expect("append")
    }

    /// A run's row.
    pub async fn row(&self, run: RunId) -> RunRow {
        let row = self.harness.store.get_run(run).await.expect("row");
        row.expect("the run is there")
    }

    /// How a run stands and why.
    pub async fn status(&self, run: RunId) -> (Status, Option<String>) {
        let row = self.row(run).await;
        (row.status, row.reason)
    }

    /// Asserts how a run stands.
    pub async fn assert_status(&self, run: RunId, status: Status, reason: &str) {
        let reason = Some(reason.to_owned()).filter(|word| !word.is_empty());
        assert_eq!(self.status(run).await, (status, reason), "{run}");
    }

    /// A run's whole journal.
    pub async fn journal(&self, run: RunId) -> Vec<Event> {
        let ask = ReadRequest { run, after: Seq::START, limit: usize::MAX };
        let page = self.harness.store.read(ask).await.expect("read");
        page.entries.into_iter().map(|entry| entry.event).collect()
    }

    /// The kinds of a run's facts.
    pub async fn kinds(&self, run: RunId) -> Vec<&'static str> {
        self.journal(run).await.iter().map(Event::kind).collect()
    }
}

/// A run in a driver's hands, and what the driver knows.
#[derive(Debug, Clone)]
pub struct ClaimedRun {
    /// Where.
    pub fixture: StoreFixture,
    /// Which run.
    pub run: RunId,
    /// Who drives it.
    pub worker: WorkerId,
    /// The fence.
    pub epoch: Epoch,
    /// What the driver has read.
    pub last: Seq,
}

impl ClaimedRun {
    /// What a claim put into a worker's hands.
    pub fn new(world: &StoreFixture, worker: WorkerId, claimed: &Claim) -> Self {
        Self {
            fixture: world.clone(),
            run: claimed.run,
            worker,
            epoch: claimed.epoch,
            last: claimed.last_seq,
        }
    }

    /// Who writes, as far as it knows.
    pub fn author(&self) -> Author {
        Author::Driver { worker: self.worker, epoch: self.epoch, after: self.last }
    }

    /// Writes, and knows then what it wrote.
    pub async fn append(&mut self, batch: Batch) -> Appended {
        let appended = self.fixture.append(self.run, self.author(), batch).await;
        if let Appended::At { seq, .. } = appended {
            self.last = seq;
        }
        appended
    }

    /// Writes what must be taken.
    pub async fn append_ok(&mut self, batch: Batch) {
        let appended = self.append(batch).await;
        assert!(matches!(appended, Appended::At { .. }), "{appended:?}");
    }

    /// Changes rows, with a fact so that the append can be repeated.
    pub async fn change(&mut self, change: Change) -> Appended {
        self.append(events_batch([progress(1)]).with_change(change)).await
    }

    /// Parks the run.
    pub async fn park(&mut self, reason: &'static str) {
        self.append_ok(park_batch(reason)).await;
    }

    /// Ends the run.
    pub async fn end(&mut self) {
        self.append_ok(end_batch()).await;
    }
}

/// A sign of life.
pub fn heartbeat(worker: WorkerId) -> Heartbeat {
    Heartbeat {
        worker,
        host: "here".to_owned(),
        build: "test".to_owned(),
        draining: false,
        ttl: TTL,
    }
}

/// A wish for everything in the inbox `main`.
pub fn claim_request(worker: WorkerId) -> ClaimRequest {
    ClaimRequest {
        worker,
        inboxes: vec![inbox("main")],
        types: Vec::new(),
        limit: 1_000,
        format: EVENT_FORMAT,
        host: None,
    }
}

/// What a row said no to.
pub fn refused(appended: Appended) -> Refused {
    match appended {
        Appended::Refused(why) => why,
        Appended::At { .. }
        | Appended::Conflict
        | Appended::Fenced
        | Appended::RunEnded
        | Appended::RunNotFound => panic!("expected a refusal, got {appended:?}"),
    }
}

/// Asserts that an append stands.
pub fn assert_appended(appended: &Appended) {
    assert!(matches!(appended, Appended::At { .. }), "{appended:?}");
}

/// The runs of some claims.
pub fn run_ids(claimed: &[Claim]) -> Vec<RunId> {
    claimed.iter().map(|claimed| claimed.run).collect()
}

/// An agent's name.
pub fn agent(name: &str) -> AgentName {
    AgentName::new(name).expect("a good name")
}

/// An inbox's name.
pub fn inbox(name: &str) -> InboxName {
    InboxName::new(name).expect("a good name")
}

/// A lane's name.
pub fn lane_key(name: &str) -> LaneKey {
    LaneKey::new(name).expect("a good name")
}
