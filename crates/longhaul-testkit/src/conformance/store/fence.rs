//! Who may write: the holder of the fence who has read everything, or whoever
//! closes a run that nobody drives.
//!
//! Never: facts from outside; those are `outside`.

use longhaul_core::change::{Blob, Change, TimerUpdate};
use longhaul_core::id::{Epoch, Seq};
use longhaul_core::port::store::{Appended, Author, Refused};
use longhaul_core::status::Status;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, cancel_requested, change_batch, end_batch, events_batch,
    park_batch, park_head, pause_batch, progress, release_batch, resumed,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

/// A driver whose run went to another writes nothing more, even if it knows
/// every fact.
pub async fn a_driver_that_lost_its_run_is_fenced(world: StoreFixture) {
    let mut old = world.open_and_claim(|_| {}).await;
    old.append_ok(release_batch()).await;
    let in_between = old.append(events_batch([progress(3)])).await;
    assert_eq!(in_between, Appended::Fenced, "nobody holds it");
    let mut new = world.claim_one(world.worker().await).await;
    old.last = new.last;
    for batch in [
        events_batch([progress(3)]),
        park_batch("child"),
        end_batch(),
        change_batch(park_head("child")),
    ] {
        assert_eq!(old.append(batch).await, Appended::Fenced);
    }
    new.append_ok(events_batch([progress(4)])).await;
    let kinds =
        ["run.created", "run.claimed", "progress.reported", "run.claimed", "progress.reported"];
    assert_eq!(world.kinds(new.run).await, kinds);
}

/// The same worker in an older epoch is another driver.
pub async fn the_epoch_fences_not_the_worker_id(world: StoreFixture) {
    let mut old = world.open_and_claim(|_| {}).await;
    old.append_ok(release_batch()).await;
    let mut new = world.claim_one(old.worker).await;
    old.last = new.last;
    assert_eq!(old.append(events_batch([progress(3)])).await, Appended::Fenced);
    new.append_ok(events_batch([progress(4)])).await;
    let mut stranger = ClaimedRun { worker: world.worker().await, ..new.clone() };
    assert_eq!(stranger.append(events_batch([progress(5)])).await, Appended::Fenced);
}

/// A batch that was decided without the newest facts is not taken, whatever it does.
pub async fn a_driver_append_needs_the_last_seq(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    assert_appended(&world.append_outside(held.run, events_batch([cancel_requested()])).await);
    for batch in [
        events_batch([progress(1)]),
        park_batch("child"),
        end_batch(),
        release_batch(),
        change_batch(park_head("child")),
    ] {
        assert_eq!(held.append(batch).await, Appended::Conflict);
    }
    world.assert_status(held.run, Status::Running, "").await;
    held.last = held.last.next();
    held.append_ok(events_batch([progress(1)])).await;
    held.last = Seq(held.last.0 + 1);
    let ahead = held.append(events_batch([progress(2)])).await;
    assert_eq!(ahead, Appended::Conflict, "nobody has read the future");
}

/// After a lost answer the same append says where its facts stand, once written.
pub async fn an_append_can_be_repeated(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let before = held.clone();
    let batch = || events_batch([progress(1), progress(2)]);
    held.append_ok(batch()).await;
    for _ in 0..2 {
        assert_appended_at(before.clone().append(batch()).await, Seq(4));
    }
    assert_appended(&world.append_outside(held.run, events_batch([cancel_requested()])).await);
    assert_appended_at(before.clone().append(batch()).await, Seq(4));
    assert_eq!(world.row(held.run).await.last_seq, Seq(5));
}

/// A park is repeatable too, also when the run has woken and gone on since, and
/// the repeat does not park it again.
pub async fn a_park_can_be_repeated(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let before = held.clone();
    held.park("child").await;
    assert_appended_at(before.clone().append(park_batch("child")).await, Seq(3));
    assert_appended(&world.append_outside(held.run, events_batch([resumed()])).await);
    assert_appended_at(before.clone().append(park_batch("child")).await, Seq(3));
    world.assert_status(held.run, Status::Running, "worker").await;
    world.claim_one(world.worker().await).await;
    assert_appended_at(before.clone().append(park_batch("child")).await, Seq(3));
    world.assert_status(held.run, Status::Running, "").await;
}

/// The last append of a run is repeatable although nothing follows it.
pub async fn an_end_can_be_repeated(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let before = held.clone();
    held.end().await;
    assert_appended_at(before.clone().append(end_batch()).await, Seq(3));
    assert_eq!(before.clone().append(cancel_batch()).await, Appended::RunEnded);
    assert_eq!(world.row(held.run).await.last_seq, Seq(3));
}

/// Facts that only look like those that stand are not taken for them.
pub async fn a_retry_with_other_events_conflicts(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let before = held.clone();
    held.append_ok(events_batch([progress(1), progress(2)])).await;
    let others = [
        events_batch([progress(1), progress(3)]),
        events_batch([progress(1), progress(2), progress(3)]),
        events_batch([progress(2)]),
        change_batch(park_head("child")),
    ];
    for batch in others {
        assert_eq!(before.clone().append(batch).await, Appended::Conflict);
    }
    held.append_ok(release_batch()).await;
    let mut next = world.claim_one(world.worker().await).await;
    next.append_ok(events_batch([progress(9)])).await;
    // The same words in another epoch are another driver's.
    let mut stale = held.clone();
    stale.last = Seq(next.last.0 - 1);
    assert_eq!(stale.append(events_batch([progress(9)])).await, Appended::Fenced);
}

/// A closer may write to a run in every state without a driver, and in no other.
pub async fn a_closer_appends_only_to_undriven_runs(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let refused = world.append_as_closer(held.run, held.last, cancel_batch()).await;
    assert_eq!(refused, Appended::Conflict, "somebody drives it");
    for rest in [park_batch("child"), pause_batch(), release_batch()] {
        held.append_ok(rest).await;
        let stale = Seq(held.last.0 - 1);
        assert_eq!(
            world.append_as_closer(held.run, stale, cancel_batch()).await,
            Appended::Conflict
        );
        assert_appended(&world.append_as_closer(held.run, held.last, cancel_batch()).await);
        world.assert_status(held.run, Status::Cancelled, "").await;
        let after = world.row(held.run).await.last_seq;
        let ended = world.append_as_closer(held.run, after, end_batch()).await;
        assert_eq!(ended, Appended::RunEnded);
        held = world.open_and_claim(|_| {}).await;
    }
    let pending = world.open(|_| {}).await;
    assert_appended(&world.append_as_closer(pending, Seq(1), pause_batch()).await);
    world.assert_status(pending, Status::Paused, "").await;
    assert!(world.try_claim_one(held.worker).await.is_none(), "it left the queue");
    assert_appended(&world.append_as_closer(pending, Seq(2), cancel_batch()).await);
    assert!(world.row(pending).await.finished_at.is_some());
}

/// What a closer wrote stands when it asks again, though the run has gone on.
pub async fn a_close_can_be_retried(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    assert_appended_at(world.append_as_closer(run, Seq(1), pause_batch()).await, Seq(2));
    assert_appended_at(world.append_as_closer(run, Seq(1), pause_batch()).await, Seq(2));
    assert_appended(&world.append_outside(run, events_batch([resumed()])).await);
    let mut held = world.claim_one(world.worker().await).await;
    assert_appended_at(world.append_as_closer(run, Seq(1), pause_batch()).await, Seq(2));
    world.assert_status(run, Status::Running, "").await;
    held.park("child").await;
    assert_appended_at(
        world.append_as_closer(run, held.last, cancel_batch()).await,
        held.last.next(),
    );
    assert_appended_at(
        world.append_as_closer(run, held.last, cancel_batch()).await,
        held.last.next(),
    );
}

/// The last change of a batch says no: none of the others has happened.
pub async fn a_refused_batch_leaves_no_trace(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let child = world.new_run(|_| {});
    let child_id = child.id;
    let blob = Blob::new(b"never kept".to_vec());
    let hash = blob.hash();
    let timer = world.ids.timer();
    let batch = park_batch("child")
        .with_change(Change::OpenRun(Box::new(child)))
        .with_change(Change::PutBlob(blob))
        .with_change(Change::SetTimer(TimerUpdate::Consume(timer)));
    assert_eq!(refused(held.append(batch).await), Refused::TimerConsumed);
    world.assert_status(held.run, Status::Running, "").await;
    assert_eq!(world.row(held.run).await.last_seq, held.last);
    assert_eq!(world.harness.store.get_run(child_id).await.expect("row"), None);
    assert_eq!(world.harness.records.blob(hash).await.expect("blob"), None);
    held.append_ok(events_batch([progress(1)])).await;
}

/// Nobody writes to a journal behind its end.
pub async fn no_event_follows_the_end_of_a_run(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    held.end().await;
    let row = world.row(held.run).await;
    assert_eq!((row.status, row.worker), (Status::Completed, None));
    assert!(row.finished_at.is_some());
    assert_eq!(held.append(events_batch([progress(1)])).await, Appended::RunEnded);
    let closed = world.append_as_closer(held.run, held.last, pause_batch()).await;
    assert_eq!(closed, Appended::RunEnded);
    let told = world.append_outside(held.run, events_batch([resumed()])).await;
    assert_eq!(told, Appended::RunEnded);
    assert_eq!(world.row(held.run).await, row);
    assert!(world.try_claim_one(held.worker).await.is_none());
}

/// Whoever writes to a run that is not there is told so.
pub async fn an_unknown_run_is_reported(world: StoreFixture) {
    let driver = Author::Driver { worker: world.worker().await, epoch: Epoch(1), after: Seq(0) };
    for author in [driver, Author::Outsider, Author::Closer { after: Seq(0) }] {
        let batch = events_batch([resumed()]);
        let appended = world.append(world.ids.run(), author, batch).await;
        assert_eq!(appended, Appended::RunNotFound, "{author:?}");
    }
}

fn assert_appended_at(appended: Appended, at: Seq) {
    match appended {
        Appended::At { seq, .. } => assert_eq!(seq, at),
        Appended::Conflict
        | Appended::Fenced
        | Appended::RunEnded
        | Appended::RunNotFound
        | Appended::Refused(_) => panic!("{appended:?}"),
    }
}
