//! Fixture for the checks: a store, and helpers to act on it.

use longhaul_core::change::{JournalBatch, LANE_DEPTH_MAX, LaneEntryPolicy, NewRun, RowChange};
use longhaul_core::event::run::RunCreated;
use longhaul_core::event::{EVENT_FORMAT, Event};
use longhaul_core::id::{AgentName, Epoch, InboxName, LaneKey, RunId, Seq, WorkerId};
use longhaul_core::port::store::{
    AppendRefusalReason, AppendRequest, AppendResult, Claim, CreateRunsOutcome, CreateRunsRequest,
    Heartbeat, HeartbeatAck, JournalAuthor, JournalReadRequest, RunClaimRequest, RunRow,
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

/// TTL of every worker in the checks.
pub const TTL: Millis = Millis::from_secs(15);

/// A store with everything that a check needs. Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub struct StoreFixture {
    /// The store and its clock.
    pub harness: Harness,
    pub ids: SeededIds,
}

impl StoreFixture {
    pub fn new(at: Harness) -> Self {
        let ids = SeededIds::new(1);
        Self { harness: at, ids }
    }

    /// Asserts that a repair finds nothing.
    pub async fn assert_consistent(&self) {
        let repairs = self.harness.records.repair_inconsistent_rows().await.expect("repair");
        assert!(repairs.is_all_zero(), "{repairs:?}");
    }

    /// Advances the clock.
    pub fn advance(&self, duration: Millis) {
        self.harness.clock.advance(duration);
    }

    /// Returns a run that is not opened yet, with the first events of its journal.
    pub fn new_run(&self, change: impl FnOnce(&mut TaskSpec)) -> NewRun {
        let id = self.ids.run();
        let mut task = TaskSpec::new(id, agent("writer"), RawJson::null(), inbox("main"));
        change(&mut task);
        let created = RunCreated { task: task.clone() };
        NewRun {
            id,
            task,
            events: vec![Event::RunCreated(Box::new(created))],
            copied_journal: None,
            steers: Vec::new(),
            lane_depth_max: LANE_DEPTH_MAX,
            lane_entry: LaneEntryPolicy::default(),
            caps: Vec::new(),
        }
    }

    pub async fn open(&self, change: impl FnOnce(&mut TaskSpec)) -> RunId {
        let new = self.new_run(change);
        let id = new.id;
        assert_eq!(self.open_runs(vec![new]).await, CreateRunsOutcome::Created(vec![id]));
        id
    }

    /// Opens `count` runs in one lane, one after another.
    pub async fn open_in_lane(&self, lane: &str, count: usize) -> Vec<RunId> {
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(self.open(|task| task.lane = Some(lane_key(lane))).await);
        }
        runs
    }

    /// Sends a request to open runs without an idempotency key.
    pub async fn open_runs(&self, runs: Vec<NewRun>) -> CreateRunsOutcome {
        let request = CreateRunsRequest { runs, blobs: Vec::new(), idempotency: None };
        self.harness.store.create_runs(request).await.expect("open")
    }

    /// Returns a new worker that has sent its first heartbeat.
    pub async fn worker(&self) -> WorkerId {
        let worker = self.ids.worker();
        self.heartbeat(worker).await;
        worker
    }

    /// Sends a heartbeat of a worker.
    pub async fn heartbeat(&self, worker: WorkerId) -> HeartbeatAck {
        self.heartbeat_with(heartbeat(worker)).await
    }

    /// Sends this heartbeat.
    pub async fn heartbeat_with(&self, heartbeat: Heartbeat) -> HeartbeatAck {
        self.harness.store.heartbeat(heartbeat).await.expect("renew")
    }

    /// Claims all ready runs in the inbox `main`.
    pub async fn claim(&self, worker: WorkerId) -> Vec<Claim> {
        self.claim_with(claim_request(worker)).await
    }

    /// Sends this claim request.
    pub async fn claim_with(&self, request: RunClaimRequest) -> Vec<Claim> {
        self.harness.store.claim_runs(request).await.expect("claim")
    }

    /// Claims the next run, if there is one.
    pub async fn try_claim_one(&self, worker: WorkerId) -> Option<ClaimedRun> {
        let request = RunClaimRequest { limit: 1, ..claim_request(worker) };
        let claimed = self.claim_with(request).await.pop()?;
        Some(ClaimedRun::new(self, worker, &claimed))
    }

    /// Claims the next run.
    pub async fn claim_one(&self, worker: WorkerId) -> ClaimedRun {
        self.try_claim_one(worker).await.expect("a run is ready")
    }

    /// Opens a run that a new worker claims.
    pub async fn open_and_claim(&self, change: impl FnOnce(&mut TaskSpec)) -> ClaimedRun {
        let run = self.open(change).await;
        let claimed_run = self.claim_one(self.worker().await).await;
        assert_eq!(claimed_run.run, run, "another run was ready");
        claimed_run
    }

    pub async fn append_outside(&self, run: RunId, batch: JournalBatch) -> AppendResult {
        self.append(run, JournalAuthor::Outsider, batch).await
    }

    /// Appends a batch as a closer that has read up to `after`.
    pub async fn append_as_closer(
        &self,
        run: RunId,
        after: Seq,
        batch: JournalBatch,
    ) -> AppendResult {
        self.append(run, JournalAuthor::Closer { after }, batch).await
    }

    pub async fn append(
        &self,
        run: RunId,
        author: JournalAuthor,
        batch: JournalBatch,
    ) -> AppendResult {
        let append = AppendRequest { run, author, batch };
        self.harness.store.append_to_journal(append).await.expect("append")
    }

    pub async fn row(&self, run: RunId) -> RunRow {
        let row = self.harness.store.get_run(run).await.expect("row");
        row.expect("the run exists")
    }

    /// Returns the status of a run and its reason.
    pub async fn status(&self, run: RunId) -> (Status, Option<String>) {
        let row = self.row(run).await;
        (row.status, row.reason)
    }

    pub async fn assert_status(&self, run: RunId, status: Status, reason: &str) {
        let reason = Some(reason.to_owned()).filter(|text| !text.is_empty());
        assert_eq!(self.status(run).await, (status, reason), "{run}");
    }

    /// Returns the whole journal of a run.
    pub async fn journal(&self, run: RunId) -> Vec<Event> {
        let request = JournalReadRequest { run, after: Seq::START, limit: usize::MAX };
        let page = self.harness.store.read_journal(request).await.expect("read");
        page.entries.into_iter().map(|entry| entry.event).collect()
    }

    /// Returns the event types in the journal of a run.
    pub async fn kinds(&self, run: RunId) -> Vec<&'static str> {
        self.journal(run).await.iter().map(Event::kind).collect()
    }
}

/// A claimed run, and what its driver knows.
#[derive(Debug, Clone)]
pub struct ClaimedRun {
    pub fixture: StoreFixture,
    pub run: RunId,
    /// Worker that drives the run.
    pub worker: WorkerId,
    pub epoch: Epoch,
    /// Last sequence number that the driver has read.
    pub last: Seq,
}

impl ClaimedRun {
    /// Creates the driver state of a claim.
    pub fn new(fixture: &StoreFixture, worker: WorkerId, claimed: &Claim) -> Self {
        Self {
            fixture: fixture.clone(),
            run: claimed.run,
            worker,
            epoch: claimed.epoch,
            last: claimed.last_seq,
        }
    }

    /// Returns the author of the driver's appends.
    pub fn author(&self) -> JournalAuthor {
        JournalAuthor::Driver { worker: self.worker, epoch: self.epoch, after: self.last }
    }

    /// Appends a batch and records the new sequence number.
    pub async fn append(&mut self, batch: JournalBatch) -> AppendResult {
        let appended = self.fixture.append(self.run, self.author(), batch).await;
        if let AppendResult::Committed { seq, .. } = appended {
            self.last = seq;
        }
        appended
    }

    /// Appends a batch and asserts that it is accepted.
    pub async fn append_ok(&mut self, batch: JournalBatch) {
        let appended = self.append(batch).await;
        assert!(matches!(appended, AppendResult::Committed { .. }), "{appended:?}");
    }

    /// Applies a change, together with an event so that the append can be retried.
    pub async fn change(&mut self, change: RowChange) -> AppendResult {
        self.append(events_batch([progress(1)]).with_change(change)).await
    }

    pub async fn park(&mut self, reason: &'static str) {
        self.append_ok(park_batch(reason)).await;
    }

    /// Completes the run.
    pub async fn end(&mut self) {
        self.append_ok(end_batch()).await;
    }
}

pub fn heartbeat(worker: WorkerId) -> Heartbeat {
    Heartbeat {
        worker,
        host: "here".to_owned(),
        build: "test".to_owned(),
        inboxes: vec![inbox("main")],
        types: Vec::new(),
        draining: false,
        ttl: TTL,
    }
}

/// Returns a claim request for all ready runs in the inbox `main`.
pub fn claim_request(worker: WorkerId) -> RunClaimRequest {
    RunClaimRequest {
        worker,
        inboxes: vec![inbox("main")],
        types: Vec::new(),
        only: None,
        limit: 1_000,
        format: EVENT_FORMAT,
        host: None,
    }
}

pub fn refused(appended: AppendResult) -> AppendRefusalReason {
    match appended {
        AppendResult::Refused(reason) => reason,
        AppendResult::Committed { .. }
        | AppendResult::Conflict
        | AppendResult::Fenced
        | AppendResult::RunEnded
        | AppendResult::RunNotFound => panic!("expected a refusal, got {appended:?}"),
    }
}

/// Asserts that an append was accepted.
pub fn assert_appended(appended: &AppendResult) {
    assert!(matches!(appended, AppendResult::Committed { .. }), "{appended:?}");
}

pub fn run_ids(claimed: &[Claim]) -> Vec<RunId> {
    claimed.iter().map(|claimed| claimed.run).collect()
}

pub fn agent(name: &str) -> AgentName {
    AgentName::new(name).expect("a valid name")
}

pub fn inbox(name: &str) -> InboxName {
    InboxName::new(name).expect("a valid name")
}

pub fn lane_key(name: &str) -> LaneKey {
    LaneKey::new(name).expect("a valid name")
}
