//! Lanes under producers, workers and cancellers at once.
//!
//! Never: waits for a run. When nobody opens, cancels or drives any more and
//! nothing is ready, whatever has not ended is stuck.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{Change, HeadMove};
use longhaul_core::id::{LaneKey, RunId, WorkerId};
use longhaul_core::port::store::{Appended, RowsAsk};
use longhaul_core::status::Status;

use crate::conformance::store::facts::{And as _, cancels, ends, parks, resumed, says};
use crate::conformance::store::kit::{Held, World, lane_key, stands};

const LANES: usize = 5;
const PRODUCERS: usize = 3;
const WORKERS: usize = 4;
const CANCELLERS: usize = 2;

/// Runs of a lane never overlap, go in the order of entering, and all end,
/// whoever opens, drives and cancels them at the same time.
pub async fn lanes_stay_serial_and_in_order(world: World) {
    let watch = Arc::new(Watcher::default());
    let share = (world.at.rounds / 10).max(10) / PRODUCERS;
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
    let ask = RowsAsk {
        limit: usize::MAX,
        ..RowsAsk::default()
    };
    let rows = world.at.store.rows(ask).await.expect("rows");
    assert_eq!(rows.len(), PRODUCERS * share);
    let stuck: Vec<_> = rows
        .iter()
        .filter(|row| !row.status.is_terminal())
        .collect();
    assert!(
        stuck.is_empty(),
        "{} runs are stuck: {:?}",
        stuck.len(),
        stuck[0]
    );
    assert_eq!(world.at.shelves.lanes(None, 99).await.expect("lanes"), []);
    watch.assert_in_order();
    let completed = rows.iter().filter(|row| row.status == Status::Completed);
    assert_eq!(completed.count(), watch.driven(), "each run is driven once");
}

/// Lets go of the lane while it waits: others pass, nobody is lost.
pub async fn lanes_that_are_released_lose_nobody(world: World) {
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(world.worker().await);
    }
    let count = (world.at.rounds / 20).max(6);
    for number in 0..count {
        world.open_in_lane(&format!("lane{}", number % 2), 1).await;
    }
    let mut crew = JoinSet::new();
    for worker in workers {
        crew.spawn(park_and_return(world.clone(), worker));
    }
    let ended: usize = crew.join_all().await.into_iter().sum();
    assert_eq!(ended, count);
    assert_eq!(world.at.shelves.lanes(None, 99).await.expect("lanes"), []);
}

/// What an observer outside of the store sees.
#[derive(Debug, Default)]
struct Watcher {
    ticks: AtomicUsize,
    closed: AtomicUsize,
    in_hand: AtomicUsize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
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

    fn look<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().expect("nobody panicked here"))
    }

    /// A run of a lane goes. Nobody else of that lane may.
    fn begins(&self, lane: &LaneKey, run: RunId) {
        self.look(|seen| {
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
    fn ends(&self, lane: &LaneKey) {
        self.look(|seen| seen.holder.remove(lane));
    }

    /// Whoever was in the lane before another came goes before it.
    fn assert_in_order(&self) {
        self.look(|seen| {
            for (lane, order) in &seen.order {
                for (place, run) in order.iter().enumerate() {
                    let (begun, _) = seen.opened[run];
                    let overtaken = order[place + 1..]
                        .iter()
                        .find(|later| seen.opened[later].1 < begun);
                    assert_eq!(overtaken, None, "{run} went first in {lane}");
                }
            }
        });
    }

    fn driven(&self) -> usize {
        self.look(|seen| seen.order.values().map(Vec::len).sum())
    }
}

async fn produce(world: World, watch: Arc<Watcher>, share: usize) {
    for number in 0..share {
        let lane = lane_key(&format!("lane{}", number % LANES));
        let new = world.new_run(|task| task.lane = Some(lane));
        let run = new.id;
        let begun = watch.tick();
        watch.look(|seen| seen.opened.insert(run, (begun, usize::MAX)));
        world.ask(vec![new]).await;
        let done = watch.tick();
        watch.look(|seen| seen.opened.insert(run, (begun, done)));
        yield_now().await;
    }
    watch.closed.fetch_add(1, Ordering::SeqCst);
}

/// Cancels queued runs as it finds them, until nobody opens any.
async fn cancel(world: World, watch: Arc<Watcher>, number: usize) {
    let mut tried = 0;
    loop {
        let is_last = watch.closed.load(Ordering::SeqCst) >= PRODUCERS;
        let known: Vec<RunId> = watch.look(|seen| seen.opened.keys().copied().collect());
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

async fn cancel_if_queued(world: &World, run: RunId) {
    let Some(row) = world.at.store.row(run).await.expect("row") else {
        return;
    };
    // Parked and driven runs are left to their driver.
    if row.epoch.0 == 0 && !row.status.is_terminal() {
        let told = world.close(run, row.last, cancels()).await;
        let is_fair = matches!(
            told,
            Appended::At { .. } | Appended::MovedOn | Appended::RunEnded
        );
        assert!(is_fair, "{told:?}");
    }
}

async fn work(world: World, watch: Arc<Watcher>, worker: WorkerId) {
    let everybody = PRODUCERS + CANCELLERS;
    loop {
        let is_quiet = watch.closed.load(Ordering::SeqCst) >= everybody
            && watch.in_hand.load(Ordering::SeqCst) == 0;
        watch.in_hand.fetch_add(1, Ordering::SeqCst);
        let taken = world.try_take(worker).await;
        let got = taken.is_some();
        if let Some(held) = taken {
            drive(&world, &watch, held).await;
        }
        watch.in_hand.fetch_sub(1, Ordering::SeqCst);
        if is_quiet && !got {
            return;
        }
        yield_now().await;
    }
}

/// Every third run rests once with its lane in hand, then ends.
async fn drive(world: &World, watch: &Watcher, mut held: Held) {
    let lane = world.row(held.run).await.lane.expect("it has a lane");
    watch.begins(&lane, held.run);
    yield_now().await;
    if held.epoch.0 == 1 && held.run.bits() >> 32 & 3 == 0 {
        held.write(parks("child")).await;
        yield_now().await;
        stands(&world.tell(held.run, says([resumed()])).await);
        return;
    }
    watch.ends(&lane);
    held.write(ends()).await;
}

/// Drives runs that let go of their lane once, and says how many it ended.
async fn park_and_return(world: World, worker: WorkerId) -> usize {
    let mut ended = 0;
    while let Some(mut held) = world.try_take(worker).await {
        yield_now().await;
        if held.epoch.0 == 1 {
            let lets_go = Change::SetHead(HeadMove::Park {
                reason: "child",
                blocked: false,
                release_lane: true,
            });
            held.write(says(parks("child").events).and(lets_go)).await;
            yield_now().await;
            stands(&world.tell(held.run, says([resumed()])).await);
        } else {
            held.write(ends()).await;
            ended += 1;
        }
    }
    ended
}
