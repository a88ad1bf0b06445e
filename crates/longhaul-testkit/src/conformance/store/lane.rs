//! Lanes: one run at a time, in the order of entering.
//!
//! Never: many hands at once; that is `race`.

use longhaul_core::change::{Change, HeadUpdate, NewRun};
use longhaul_core::id::{RunId, WorkerId};
use longhaul_core::port::records::LaneRow;
use longhaul_core::port::store::{OpenOutcome, Refused};
use longhaul_core::status::Status;
use longhaul_core::task::Start;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, end_batch, events_batch, fire_timer_batch, park_batch,
    pause_batch, progress, release_batch, resumed,
};
use crate::conformance::store::fixture::{
    ClaimedRun, StoreFixture, assert_appended, lane_key, refused,
};

/// One after another, whatever their priority; another lane goes beside it.
pub async fn a_lane_runs_serially_and_in_order(world: StoreFixture) {
    let mut opened = Vec::new();
    for priority in [0, 9, 5] {
        let run = world.open(|task| {
            task.lane = Some(lane_key("a"));
            task.priority = priority;
        });
        opened.push(run.await);
    }
    let beside = world.open_in_lane("b", 1).await;
    world.assert_status(opened[0], Status::Pending, "worker").await;
    world.assert_status(opened[1], Status::Pending, "lane").await;
    assert_lane(&world, "a", Some(opened[0]), 3).await;
    let worker = world.worker().await;
    let mut first = claim_run(&world, worker, opened[0]).await;
    claim_run(&world, worker, beside[0]).await;
    assert_nothing_ready(&world, worker).await;
    first.end().await;
    world.assert_status(opened[0], Status::Completed, "").await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    for run in &opened[1..] {
        let mut next = claim_run(&world, worker, *run).await;
        assert_nothing_ready(&world, worker).await;
        next.end().await;
    }
    assert_lane(&world, "a", None, 0).await;
    let again = world.open_in_lane("a", 1).await;
    claim_run(&world, worker, again[0]).await;
}

/// A lane that is full turns away, until somebody has left it.
pub async fn a_lane_has_a_depth(world: StoreFixture) {
    let narrow = |world: &StoreFixture| NewRun {
        lane_depth_max: 2,
        ..world.new_run(|task| task.lane = Some(lane_key("a")))
    };
    let [first, second, third] = [narrow(&world), narrow(&world), narrow(&world)];
    let ids = [first.id, second.id, third.id];
    assert_eq!(world.open_runs(vec![first, second]).await, OpenOutcome::Created(ids[..2].to_vec()));
    let full = OpenOutcome::LaneFull(lane_key("a"));
    assert_eq!(world.open_runs(vec![third.clone()]).await, full);
    assert_eq!(world.harness.store.get_run(ids[2]).await.expect("row"), None);
    let worker = world.worker().await;
    let mut held = claim_run(&world, worker, ids[0]).await;
    let open = Change::OpenRun(Box::new(third.clone()));
    let last = held.last;
    assert_eq!(refused(held.change(open).await), Refused::LaneFull(lane_key("a")));
    assert_eq!(held.last, last);
    held.end().await;
    assert_eq!(world.open_runs(vec![third]).await, OpenOutcome::Created(vec![ids[2]]));
    assert_lane(&world, "a", Some(ids[1]), 2).await;
}

/// A parked run keeps its lane: nobody passes it while it waits.
pub async fn a_parked_run_keeps_its_lane(world: StoreFixture) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    let mut held = claim_run(&world, worker, opened[0]).await;
    held.park("child").await;
    assert_nothing_ready(&world, worker).await;
    world.assert_status(opened[1], Status::Pending, "lane").await;
    assert_appended(&world.append_outside(opened[0], events_batch([resumed()])).await);
    let mut held = claim_run(&world, worker, opened[0]).await;
    held.append_ok(release_batch()).await;
    claim_run(&world, worker, opened[0]).await.end().await;
    claim_run(&world, worker, opened[1]).await;
}

/// A run that lets go of its lane while it waits queues again when it wakes.
pub async fn a_run_can_release_its_lane_while_it_waits(world: StoreFixture) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    let mut held = claim_run(&world, worker, opened[0]).await;
    held.append_ok(park_releasing_lane()).await;
    assert_lane(&world, "a", Some(opened[1]), 1).await;
    let mut second = claim_run(&world, worker, opened[1]).await;
    assert_appended(&world.append_outside(opened[0], events_batch([resumed()])).await);
    world.assert_status(opened[0], Status::Waiting, "lane").await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    assert_nothing_ready(&world, worker).await;
    // What was let in once is let in again, however deep the lane is.
    let third = world.open_in_lane("a", 1).await;
    second.end().await;
    let mut first = claim_run(&world, worker, opened[0]).await;
    first.append_ok(park_releasing_lane()).await;
    claim_run(&world, worker, third[0]).await.end().await;
    assert_lane(&world, "a", None, 0).await;
    assert_appended(&world.append_outside(opened[0], events_batch([resumed()])).await);
    assert_lane(&world, "a", Some(opened[0]), 1).await;
    claim_run(&world, worker, opened[0]).await.end().await;
    assert_lane(&world, "a", None, 0).await;
}

/// A run that ends while it is out of its lane leaves the lane to the others.
pub async fn a_run_that_released_its_lane_promotes_nobody_at_its_end(world: StoreFixture) {
    let opened = world.open_in_lane("a", 3).await;
    let worker = world.worker().await;
    let mut held = claim_run(&world, worker, opened[0]).await;
    held.append_ok(park_releasing_lane()).await;
    claim_run(&world, worker, opened[1]).await;
    assert_appended(&world.append_as_closer(opened[0], held.last, cancel_batch()).await);
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    assert_nothing_ready(&world, worker).await;
}

/// A paused run becomes the head of its lane in its turn and holds it, paused.
pub async fn a_paused_run_keeps_its_lane_position(world: StoreFixture) {
    let opened = world.open_in_lane("a", 3).await;
    let worker = world.worker().await;
    let mut held = claim_run(&world, worker, opened[0]).await;
    assert_appended(
        &world.append_as_closer(opened[1], longhaul_core::id::Seq(1), pause_batch()).await,
    );
    world.assert_status(opened[1], Status::Paused, "").await;
    held.end().await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    world.assert_status(opened[1], Status::Paused, "").await;
    assert_nothing_ready(&world, worker).await;
    assert_appended(&world.append_outside(opened[1], events_batch([resumed()])).await);
    let mut held = claim_run(&world, worker, opened[1]).await;
    held.append_ok(pause_batch()).await;
    assert_nothing_ready(&world, worker).await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
}

/// A run that is resumed before its turn waits for its turn.
pub async fn a_run_resumed_out_of_turn_waits(world: StoreFixture) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    assert_appended(
        &world.append_as_closer(opened[1], longhaul_core::id::Seq(1), pause_batch()).await,
    );
    assert_appended(&world.append_outside(opened[1], events_batch([resumed()])).await);
    world.assert_status(opened[1], Status::Pending, "lane").await;
    claim_run(&world, worker, opened[0]).await.end().await;
    claim_run(&world, worker, opened[1]).await;
}

/// A queued run that is cancelled leaves without disturbing anybody.
pub async fn a_queued_run_can_leave_its_lane(world: StoreFixture) {
    let opened = world.open_in_lane("a", 4).await;
    let worker = world.worker().await;
    let cancel = async |run: RunId| {
        let last = world.row(run).await.last_seq;
        assert_appended(&world.append_as_closer(run, last, cancel_batch()).await);
    };
    cancel(opened[1]).await;
    assert_lane(&world, "a", Some(opened[0]), 3).await;
    claim_run(&world, worker, opened[0]).await.end().await;
    assert_lane(&world, "a", Some(opened[2]), 2).await;
    cancel(opened[2]).await;
    assert_lane(&world, "a", Some(opened[3]), 1).await;
    claim_run(&world, worker, opened[3]).await;
    assert_nothing_ready(&world, worker).await;
}

/// A run with a start time enters its lane when that has come, at the end.
pub async fn a_start_time_comes_before_the_lane(world: StoreFixture) {
    let at = world.harness.clock.now().plus(Millis(50));
    let run = world.open(|task| {
        task.lane = Some(lane_key("a"));
        task.start = Start::At(at);
    });
    let later = run.await;
    assert_eq!(lane(&world, "a").await.map_or(0, |lane| lane.depth), 0);
    let opened = world.open_in_lane("a", 1).await;
    world.advance(Millis(50));
    let due = world.harness.records.due_timers(9).await.expect("due");
    assert_appended(&world.append_outside(later, fire_timer_batch(due[0].timer)).await);
    world.assert_status(later, Status::Pending, "lane").await;
    assert_lane(&world, "a", Some(opened[0]), 2).await;
    let worker = world.worker().await;
    claim_run(&world, worker, opened[0]).await.end().await;
    claim_run(&world, worker, later).await;
}

/// A chain keeps its root's lane until its last step has ended, and no step is
/// turned away for depth.
pub async fn a_chain_keeps_its_lane_to_the_end(world: StoreFixture) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    let mut root = claim_run(&world, worker, opened[0]).await;
    let step = NewRun {
        lane_depth_max: 1,
        ..world.new_run(|task| {
            task.root = opened[0];
            task.parent = Some(opened[0]);
            task.lane = Some(lane_key("a"));
        })
    };
    let step_id = step.id;
    let keeps = Change::SetHead(HeadUpdate::End {
        status: Status::Completed,
        code: None,
        releases_lane: false,
    });
    let facts = events_batch(end_batch().events);
    root.append_ok(facts.with_change(keeps).with_change(Change::OpenStep(Box::new(step)))).await;
    assert_lane(&world, "a", Some(opened[0]), 2).await;
    world.assert_consistent().await;
    let mut held = claim_run(&world, worker, step_id).await;
    assert_nothing_ready(&world, worker).await;
    held.park("child").await;
    assert_appended(&world.append_outside(step_id, events_batch([resumed()])).await);
    let mut held = claim_run(&world, worker, step_id).await;
    assert_nothing_ready(&world, worker).await;
    held.append_ok(events_batch([progress(1)])).await;
    held.end().await;
    assert_lane(&world, "a", Some(opened[1]), 1).await;
    claim_run(&world, worker, opened[1]).await;
}

/// Only lanes with somebody in them are listed, in the order of their names, and
/// in pages.
pub async fn lanes_are_listed_while_used(world: StoreFixture) {
    let a = world.open_in_lane("a", 2).await;
    world.open_in_lane("b", 1).await;
    let worker = world.worker().await;
    let listed_after = async |after: Option<&str>, limit| {
        let after = after.map(lane_key);
        let rows = world.harness.records.lanes(after.as_ref(), limit).await;
        let rows = rows.expect("lanes");
        let names = rows.iter().map(|row| row.lane.to_string());
        names.collect::<Vec<_>>()
    };
    let listed = async |limit| listed_after(None, limit).await;
    assert_eq!(listed(9).await, ["a", "b"]);
    assert_eq!(listed(1).await, ["a"]);
    // The lane that a page ended with need not be there any more.
    for (after, rest) in [("0", &["a", "b"][..]), ("a", &["b"]), ("aa", &["b"])] {
        assert_eq!(listed_after(Some(after), 9).await, rest, "after {after}");
    }
    assert_eq!(listed_after(Some("b"), 9).await, [""; 0]);
    for run in &a {
        let last = world.row(*run).await.last_seq;
        assert_appended(&world.append_as_closer(*run, last, cancel_batch()).await);
    }
    assert_eq!(listed(9).await, ["b"]);
    assert_eq!(lane(&world, "none").await, None);
    assert_eq!(world.claim(worker).await.len(), 1);
}

fn park_releasing_lane() -> longhaul_core::change::Batch {
    let lets_go =
        Change::SetHead(HeadUpdate::Park { reason: "child", blocked: false, release_lane: true });
    events_batch(park_batch("child").events).with_change(lets_go)
}

async fn claim_run(world: &StoreFixture, worker: WorkerId, run: RunId) -> ClaimedRun {
    let held = world.claim_one(worker).await;
    assert_eq!(held.run, run, "another run was next");
    held
}

async fn assert_nothing_ready(world: &StoreFixture, worker: WorkerId) {
    assert_eq!(world.claim(worker).await, []);
}

async fn lane(world: &StoreFixture, key: &str) -> Option<LaneRow> {
    world.harness.records.lane(&lane_key(key)).await.expect("lane")
}

async fn assert_lane(world: &StoreFixture, key: &str, head: Option<RunId>, depth: u32) {
    let found = lane(world, key).await;
    let found = found.map_or((None, 0), |row| (row.head, row.depth));
    assert_eq!(found, (head, depth), "lane {key}");
}
