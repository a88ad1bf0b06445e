//! Signs of life, and what becomes of the runs of those who give none.
//!
//! Never: lets a worker die that only its reaper could not see.

use longhaul_core::id::{Epoch, WorkerId};
use longhaul_core::port::store::{Appended, Heartbeat, WorkerLiveness};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::conformance::store::batches::{events_batch, progress, release_batch};
use crate::conformance::store::fixture::{StoreFixture, TTL, heartbeat, run_ids};

/// A third of the ttl: how often workers beat.
const HEARTBEAT_INTERVAL: Millis = Millis(TTL.0 / 3);

/// The runs of a silent worker are ready again, with their epoch, and the next
/// claim fences it.
pub async fn runs_of_a_silent_worker_are_released(world: StoreFixture) {
    let reaper = world.worker().await;
    let mut lost = world.open_and_claim(|_| {}).await;
    let mut kept = world.open_and_claim(|_| {}).await;
    for _ in 0..3 {
        world.advance(HEARTBEAT_INTERVAL);
        assert_eq!(world.heartbeat(reaper).await.reaped, 0);
        world.heartbeat(kept.worker).await;
    }
    world.advance(Millis(1));
    assert_eq!(world.heartbeat(reaper).await.reaped, 1);
    assert_eq!(world.heartbeat(reaper).await.reaped, 0, "once");
    let row = world.row(lost.run).await;
    assert_eq!((row.status, row.worker), (Status::Running, None));
    assert_eq!((row.reason.as_deref(), row.epoch), (Some("worker"), Epoch(1)));
    assert_eq!(row.last_seq, lost.last, "nothing is written down");
    assert_eq!(lost.append(events_batch([progress(1)])).await, Appended::Fenced);
    let mut next = world.claim_one(reaper).await;
    assert_eq!((next.run, next.epoch), (lost.run, Epoch(2)));
    lost.last = next.last;
    assert_eq!(lost.append(events_batch([progress(1)])).await, Appended::Fenced);
    next.append_ok(events_batch([progress(2)])).await;
    kept.append_ok(events_batch([progress(3)])).await;
}

/// A worker that is dead learns it, and stays dead.
pub async fn a_dead_worker_learns_that_it_is_dead(world: StoreFixture) {
    let reaper = world.worker().await;
    let dead = world.worker().await;
    expire_others(&world, reaper).await;
    for draining in [false, true] {
        let said = world.heartbeat_with(Heartbeat { draining, ..heartbeat(dead) }).await;
        assert_eq!((said.liveness, said.reaped), (WorkerLiveness::Dead, 0));
    }
    assert_eq!(liveness(&world, dead).await, WorkerLiveness::Dead);
    assert_eq!(liveness(&world, reaper).await, WorkerLiveness::Live);
}

/// A reaped worker's late claim takes nothing and strands nothing.
pub async fn a_late_claim_of_a_reaped_worker_leaves_no_stuck_run(world: StoreFixture) {
    let reaper = world.worker().await;
    let mut lost = world.open_and_claim(|_| {}).await;
    let fresh = world.open(|_| {}).await;
    expire_others(&world, reaper).await;
    for _ in 0..2 {
        assert_eq!(world.claim(lost.worker).await, []);
    }
    world.assert_consistent().await;
    let claimed = world.claim(reaper).await;
    assert_eq!(run_ids(&claimed), [lost.run, fresh]);
    assert_eq!(lost.append(release_batch()).await, Appended::Fenced);
}

/// A worker that drains beats on, keeps its runs, and takes no new ones.
pub async fn draining_workers_send_heartbeats_too(world: StoreFixture) {
    let reaper = world.worker().await;
    let mut held = world.open_and_claim(|_| {}).await;
    let drains = || Heartbeat { draining: true, ..heartbeat(held.worker) };
    world.heartbeat_with(drains()).await;
    for _ in 0..6 {
        world.advance(HEARTBEAT_INTERVAL);
        assert_eq!(world.heartbeat(reaper).await.reaped, 0);
        let said = world.heartbeat_with(drains()).await;
        assert_eq!(
            (said.liveness, said.now),
            (WorkerLiveness::Draining, world.harness.clock.now())
        );
    }
    world.open(|_| {}).await;
    assert_eq!(world.claim(held.worker).await, []);
    held.append_ok(events_batch([progress(1)])).await;
    world.heartbeat(held.worker).await;
    assert_eq!(world.claim(held.worker).await.len(), 1, "it may live again");
}

/// After a silence of its own a worker beats for one ttl before it reaps:
/// the others were cut off from the store as well.
pub async fn a_reaper_that_was_silent_waits_one_ttl(world: StoreFixture) {
    let first = world.worker().await;
    let mut held = world.open_and_claim(|_| {}).await;
    world.advance(Millis(TTL.0 * 2));
    assert_eq!(world.heartbeat(first).await.reaped, 0, "back after a failover");
    for _ in 0..2 {
        world.advance(HEARTBEAT_INTERVAL);
        assert_eq!(world.heartbeat(first).await.reaped, 0, "not yet one ttl in touch");
    }
    let back = world.heartbeat(held.worker).await;
    assert_eq!(back.liveness, WorkerLiveness::Live, "it was not reaped");
    held.append_ok(events_batch([progress(1)])).await;
    for _ in 0..4 {
        world.advance(HEARTBEAT_INTERVAL);
        assert_eq!(world.heartbeat(first).await.reaped, 0);
        world.heartbeat(held.worker).await;
    }
    world.advance(HEARTBEAT_INTERVAL);
    world.heartbeat(first).await;
    expire_others(&world, first).await;
    assert_eq!(world.heartbeat(held.worker).await.liveness, WorkerLiveness::Dead);
    world.assert_status(held.run, Status::Running, "worker").await;
}

/// A worker that has just come is not yet sure who else is alive.
pub async fn a_new_worker_waits_one_ttl_before_it_reaps(world: StoreFixture) {
    let held = world.open_and_claim(|_| {}).await;
    world.advance(Millis(TTL.0 + 1));
    let new = world.ids.worker();
    assert_eq!(world.heartbeat(new).await.reaped, 0);
    world.advance(HEARTBEAT_INTERVAL);
    assert_eq!(world.heartbeat(new).await.reaped, 0);
    assert_eq!(liveness(&world, held.worker).await, WorkerLiveness::Live);
    world.advance(HEARTBEAT_INTERVAL);
    assert_eq!(world.heartbeat(new).await.reaped, 0);
    world.advance(HEARTBEAT_INTERVAL);
    assert_eq!(world.heartbeat(new).await.reaped, 1);
}

/// After the clock was set back the stored heartbeats are from the future: they
/// allow no claim and keep no dead worker alive, and the next heartbeat ends that.
pub async fn a_heartbeat_from_the_future_is_stale(world: StoreFixture) {
    let reaper = world.worker().await;
    let held = world.open_and_claim(|_| {}).await;
    let fresh = world.open(|_| {}).await;
    keep_alive(&world, &[reaper, held.worker]).await;
    let hour_ago = world.harness.clock.now().as_micros() - 3_600_000_000;
    world.harness.clock.set(Timestamp::from_micros(hour_ago));
    assert_eq!(world.claim(reaper).await, []);
    assert_eq!(world.heartbeat(reaper).await.reaped, 0, "not yet one ttl in touch");
    assert_eq!(run_ids(&world.claim(reaper).await), [fresh]);
    for _ in 0..2 {
        world.advance(HEARTBEAT_INTERVAL);
        assert_eq!(world.heartbeat(reaper).await.reaped, 0);
    }
    world.advance(HEARTBEAT_INTERVAL);
    assert_eq!(world.heartbeat(reaper).await.reaped, 1);
    assert_eq!(liveness(&world, held.worker).await, WorkerLiveness::Dead);
    world.assert_status(held.run, Status::Running, "worker").await;
}

/// After the clock was set forward every heartbeat looks old. Whoever beats first
/// takes nothing from those that are a moment later.
pub async fn a_clock_set_forward_reaps_no_live_worker(world: StoreFixture) {
    let first = world.worker().await;
    let mut held = world.open_and_claim(|_| {}).await;
    keep_alive(&world, &[first, held.worker]).await;
    let clock = &world.harness.clock;
    clock.set(clock.now().plus(Millis::from_secs(3_600)));
    assert_eq!(world.heartbeat(first).await.reaped, 0);
    let late = world.heartbeat(held.worker).await;
    assert_eq!((late.liveness, late.reaped), (WorkerLiveness::Live, 0));
    keep_alive(&world, &[first, held.worker]).await;
    held.append_ok(events_batch([progress(1)])).await;
}

/// Workers are listed with what they hold.
pub async fn workers_are_listed_with_their_runs(world: StoreFixture) {
    let held = world.open_and_claim(|_| {}).await;
    let idle = world.worker().await;
    let rows = world.harness.records.workers().await.expect("workers");
    let count = |worker: WorkerId| {
        let row = rows.iter().find(|row| row.worker == worker);
        row.map(|row| (row.runs, row.liveness, row.host.as_str(), row.build.as_str()))
    };
    assert_eq!(count(held.worker), Some((1, WorkerLiveness::Live, "here", "test")));
    assert_eq!(count(idle), Some((0, WorkerLiveness::Live, "here", "test")));
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.heartbeat_at == world.harness.clock.now()));
}

/// Lets everybody but the reaper fall silent, and reaps.
async fn expire_others(world: &StoreFixture, reaper: WorkerId) {
    for _ in 0..4 {
        world.advance(HEARTBEAT_INTERVAL);
        world.heartbeat(reaper).await;
    }
}

/// Lets more than a ttl pass in which all of these beat.
async fn keep_alive(world: &StoreFixture, workers: &[WorkerId]) {
    for _ in 0..4 {
        world.advance(HEARTBEAT_INTERVAL);
        for worker in workers {
            assert_eq!(world.heartbeat(*worker).await.reaped, 0);
        }
    }
}

async fn liveness(world: &StoreFixture, worker: WorkerId) -> WorkerLiveness {
    let rows = world.harness.records.workers().await.expect("workers");
    let row = rows.iter().find(|row| row.worker == worker);
    row.expect("the worker is known").liveness
}
