//! Lanes: one run at a time, in the order of entering.
//!
//! Never: many hands at once; that is `race`.

use longhaul_core::change::{Change, HeadMove, NewRun};
use longhaul_core::id::{RunId, WorkerId};
use longhaul_core::port::shelves::LaneRow;
use longhaul_core::port::store::{Opened, Refused};
use longhaul_core::status::Status;
use longhaul_core::task::Start;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::facts::{
    And as _, cancels, ends, fires, parks, pauses, progress, releases, resumed, says,
};
use crate::conformance::store::kit::{Held, World, lane_key, refused, stands};

/// One after another, whatever their priority; another lane goes beside it.
pub async fn a_lane_goes_one_by_one_and_in_order(world: World) {
    let mut opened = Vec::new();
    for priority in [0, 9, 5] {
        let run = world.open(|task| {
            task.lane = Some(lane_key("a"));
            task.priority = priority;
        });
        opened.push(run.await);
    }
    let beside = world.open_in_lane("b", 1).await;
    world.is(opened[0], Status::Pending, "worker").await;
    world.is(opened[1], Status::Pending, "lane").await;
    assert_lane(&world, "a", Some(opened[0]), 3).await;
    let worker = world.worker().await;
    let mut first = take(&world, worker, opened[0]).await;
    take(&world, worker, beside[0]).await;
    nothing_ready(&world, worker).await;
    first.end().await;
    world.is(opened[0], Status::Completed, "").await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    for run in &opened[1..] {
        let mut next = take(&world, worker, *run).await;
        nothing_ready(&world, worker).await;
        next.end().await;
    }
    assert_lane(&world, "a", None, 0).await;
    let again = world.open_in_lane("a", 1).await;
    take(&world, worker, again[0]).await;
}

/// A lane that is full turns away, until somebody has left it.
pub async fn a_lane_has_a_depth(world: World) {
    let narrow = |world: &World| NewRun {
        lane_depth_max: 2,
        ..world.new_run(|task| task.lane = Some(lane_key("a")))
    };
    let [first, second, third] = [narrow(&world), narrow(&world), narrow(&world)];
    let ids = [first.id, second.id, third.id];
    assert_eq!(
        world.ask(vec![first, second]).await,
        Opened::New(ids[..2].to_vec())
    );
    let full = Opened::LaneFull(lane_key("a"));
    assert_eq!(world.ask(vec![third.clone()]).await, full);
    assert_eq!(world.at.store.row(ids[2]).await.expect("row"), None);
    let worker = world.worker().await;
    let mut held = take(&world, worker, ids[0]).await;
    let open = Change::OpenRun(Box::new(third.clone()));
    let last = held.last;
    assert_eq!(
        refused(held.change(open).await),
        Refused::LaneFull(lane_key("a"))
    );
    assert_eq!(held.last, last);
    held.end().await;
    assert_eq!(world.ask(vec![third]).await, Opened::New(vec![ids[2]]));
    assert_lane(&world, "a", Some(ids[1]), 2).await;
}

/// A parked run keeps its lane: nobody passes it while it waits.
pub async fn a_parked_run_keeps_its_lane(world: World) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    let mut held = take(&world, worker, opened[0]).await;
    held.park("child").await;
    nothing_ready(&world, worker).await;
    world.is(opened[1], Status::Pending, "lane").await;
    stands(&world.tell(opened[0], says([resumed()])).await);
    let mut held = take(&world, worker, opened[0]).await;
    held.write(releases()).await;
    take(&world, worker, opened[0]).await.end().await;
    take(&world, worker, opened[1]).await;
}

/// A run that lets go of its lane while it waits queues again when it wakes.
pub async fn a_run_can_release_its_lane_while_it_waits(world: World) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    let mut held = take(&world, worker, opened[0]).await;
    held.write(parks_and_lets_go()).await;
    assert_lane(&world, "a", Some(opened[1]), 1).await;
    let mut second = take(&world, worker, opened[1]).await;
    stands(&world.tell(opened[0], says([resumed()])).await);
    world.is(opened[0], Status::Waiting, "lane").await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    nothing_ready(&world, worker).await;
    // What was let in once is let in again, however deep the lane is.
    let third = world.open_in_lane("a", 1).await;
    second.end().await;
    let mut first = take(&world, worker, opened[0]).await;
    first.write(parks_and_lets_go()).await;
    take(&world, worker, third[0]).await.end().await;
    assert_lane(&world, "a", None, 0).await;
    stands(&world.tell(opened[0], says([resumed()])).await);
    assert_lane(&world, "a", Some(opened[0]), 1).await;
    take(&world, worker, opened[0]).await.end().await;
    assert_lane(&world, "a", None, 0).await;
}

/// A run that ends while it is out of its lane leaves the lane to the others.
pub async fn a_run_that_ends_outside_its_lane_frees_nothing(world: World) {
    let opened = world.open_in_lane("a", 3).await;
    let worker = world.worker().await;
    let mut held = take(&world, worker, opened[0]).await;
    held.write(parks_and_lets_go()).await;
    take(&world, worker, opened[1]).await;
    stands(&world.close(opened[0], held.last, cancels()).await);
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    nothing_ready(&world, worker).await;
}

/// A paused run becomes the head of its lane in its turn and holds it, paused.
pub async fn a_paused_run_keeps_its_place(world: World) {
    let opened = world.open_in_lane("a", 3).await;
    let worker = world.worker().await;
    let mut held = take(&world, worker, opened[0]).await;
    stands(
        &world
            .close(opened[1], longhaul_core::id::Seq(1), pauses())
            .await,
    );
    world.is(opened[1], Status::Paused, "").await;
    held.end().await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
    world.is(opened[1], Status::Paused, "").await;
    nothing_ready(&world, worker).await;
    stands(&world.tell(opened[1], says([resumed()])).await);
    let mut held = take(&world, worker, opened[1]).await;
    held.write(pauses()).await;
    nothing_ready(&world, worker).await;
    assert_lane(&world, "a", Some(opened[1]), 2).await;
}

/// A run that is resumed before its turn waits for its turn.
pub async fn a_run_resumed_out_of_turn_waits(world: World) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    stands(
        &world
            .close(opened[1], longhaul_core::id::Seq(1), pauses())
            .await,
    );
    stands(&world.tell(opened[1], says([resumed()])).await);
    world.is(opened[1], Status::Pending, "lane").await;
    take(&world, worker, opened[0]).await.end().await;
    take(&world, worker, opened[1]).await;
}

/// A queued run that is cancelled leaves without disturbing anybody.
pub async fn a_queued_run_can_leave(world: World) {
    let opened = world.open_in_lane("a", 4).await;
    let worker = world.worker().await;
    let cancel = async |run: RunId| {
        let last = world.row(run).await.last;
        stands(&world.close(run, last, cancels()).await);
    };
    cancel(opened[1]).await;
    assert_lane(&world, "a", Some(opened[0]), 3).await;
    take(&world, worker, opened[0]).await.end().await;
    assert_lane(&world, "a", Some(opened[2]), 2).await;
    cancel(opened[2]).await;
    assert_lane(&world, "a", Some(opened[3]), 1).await;
    take(&world, worker, opened[3]).await;
    nothing_ready(&world, worker).await;
}

/// A run with a start time enters its lane when that has come, at the end.
pub async fn a_start_time_comes_before_the_lane(world: World) {
    let at = world.at.clock.now().plus(Millis(50));
    let run = world.open(|task| {
        task.lane = Some(lane_key("a"));
        task.start = Start::At(at);
    });
    let later = run.await;
    assert_eq!(lane(&world, "a").await.map_or(0, |lane| lane.depth), 0);
    let opened = world.open_in_lane("a", 1).await;
    world.pass(Millis(50));
    let due = world.at.shelves.due(9).await.expect("due");
    stands(&world.tell(later, fires(due[0].timer)).await);
    world.is(later, Status::Pending, "lane").await;
    assert_lane(&world, "a", Some(opened[0]), 2).await;
    let worker = world.worker().await;
    take(&world, worker, opened[0]).await.end().await;
    take(&world, worker, later).await;
}

/// A chain keeps its root's lane until its last step has ended, and no step is
/// turned away for depth.
pub async fn a_chain_keeps_its_lane_to_the_end(world: World) {
    let opened = world.open_in_lane("a", 2).await;
    let worker = world.worker().await;
    let mut root = take(&world, worker, opened[0]).await;
    let step = NewRun {
        lane_depth_max: 1,
        ..world.new_run(|task| {
            task.root = opened[0];
            task.parent = Some(opened[0]);
            task.lane = Some(lane_key("a"));
        })
    };
    let step_id = step.id;
    let keeps = Change::SetHead(HeadMove::End {
        status: Status::Completed,
        code: None,
        frees_lane: false,
    });
    let facts = says(ends().events);
    root.write(facts.and(keeps).and(Change::OpenStep(Box::new(step))))
        .await;
    assert_lane(&world, "a", Some(opened[0]), 2).await;
    world.is_in_order().await;
    let mut held = take(&world, worker, step_id).await;
    nothing_ready(&world, worker).await;
    held.park("child").await;
    stands(&world.tell(step_id, says([resumed()])).await);
    let mut held = take(&world, worker, step_id).await;
    nothing_ready(&world, worker).await;
    held.write(says([progress(1)])).await;
    held.end().await;
    assert_lane(&world, "a", Some(opened[1]), 1).await;
    take(&world, worker, opened[1]).await;
}

/// Only lanes with somebody in them are listed, in the order of their names, and
/// in pages.
pub async fn lanes_are_listed_while_used(world: World) {
    let a = world.open_in_lane("a", 2).await;
    world.open_in_lane("b", 1).await;
    let worker = world.worker().await;
    let listed_after = async |after: Option<&str>, limit| {
        let after = after.map(lane_key);
        let rows = world.at.shelves.lanes(after.as_ref(), limit).await;
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
        let last = world.row(*run).await.last;
        stands(&world.close(*run, last, cancels()).await);
    }
    assert_eq!(listed(9).await, ["b"]);
    assert_eq!(lane(&world, "none").await, None);
    assert_eq!(world.claim(worker).await.len(), 1);
}

fn parks_and_lets_go() -> longhaul_core::change::Batch {
    let lets_go = Change::SetHead(HeadMove::Park {
        reason: "child",
        blocked: false,
        release_lane: true,
    });
    says(parks("child").events).and(lets_go)
}

async fn take(world: &World, worker: WorkerId, run: RunId) -> Held {
    let held = world.take(worker).await;
    assert_eq!(held.run, run, "another run was next");
    held
}

async fn nothing_ready(world: &World, worker: WorkerId) {
    assert_eq!(world.claim(worker).await, []);
}

async fn lane(world: &World, key: &str) -> Option<LaneRow> {
    world.at.shelves.lane(&lane_key(key)).await.expect("lane")
}

async fn assert_lane(world: &World, key: &str, head: Option<RunId>, depth: u32) {
    let found = lane(world, key).await;
    let found = found.map_or((None, 0), |row| (row.head, row.depth));
    assert_eq!(found, (head, depth), "lane {key}");
}
