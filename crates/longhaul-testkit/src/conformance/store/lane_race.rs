//! Lanes under concurrent producers, workers and cancellers. The checks do not wait for a run:
//! when everyone has stopped and nothing is ready, a run that has not ended is stuck.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{RowChange, RunSchedulingUpdate};
use longhaul_core::id::{LaneKey, RunId, WorkerId};
use longhaul_core::port::store::{AppendResult, RunFilter};
use longhaul_core::status::Status;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, end_batch, events_batch, park_batch, resumed,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, lane_key};

const LANES: usize = 5;
const PRODUCERS: usize = 3;
const WORKERS: usize = 4;
const CANCELLERS: usize = 2;

/// Runs of a lane never overlap, execute in the order in which they entered, and all end, while
/// others open, drive and cancel runs concurrently.
pub async fn lanes_stay_serial_and_in_order(fixture: StoreFixture) {
    let watcher = Arc::new(Watcher::default());
    let share = (fixture.harness.rounds / 10).max(10) / PRODUCERS;
    let mut tasks = JoinSet::new();
    for _ in 0..PRODUCERS {
        tasks.spawn(produce(fixture.clone(), watcher.clone(), share));
    }
    for number in 0..CANCELLERS {
        tasks.spawn(cancel(fixture.clone(), watcher.clone(), number));
    }
    for _ in 0..WORKERS {
        let worker = fixture.worker().await;
        tasks.spawn(work(fixture.clone(), watcher.clone(), worker));
    }
    tasks.join_all().await;
    let filter = RunFilter { limit: usize::MAX, ..RunFilter::default() };
    let rows = fixture.harness.store.list_runs(filter).await.expect("rows");
    assert_eq!(rows.len(), PRODUCERS * share);
    let stuck: Vec<_> = rows.iter().filter(|row| !row.status.is_terminal()).collect();
    assert!(stuck.is_empty(), "{} runs are stuck: {:?}", stuck.len(), stuck[0]);
    assert_eq!(fixture.harness.records.list_lanes(None, 99).await.expect("lanes"), []);
    watcher.assert_in_order();
    let completed = rows.iter().filter(|row| row.status == Status::Completed);
    assert_eq!(completed.count(), watcher.driven(), "each run is driven once");
}

/// Runs that release their lane while they are parked let others run, and none is lost.
pub async fn released_lanes_lose_no_run(fixture: StoreFixture) {
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(fixture.worker().await);
    }
    let count = (fixture.harness.rounds / 20).max(6);
    for number in 0..count {
        fixture.open_in_lane(&format!("lane{}", number % 2), 1).await;
    }
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(park_and_return(fixture.clone(), worker));
    }
    let ended: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(ended, count);
    assert_eq!(fixture.harness.records.list_lanes(None, 99).await.expect("lanes"), []);
}

/// Observations from outside the store.
#[derive(Debug, Default)]
struct Watcher {
    ticks: AtomicUsize,
    closed: AtomicUsize,
    driven_count: AtomicUsize,
    observed: Mutex<Observed>,
}

#[derive(Debug, Default)]
struct Observed {
    /// Times at which the open request of a run began and ended.
    opened: BTreeMap<RunId, (usize, usize)>,
    /// Run that is currently driven, by lane.
    holder: BTreeMap<LaneKey, RunId>,
    /// Runs of each lane in the order of their first claim.
    order: BTreeMap<LaneKey, Vec<RunId>>,
}

impl Watcher {
    fn tick(&self) -> usize {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn with_observed<T>(&self, f: impl FnOnce(&mut Observed) -> T) -> T {
        f(&mut self.observed.lock().expect("the lock is not poisoned"))
    }

    /// Records that a run of a lane is driven. Asserts that no other run of the lane is.
    fn record_start(&self, lane: &LaneKey, run: RunId) {
        self.with_observed(|observed| {
            if let Some(holder) = observed.holder.insert(lane.clone(), run) {
                assert_eq!(holder, run, "two concurrent runs of {lane}");
            }
            let order = observed.order.entry(lane.clone()).or_default();
            if order.last() != Some(&run) {
                order.push(run);
            }
        });
    }

    /// Records that a run of a lane is about to end.
    fn record_end(&self, lane: &LaneKey) {
        self.with_observed(|observed| observed.holder.remove(lane));
    }

    /// Asserts that a run that entered before another was also claimed before it.
    fn assert_in_order(&self) {
        self.with_observed(|observed| {
            for (lane, order) in &observed.order {
                for (index, run) in order.iter().enumerate() {
                    let (started, _) = observed.opened[run];
                    let overtaken =
                        order[index + 1..].iter().find(|later| observed.opened[later].1 < started);
                    assert_eq!(overtaken, None, "{run} overtook another run in {lane}");
                }
            }
        });
    }

    fn driven(&self) -> usize {
        self.with_observed(|observed| observed.order.values().map(Vec::len).sum())
    }
}

async fn produce(fixture: StoreFixture, watcher: Arc<Watcher>, share: usize) {
    for number in 0..share {
        let lane = lane_key(&format!("lane{}", number % LANES));
        let new = fixture.new_run(|task| task.lane = Some(lane));
        let run = new.id;
        let started = watcher.tick();
        watcher.with_observed(|observed| observed.opened.insert(run, (started, usize::MAX)));
        fixture.open_runs(vec![new]).await;
        let finished = watcher.tick();
        watcher.with_observed(|observed| observed.opened.insert(run, (started, finished)));
        yield_now().await;
    }
    watcher.closed.fetch_add(1, Ordering::SeqCst);
}

/// Cancels queued runs until no more are opened.
async fn cancel(fixture: StoreFixture, watcher: Arc<Watcher>, number: usize) {
    let mut checked = 0;
    loop {
        let is_last = watcher.closed.load(Ordering::SeqCst) >= PRODUCERS;
        let runs: Vec<RunId> =
            watcher.with_observed(|observed| observed.opened.keys().copied().collect());
        let targets = runs.iter().skip(checked).step_by(CANCELLERS + 2 + number);
        for run in targets.copied().collect::<Vec<_>>() {
            cancel_if_queued(&fixture, run).await;
            yield_now().await;
        }
        checked = runs.len();
        if is_last {
            break;
        }
        yield_now().await;
    }
    watcher.closed.fetch_add(1, Ordering::SeqCst);
}

async fn cancel_if_queued(fixture: &StoreFixture, run: RunId) {
    let Some(row) = fixture.harness.store.get_run(run).await.expect("row") else {
        return;
    };
    // Parked and driven runs are left to their driver.
    if row.epoch.0 == 0 && !row.status.is_terminal() {
        let appended = fixture.append_as_closer(run, row.last_seq, cancel_batch()).await;
        let is_fair = matches!(
            appended,
            AppendResult::Committed { .. } | AppendResult::Conflict | AppendResult::RunEnded
        );
        assert!(is_fair, "{appended:?}");
    }
}

async fn work(fixture: StoreFixture, watcher: Arc<Watcher>, worker: WorkerId) {
    let closing_tasks = PRODUCERS + CANCELLERS;
    loop {
        let is_quiet = watcher.closed.load(Ordering::SeqCst) >= closing_tasks
            && watcher.driven_count.load(Ordering::SeqCst) == 0;
        watcher.driven_count.fetch_add(1, Ordering::SeqCst);
        let claimed = fixture.try_claim_one(worker).await;
        let is_claimed = claimed.is_some();
        if let Some(claimed_run) = claimed {
            drive(&fixture, &watcher, claimed_run).await;
        }
        watcher.driven_count.fetch_sub(1, Ordering::SeqCst);
        if is_quiet && !is_claimed {
            return;
        }
        yield_now().await;
    }
}

/// Drives a run to its end. Every third run parks once while it holds its lane.
async fn drive(fixture: &StoreFixture, watcher: &Watcher, mut claimed_run: ClaimedRun) {
    let lane = fixture.row(claimed_run.run).await.lane.expect("the run has a lane");
    watcher.record_start(&lane, claimed_run.run);
    yield_now().await;
    if claimed_run.epoch.0 == 1 && claimed_run.run.bits() >> 32 & 3 == 0 {
        claimed_run.append_ok(park_batch("child")).await;
        yield_now().await;
        assert_appended(&fixture.append_outside(claimed_run.run, events_batch([resumed()])).await);
        return;
    }
    watcher.record_end(&lane);
    claimed_run.append_ok(end_batch()).await;
}

/// Drives runs that release their lane once, and returns how many have ended.
async fn park_and_return(fixture: StoreFixture, worker: WorkerId) -> usize {
    let mut ended = 0;
    while let Some(mut claimed_run) = fixture.try_claim_one(worker).await {
        yield_now().await;
        if claimed_run.epoch.0 == 1 {
            let park = RowChange::UpdateScheduling(RunSchedulingUpdate::Park {
                reason: "child",
                blocked: false,
                release_lane: true,
            });
            claimed_run.append_ok(events_batch(park_batch("child").events).with_change(park)).await;
            yield_now().await;
            assert_appended(
                &fixture.append_outside(claimed_run.run, events_batch([resumed()])).await,
            );
        } else {
            claimed_run.append_ok(end_batch()).await;
            ended += 1;
        }
    }
    ended
}
