//! Lanes under producers, workers and cancellers at once.
//!
//! Never: waits for a run. When nobody opens, cancels or drives any more and
//! nothing is ready, whatever has not ended is stuck.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{Change, HeadUpdate};
use longhaul_core::id::{LaneKey, RunId, WorkerId};
use longhaul_core::port::store::{Appended, RunFilter};
use longhaul_core::status::Status;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, end_batch, events_batch, park_batch, resumed,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, lane_key};

const LANES: usize = 5;
const PRODUCERS: usize = 3;
const WORKERS: usize = 4;
const CANCELLERS: usize = 2;

/// Runs of a lane never overlap, go in the order of entering, and all end,
/// whoever opens, drives and cancels them at the same time.
pub async fn lanes_stay_serial_and_in_order(world: StoreFixture) {
    let watch = Arc::new(Watcher::default());
    let share = (world.harness.rounds / 10).max(10) / PRODUCERS;
    let mut crowd = JoinSet::new();
    for _ in 0..PRODUCERS {
        crowd.spawn(produce(world.clone(), watch.clone(), share));
    }
    for number in 0..CANCELLERS {
        crowd.spawn(cancel(world.clone(), watch.clone(), number));
    }
    for _ in 0..WORKERS {
        let worker = world.worker().await;
        crowd.spawn(work(world.clone(), watch.clone(), worker));
    }
    crowd.join_all().await;
    let ask = RunFilter { limit: usize::MAX, ..RunFilter::default() };
    let rows = world.harness.store.list_runs(ask).await.expect("rows");
    assert_eq!(rows.len(), PRODUCERS * share);
    let stuck: Vec<_> = rows.iter().filter(|row| !row.status.is_terminal()).collect();
    assert!(stuck.is_empty(), "{} runs are stuck: {:?}", stuck.len(), stuck[0]);
    assert_eq!(world.harness.records.lanes(None, 99).await.expect("lanes"), []);
    watch.assert_in_order();
    let completed = rows.iter().filter(|row| row.status == Status::Completed);
    assert_eq!(completed.count(), watch.driven(), "each run is driven once");
}

/// Lets go of the lane while it waits: others pass, nobody is lost.
pub async fn released_lanes_lose_no_run(world: StoreFixture) {
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(world.worker().await);
    }
    let count = (world.harness.rounds / 20).max(6);
    for number in 0..count {
        world.open_in_lane(&format!("lane{}", number % 2), 1).await;
    }
    let mut crew = JoinSet::new();
    for worker in workers {
        crew.spawn(park_and_return(world.clone(), worker));
    }
    let ended: usize = crew.join_all().await.into_iter().sum();
    assert_eq!(ended, count);
    assert_eq!(world.harness.records.lanes(None, 99).await.expect("lanes"), []);
}

/// What an observer outside of the store sees.
#[derive(Debug, Default)]
struct Watcher {
    ticks: AtomicUsize,
    closed: AtomicUsize,
    driven_count: AtomicUsize,
    observed: Mutex<Observed>,
}

#[derive(Debug, Default)]
struct Observed {
    /// When the open of a run began and ended.
    opened: BTreeMap<RunId, (usize, usize)>,
    /// Who is in hand in each lane.
    holder: BTreeMap<LaneKey, RunId>,
    /// The runs of each lane in the order of their first claim.
    order: BTreeMap<LaneKey, Vec<RunId>>,
}

impl Watcher {
    fn tick(&self) -> usize {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn with_observed<T>(&self, look: impl FnOnce(&mut Observed) -> T) -> T {
        look(&mut self.observed.lock().expect("nobody panicked here"))
    }

    /// A run of a lane goes. Nobody else of that lane may.
    fn record_start(&self, lane: &LaneKey, run: RunId) {
        self.with_observed(|seen| {
            if let Some(holder) = seen.holder.insert(lane.clone(), run) {
                assert_eq!(holder, run, "two runs of {lane} at once");
            }
            let order = seen.order.entry(lane.clone()).or_default();
            if order.last() != Some(&run) {
                order.push(run);
            }
        });
    }

    /// A run of a lane is about to end.
    fn record_end(&self, lane: &LaneKey) {
        self.with_observed(|seen| seen.holder.remove(lane));
    }

    /// Whoever was in the lane before another came goes before it.
    fn assert_in_order(&self) {
        self.with_observed(|seen| {
            for (lane, order) in &seen.order {
                for (place, run) in order.iter().enumerate() {
                    let (begun, _) = seen.opened[run];
                    let overtaken =
                        order[place + 1..].iter().find(|later| seen.opened[later].1 < begun);
                    assert_eq!(overtaken, None, "{run} went first in {lane}");
                }
            }
        });
    }

    fn driven(&self) -> usize {
        self.with_observed(|seen| seen.order.values().map(Vec::len).sum())
    }
}

async fn produce(world: StoreFixture, watch: Arc<Watcher>, share: usize) {
    for number in 0..share {
        let lane = lane_key(&format!("lane{}", number % LANES));
        let new = world.new_run(|task| task.lane = Some(lane));
        let run = new.id;
        let begun = watch.tick();
        watch.with_observed(|seen| seen.opened.insert(run, (begun, usize::MAX)));
        world.open_runs(vec![new]).await;
        let done = watch.tick();
        watch.with_observed(|seen| seen.opened.insert(run, (begun, done)));
        yield_now().await;
    }
    watch.closed.fetch_add(1, Ordering::SeqCst);
}

/// Cancels queued runs as it finds them, until nobody opens any.
async fn cancel(world: StoreFixture, watch: Arc<Watcher>, number: usize) {
    let mut tried = 0;
    loop {
        let is_last = watch.closed.load(Ordering::SeqCst) >= PRODUCERS;
        let known: Vec<RunId> = watch.with_observed(|seen| seen.opened.keys().copied().collect());
        let mine = known.iter().skip(tried).step_by(CANCELLERS + 2 + number);
        for run in mine.copied().collect::<Vec<_>>() {
            cancel_if_queued(&world, run).await;
            yield_now().await;
        }
        tried = known.len();
        if is_last {
            break;
        }
        yield_now().await;
    }
    watch.closed.fetch_add(1, Ordering::SeqCst);
}

async fn cancel_if_queued(world: &StoreFixture, run: RunId) {
    let Some(row) = world.harness.store.get_run(run).await.expect("row") else {
        return;
    };
    // Parked and driven runs are left to their driver.
    if row.epoch.0 == 0 && !row.status.is_terminal() {
        let told = world.append_as_closer(run, row.last_seq, cancel_batch()).await;
        let is_fair = matches!(told, Appended::At { .. } | Appended::Conflict | Appended::RunEnded);
        assert!(is_fair, "{told:?}");
    }
}

async fn work(world: StoreFixture, watch: Arc<Watcher>, worker: WorkerId) {
    let everybody = PRODUCERS + CANCELLERS;
    loop {
        let is_quiet = watch.closed.load(Ordering::SeqCst) >= everybody
            && watch.driven_count.load(Ordering::SeqCst) == 0;
        watch.driven_count.fetch_add(1, Ordering::SeqCst);
        let taken = world.try_claim_one(worker).await;
        let got = taken.is_some();
        if let Some(held) = taken {
            drive(&world, &watch, held).await;
        }
        watch.driven_count.fetch_sub(1, Ordering::SeqCst);
        if is_quiet && !got {
            return;
        }
        yield_now().await;
    }
}

/// Every third run rests once with its lane in hand, then ends.
async fn drive(world: &StoreFixture, watch: &Watcher, mut held: ClaimedRun) {
    let lane = world.row(held.run).await.lane.expect("it has a lane");
    watch.record_start(&lane, held.run);
    yield_now().await;
    if held.epoch.0 == 1 && held.run.bits() >> 32 & 3 == 0 {
        held.append_ok(park_batch("child")).await;
        yield_now().await;
        assert_appended(&world.append_outside(held.run, events_batch([resumed()])).await);
        return;
    }
    watch.record_end(&lane);
    held.append_ok(end_batch()).await;
}

/// Drives runs that let go of their lane once, and says how many it ended.
async fn park_and_return(world: StoreFixture, worker: WorkerId) -> usize {
    let mut ended = 0;
    while let Some(mut held) = world.try_claim_one(worker).await {
        yield_now().await;
        if held.epoch.0 == 1 {
            let lets_go = Change::SetHead(HeadUpdate::Park {
                reason: "child",
                blocked: false,
                release_lane: true,
            });
            held.append_ok(events_batch(park_batch("child").events).with_change(lets_go)).await;
            yield_now().await;
            assert_appended(&world.append_outside(held.run, events_batch([resumed()])).await);
        } else {
            held.append_ok(end_batch()).await;
            ended += 1;
        }
    }
    ended
}
