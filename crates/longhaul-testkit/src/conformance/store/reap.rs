//! Signs of life, and what becomes of the runs of those who give none.
//!
//! Never: lets a worker die that only its reaper could not see.

use longhaul_core::id::{Epoch, WorkerId};
use longhaul_core::port::store::{Appended, Beat, Standing};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::conformance::store::facts::{progress, releases, says};
use crate::conformance::store::kit::{TTL, World, beat, runs};

/// A third of the ttl: how often workers beat.
const BEAT: Millis = Millis(TTL.0 / 3);

/// The runs of a silent worker are ready again, with their epoch, and the next
/// claim fences it.
pub async fn the_runs_of_a_silent_worker_are_freed(world: World) {
    let reaper = world.worker().await;
    let mut lost = world.held(|_| {}).await;
    let mut kept = world.held(|_| {}).await;
    for _ in 0..3 {
        world.pass(BEAT);
        assert_eq!(world.beat(reaper).await.reaped, 0);
        world.beat(kept.worker).await;
    }
    world.pass(Millis(1));
    assert_eq!(world.beat(reaper).await.reaped, 1);
    assert_eq!(world.beat(reaper).await.reaped, 0, "once");
    let row = world.row(lost.run).await;
    assert_eq!((row.status, row.worker), (Status::Running, None));
    assert_eq!(
        (row.reason.as_deref(), row.epoch),
        (Some("worker"), Epoch(1))
    );
    assert_eq!(row.last, lost.last, "nothing is written down");
    assert_eq!(lost.append(says([progress(1)])).await, Appended::Fenced);
    let mut next = world.take(reaper).await;
    assert_eq!((next.run, next.epoch), (lost.run, Epoch(2)));
    lost.last = next.last;
    assert_eq!(lost.append(says([progress(1)])).await, Appended::Fenced);
    next.write(says([progress(2)])).await;
    kept.write(says([progress(3)])).await;
}

/// A worker that is dead learns it, and stays dead.
pub async fn a_dead_worker_learns_it(world: World) {
    let reaper = world.worker().await;
    let dead = world.worker().await;
    silence(&world, reaper).await;
    for draining in [false, true] {
        let said = world
            .renew(Beat {
                draining,
                ..beat(dead)
            })
            .await;
        assert_eq!((said.standing, said.reaped), (Standing::Dead, 0));
    }
    assert_eq!(standing(&world, dead).await, Standing::Dead);
    assert_eq!(standing(&world, reaper).await, Standing::Live);
}

/// A reaped worker's late claim takes nothing and strands nothing.
pub async fn a_late_claim_of_a_reaped_worker_strands_nothing(world: World) {
    let reaper = world.worker().await;
    let mut lost = world.held(|_| {}).await;
    let fresh = world.open(|_| {}).await;
    silence(&world, reaper).await;
    for _ in 0..2 {
        assert_eq!(world.claim(lost.worker).await, []);
    }
    world.is_in_order().await;
    let claimed = world.claim(reaper).await;
    assert_eq!(runs(&claimed), [lost.run, fresh]);
    assert_eq!(lost.append(releases()).await, Appended::Fenced);
}

/// A worker that drains beats on, keeps its runs, and takes no new ones.
pub async fn draining_workers_beat_too(world: World) {
    let reaper = world.worker().await;
    let mut held = world.held(|_| {}).await;
    let drains = || Beat {
        draining: true,
        ..beat(held.worker)
    };
    world.renew(drains()).await;
    for _ in 0..6 {
        world.pass(BEAT);
        assert_eq!(world.beat(reaper).await.reaped, 0);
        let said = world.renew(drains()).await;
        assert_eq!(
            (said.standing, said.now),
            (Standing::Draining, world.at.clock.now())
        );
    }
    world.open(|_| {}).await;
    assert_eq!(world.claim(held.worker).await, []);
    held.write(says([progress(1)])).await;
    world.beat(held.worker).await;
    assert_eq!(world.claim(held.worker).await.len(), 1, "it may live again");
}

/// After a silence of its own a worker beats for one ttl before it reaps:
/// the others were cut off from the store as well.
pub async fn a_reaper_that_was_silent_waits_one_ttl(world: World) {
    let first = world.worker().await;
    let mut held = world.held(|_| {}).await;
    world.pass(Millis(TTL.0 * 2));
    assert_eq!(world.beat(first).await.reaped, 0, "back after a failover");
    for _ in 0..2 {
        world.pass(BEAT);
        assert_eq!(
            world.beat(first).await.reaped,
            0,
            "not yet one ttl in touch"
        );
    }
    let back = world.beat(held.worker).await;
    assert_eq!(back.standing, Standing::Live, "it was not reaped");
    held.write(says([progress(1)])).await;
    for _ in 0..4 {
        world.pass(BEAT);
        assert_eq!(world.beat(first).await.reaped, 0);
        world.beat(held.worker).await;
    }
    world.pass(BEAT);
    world.beat(first).await;
    silence(&world, first).await;
    assert_eq!(world.beat(held.worker).await.standing, Standing::Dead);
    world.is(held.run, Status::Running, "worker").await;
}

/// A worker that has just come is not yet sure who else is alive.
pub async fn a_new_worker_waits_one_ttl_before_it_reaps(world: World) {
    let held = world.held(|_| {}).await;
    world.pass(Millis(TTL.0 + 1));
    let new = world.ids.worker();
    assert_eq!(world.beat(new).await.reaped, 0);
    world.pass(BEAT);
    assert_eq!(world.beat(new).await.reaped, 0);
    assert_eq!(standing(&world, held.worker).await, Standing::Live);
    world.pass(BEAT);
    assert_eq!(world.beat(new).await.reaped, 0);
    world.pass(BEAT);
    assert_eq!(world.beat(new).await.reaped, 1);
}

/// After the clock was set back the stored heartbeats are from the future: they
/// allow no claim and keep no dead worker alive, and the next heartbeat ends that.
pub async fn a_heartbeat_from_the_future_is_stale(world: World) {
    let reaper = world.worker().await;
    let held = world.held(|_| {}).await;
    let fresh = world.open(|_| {}).await;
    silence_none(&world, &[reaper, held.worker]).await;
    let hour_ago = world.at.clock.now().as_micros() - 3_600_000_000;
    world.at.clock.set(Timestamp::from_micros(hour_ago));
    assert_eq!(world.claim(reaper).await, []);
    assert_eq!(
        world.beat(reaper).await.reaped,
        0,
        "not yet one ttl in touch"
    );
    assert_eq!(runs(&world.claim(reaper).await), [fresh]);
    for _ in 0..2 {
        world.pass(BEAT);
        assert_eq!(world.beat(reaper).await.reaped, 0);
    }
    world.pass(BEAT);
    assert_eq!(world.beat(reaper).await.reaped, 1);
    assert_eq!(standing(&world, held.worker).await, Standing::Dead);
    world.is(held.run, Status::Running, "worker").await;
}

/// After the clock was set forward every heartbeat looks old. Whoever beats first
/// takes nothing from those that are a moment later.
pub async fn a_clock_set_forward_costs_no_worker_its_runs(world: World) {
    let first = world.worker().await;
    let mut held = world.held(|_| {}).await;
    silence_none(&world, &[first, held.worker]).await;
    let clock = &world.at.clock;
    clock.set(clock.now().plus(Millis::from_secs(3_600)));
    assert_eq!(world.beat(first).await.reaped, 0);
    let late = world.beat(held.worker).await;
    assert_eq!((late.standing, late.reaped), (Standing::Live, 0));
    silence_none(&world, &[first, held.worker]).await;
    held.write(says([progress(1)])).await;
}

/// Workers are listed with what they hold.
pub async fn workers_are_listed_with_their_runs(world: World) {
    let held = world.held(|_| {}).await;
    let idle = world.worker().await;
    let rows = world.at.shelves.workers().await.expect("workers");
    let count = |worker: WorkerId| {
        let row = rows.iter().find(|row| row.worker == worker);
        row.map(|row| {
            (
                row.runs,
                row.standing,
                row.host.as_str(),
                row.build.as_str(),
            )
        })
    };
    assert_eq!(
        count(held.worker),
        Some((1, Standing::Live, "here", "test"))
    );
    assert_eq!(count(idle), Some((0, Standing::Live, "here", "test")));
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.beat_at == world.at.clock.now()));
}

/// Lets everybody but the reaper fall silent, and reaps.
async fn silence(world: &World, reaper: WorkerId) {
    for _ in 0..4 {
        world.pass(BEAT);
        world.beat(reaper).await;
    }
}

/// Lets more than a ttl pass in which all of these beat.
async fn silence_none(world: &World, workers: &[WorkerId]) {
    for _ in 0..4 {
        world.pass(BEAT);
        for worker in workers {
            assert_eq!(world.beat(*worker).await.reaped, 0);
        }
    }
}

async fn standing(world: &World, worker: WorkerId) -> Standing {
    let rows = world.at.shelves.workers().await.expect("workers");
    let row = rows.iter().find(|row| row.worker == worker);
    row.expect("the worker is known").standing
}
