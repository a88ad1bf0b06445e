//! Who may write: the holder of the fence who has read everything, or whoever
//! closes a run that nobody drives.
//!
//! Never: facts from outside; those are `outside`.

use longhaul_core::change::{Blob, Change, TimerMove};
use longhaul_core::id::{Epoch, Seq};
use longhaul_core::port::store::{Appended, Author, Refused};
use longhaul_core::status::Status;

use crate::conformance::store::facts::{
    And as _, cancel_requested, cancels, ends, only, park_head, parks, pauses, progress, releases,
    resumed, says,
};
use crate::conformance::store::kit::{Held, World, refused, stands};

/// A driver whose run went to another writes nothing more, even if it knows
/// every fact.
pub async fn a_driver_that_lost_its_run_is_fenced(world: World) {
    let mut old = world.held(|_| {}).await;
    old.write(releases()).await;
    let in_between = old.append(says([progress(3)])).await;
    assert_eq!(in_between, Appended::Fenced, "nobody holds it");
    let mut new = world.take(world.worker().await).await;
    old.last = new.last;
    for batch in [
        says([progress(3)]),
        parks("child"),
        ends(),
        only(park_head("child")),
    ] {
        assert_eq!(old.append(batch).await, Appended::Fenced);
    }
    new.write(says([progress(4)])).await;
    let kinds = [
        "run.created",
        "run.claimed",
        "progress.reported",
        "run.claimed",
        "progress.reported",
    ];
    assert_eq!(world.kinds(new.run).await, kinds);
}

/// The same worker in an older epoch is another driver.
pub async fn a_worker_s_name_is_no_fence(world: World) {
    let mut old = world.held(|_| {}).await;
    old.write(releases()).await;
    let mut new = world.take(old.worker).await;
    old.last = new.last;
    assert_eq!(old.append(says([progress(3)])).await, Appended::Fenced);
    new.write(says([progress(4)])).await;
    let mut stranger = Held {
        worker: world.worker().await,
        ..new.clone()
    };
    assert_eq!(stranger.append(says([progress(5)])).await, Appended::Fenced);
}

/// A batch that was decided without the newest facts is not taken, whatever it does.
pub async fn a_driver_must_have_read_everything(world: World) {
    let mut held = world.held(|_| {}).await;
    stands(&world.tell(held.run, says([cancel_requested()])).await);
    for batch in [
        says([progress(1)]),
        parks("child"),
        ends(),
        releases(),
        only(park_head("child")),
    ] {
        assert_eq!(held.append(batch).await, Appended::MovedOn);
    }
    world.is(held.run, Status::Running, "").await;
    held.last = held.last.next();
    held.write(says([progress(1)])).await;
    held.last = Seq(held.last.0 + 1);
    let ahead = held.append(says([progress(2)])).await;
    assert_eq!(ahead, Appended::MovedOn, "nobody has read the future");
}

/// After a lost answer the same append says where its facts stand, once written.
pub async fn an_append_can_be_repeated(world: World) {
    let mut held = world.held(|_| {}).await;
    let before = held.clone();
    let batch = || says([progress(1), progress(2)]);
    held.write(batch()).await;
    for _ in 0..2 {
        assert_stands_at(before.clone().append(batch()).await, Seq(4));
    }
    stands(&world.tell(held.run, says([cancel_requested()])).await);
    assert_stands_at(before.clone().append(batch()).await, Seq(4));
    assert_eq!(world.row(held.run).await.last, Seq(5));
}

/// A park is repeatable too, also when the run has woken and gone on since, and
/// the repeat does not park it again.
pub async fn a_park_can_be_repeated(world: World) {
    let mut held = world.held(|_| {}).await;
    let before = held.clone();
    held.park("child").await;
    assert_stands_at(before.clone().append(parks("child")).await, Seq(3));
    stands(&world.tell(held.run, says([resumed()])).await);
    assert_stands_at(before.clone().append(parks("child")).await, Seq(3));
    world.is(held.run, Status::Running, "worker").await;
    world.take(world.worker().await).await;
    assert_stands_at(before.clone().append(parks("child")).await, Seq(3));
    world.is(held.run, Status::Running, "").await;
}

/// The last append of a run is repeatable although nothing follows it.
pub async fn an_end_can_be_repeated(world: World) {
    let mut held = world.held(|_| {}).await;
    let before = held.clone();
    held.end().await;
    assert_stands_at(before.clone().append(ends()).await, Seq(3));
    assert_eq!(before.clone().append(cancels()).await, Appended::RunEnded);
    assert_eq!(world.row(held.run).await.last, Seq(3));
}

/// Facts that only look like those that stand are not taken for them.
pub async fn a_repeat_with_other_facts_is_none(world: World) {
    let mut held = world.held(|_| {}).await;
    let before = held.clone();
    held.write(says([progress(1), progress(2)])).await;
    let others = [
        says([progress(1), progress(3)]),
        says([progress(1), progress(2), progress(3)]),
        says([progress(2)]),
        only(park_head("child")),
    ];
    for batch in others {
        assert_eq!(before.clone().append(batch).await, Appended::MovedOn);
    }
    held.write(releases()).await;
    let mut next = world.take(world.worker().await).await;
    next.write(says([progress(9)])).await;
    // The same words in another epoch are another driver's.
    let mut stale = held.clone();
    stale.last = Seq(next.last.0 - 1);
    assert_eq!(stale.append(says([progress(9)])).await, Appended::Fenced);
}

/// A closer may write to a run in every state without a driver, and in no other.
pub async fn a_closer_writes_only_where_nobody_drives(world: World) {
    let mut held = world.held(|_| {}).await;
    let refused = world.close(held.run, held.last, cancels()).await;
    assert_eq!(refused, Appended::MovedOn, "somebody drives it");
    for rest in [parks("child"), pauses(), releases()] {
        held.write(rest).await;
        let stale = Seq(held.last.0 - 1);
        assert_eq!(
            world.close(held.run, stale, cancels()).await,
            Appended::MovedOn
        );
        stands(&world.close(held.run, held.last, cancels()).await);
        world.is(held.run, Status::Cancelled, "").await;
        let after = world.row(held.run).await.last;
        let ended = world.close(held.run, after, ends()).await;
        assert_eq!(ended, Appended::RunEnded);
        held = world.held(|_| {}).await;
    }
    let pending = world.open(|_| {}).await;
    stands(&world.close(pending, Seq(1), pauses()).await);
    world.is(pending, Status::Paused, "").await;
    assert!(
        world.try_take(held.worker).await.is_none(),
        "it left the queue"
    );
    stands(&world.close(pending, Seq(2), cancels()).await);
    assert!(world.row(pending).await.finished_at.is_some());
}

/// What a closer wrote stands when it asks again, though the run has gone on.
pub async fn a_closing_can_be_repeated(world: World) {
    let run = world.open(|_| {}).await;
    assert_stands_at(world.close(run, Seq(1), pauses()).await, Seq(2));
    assert_stands_at(world.close(run, Seq(1), pauses()).await, Seq(2));
    stands(&world.tell(run, says([resumed()])).await);
    let mut held = world.take(world.worker().await).await;
    assert_stands_at(world.close(run, Seq(1), pauses()).await, Seq(2));
    world.is(run, Status::Running, "").await;
    held.park("child").await;
    assert_stands_at(
        world.close(run, held.last, cancels()).await,
        held.last.next(),
    );
    assert_stands_at(
        world.close(run, held.last, cancels()).await,
        held.last.next(),
    );
}

/// The last change of a batch says no: none of the others has happened.
pub async fn a_refused_batch_leaves_no_trace(world: World) {
    let mut held = world.held(|_| {}).await;
    let child = world.new_run(|_| {});
    let child_id = child.id;
    let blob = Blob::new(b"never kept".to_vec());
    let hash = blob.hash();
    let timer = world.ids.timer();
    let batch = parks("child")
        .and(Change::OpenRun(Box::new(child)))
        .and(Change::PutBlob(blob))
        .and(Change::SetTimer(TimerMove::Spend(timer)));
    assert_eq!(refused(held.append(batch).await), Refused::TimerSpent);
    world.is(held.run, Status::Running, "").await;
    assert_eq!(world.row(held.run).await.last, held.last);
    assert_eq!(world.at.store.row(child_id).await.expect("row"), None);
    assert_eq!(world.at.shelves.blob(hash).await.expect("blob"), None);
    held.write(says([progress(1)])).await;
}

/// Nobody writes to a journal behind its end.
pub async fn nothing_follows_the_end(world: World) {
    let mut held = world.held(|_| {}).await;
    held.end().await;
    let row = world.row(held.run).await;
    assert_eq!((row.status, row.worker), (Status::Completed, None));
    assert!(row.finished_at.is_some());
    assert_eq!(held.append(says([progress(1)])).await, Appended::RunEnded);
    let closed = world.close(held.run, held.last, pauses()).await;
    assert_eq!(closed, Appended::RunEnded);
    let told = world.tell(held.run, says([resumed()])).await;
    assert_eq!(told, Appended::RunEnded);
    assert_eq!(world.row(held.run).await, row);
    assert!(world.try_take(held.worker).await.is_none());
}

/// Whoever writes to a run that is not there is told so.
pub async fn a_run_that_is_not_there_is_told(world: World) {
    let driver = Author::Driver {
        worker: world.worker().await,
        epoch: Epoch(1),
        after: Seq(0),
    };
    for author in [driver, Author::Outsider, Author::Closer { after: Seq(0) }] {
        let batch = says([resumed()]);
        let appended = world.append(world.ids.run(), author, batch).await;
        assert_eq!(appended, Appended::NoRun, "{author:?}");
    }
}

fn assert_stands_at(appended: Appended, at: Seq) {
    match appended {
        Appended::At { seq, .. } => assert_eq!(seq, at),
        Appended::MovedOn
        | Appended::Fenced
        | Appended::RunEnded
        | Appended::NoRun
        | Appended::Refused(_) => panic!("{appended:?}"),
    }
}
