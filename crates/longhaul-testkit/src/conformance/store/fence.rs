//! Fencing: only the current driver that has read all events may append, or a closer if the run
//! has no driver. Appends of outsiders are in `outsider`.

use longhaul_core::change::{Blob, RowChange, TimerUpdate};
use longhaul_core::id::{Epoch, Seq};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult, JournalAuthor};
use longhaul_core::status::Status;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, cancel_requested, change_batch, end_batch, events_batch,
    park_batch, park_head, pause_batch, progress, release_batch, resumed,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

/// A driver that has lost its run can't append any more, even if it has read all events.
pub async fn a_driver_that_lost_its_run_is_fenced(fixture: StoreFixture) {
    let mut old = fixture.open_and_claim(|_| {}).await;
    old.append_ok(release_batch()).await;
    let result = old.append(events_batch([progress(3)])).await;
    assert_eq!(result, AppendResult::Fenced, "the run has no driver");
    let mut new = fixture.claim_one(fixture.worker().await).await;
    old.last = new.last;
    for batch in [
        events_batch([progress(3)]),
        park_batch("child"),
        end_batch(),
        change_batch(park_head("child")),
    ] {
        assert_eq!(old.append(batch).await, AppendResult::Fenced);
    }
    new.append_ok(events_batch([progress(4)])).await;
    let kinds =
        ["run.created", "run.claimed", "progress.reported", "run.claimed", "progress.reported"];
    assert_eq!(fixture.kinds(new.run).await, kinds);
}

/// The same worker with an older epoch counts as another driver.
pub async fn the_epoch_fences_not_the_worker_id(fixture: StoreFixture) {
    let mut old = fixture.open_and_claim(|_| {}).await;
    old.append_ok(release_batch()).await;
    let mut new = fixture.claim_one(old.worker).await;
    old.last = new.last;
    assert_eq!(old.append(events_batch([progress(3)])).await, AppendResult::Fenced);
    new.append_ok(events_batch([progress(4)])).await;
    let mut other = ClaimedRun { worker: fixture.worker().await, ..new.clone() };
    assert_eq!(other.append(events_batch([progress(5)])).await, AppendResult::Fenced);
}

/// A batch that was decided without the newest events is rejected, whatever it contains.
pub async fn a_driver_append_needs_the_last_seq(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    assert_appended(
        &fixture.append_outside(claimed_run.run, events_batch([cancel_requested()])).await,
    );
    for batch in [
        events_batch([progress(1)]),
        park_batch("child"),
        end_batch(),
        release_batch(),
        change_batch(park_head("child")),
    ] {
        assert_eq!(claimed_run.append(batch).await, AppendResult::Conflict);
    }
    fixture.assert_status(claimed_run.run, Status::Running, "").await;
    claimed_run.last = claimed_run.last.next();
    claimed_run.append_ok(events_batch([progress(1)])).await;
    claimed_run.last = Seq(claimed_run.last.0 + 1);
    let result = claimed_run.append(events_batch([progress(2)])).await;
    assert_eq!(result, AppendResult::Conflict, "the sequence number is in the future");
}

/// After a lost response, a retry of the same append returns where its events are.
pub async fn an_append_can_be_repeated(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let before = claimed_run.clone();
    let batch = || events_batch([progress(1), progress(2)]);
    claimed_run.append_ok(batch()).await;
    for _ in 0..2 {
        assert_appended_at(before.clone().append(batch()).await, Seq(4));
    }
    assert_appended(
        &fixture.append_outside(claimed_run.run, events_batch([cancel_requested()])).await,
    );
    assert_appended_at(before.clone().append(batch()).await, Seq(4));
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, Seq(5));
}

/// A park can be retried too, even if the run has been woken and has continued meanwhile. The
/// retry does not park it again.
pub async fn a_park_can_be_repeated(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let before = claimed_run.clone();
    claimed_run.park("child").await;
    assert_appended_at(before.clone().append(park_batch("child")).await, Seq(3));
    assert_appended(&fixture.append_outside(claimed_run.run, events_batch([resumed()])).await);
    assert_appended_at(before.clone().append(park_batch("child")).await, Seq(3));
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
    fixture.claim_one(fixture.worker().await).await;
    assert_appended_at(before.clone().append(park_batch("child")).await, Seq(3));
    fixture.assert_status(claimed_run.run, Status::Running, "").await;
}

/// The last append of a run can be retried, although no other event may follow it.
pub async fn an_end_can_be_repeated(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let before = claimed_run.clone();
    claimed_run.end().await;
    assert_appended_at(before.clone().append(end_batch()).await, Seq(3));
    assert_eq!(before.clone().append(cancel_batch()).await, AppendResult::RunEnded);
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, Seq(3));
}

/// Events that only resemble the stored ones are not treated as a retry.
pub async fn a_retry_with_other_events_conflicts(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let before = claimed_run.clone();
    claimed_run.append_ok(events_batch([progress(1), progress(2)])).await;
    let others = [
        events_batch([progress(1), progress(3)]),
        events_batch([progress(1), progress(2), progress(3)]),
        events_batch([progress(2)]),
        change_batch(park_head("child")),
    ];
    for batch in others {
        assert_eq!(before.clone().append(batch).await, AppendResult::Conflict);
    }
    claimed_run.append_ok(release_batch()).await;
    let mut next = fixture.claim_one(fixture.worker().await).await;
    next.append_ok(events_batch([progress(9)])).await;
    // The same events with another epoch come from another driver.
    let mut stale = claimed_run.clone();
    stale.last = Seq(next.last.0 - 1);
    assert_eq!(stale.append(events_batch([progress(9)])).await, AppendResult::Fenced);
}

/// A closer may append to a run in every state without a driver, and in no other state.
pub async fn a_closer_appends_only_to_undriven_runs(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let refused = fixture.append_as_closer(claimed_run.run, claimed_run.last, cancel_batch()).await;
    assert_eq!(refused, AppendResult::Conflict, "the run has a driver");
    for batch in [park_batch("child"), pause_batch(), release_batch()] {
        claimed_run.append_ok(batch).await;
        let stale = Seq(claimed_run.last.0 - 1);
        assert_eq!(
            fixture.append_as_closer(claimed_run.run, stale, cancel_batch()).await,
            AppendResult::Conflict
        );
        assert_appended(
            &fixture.append_as_closer(claimed_run.run, claimed_run.last, cancel_batch()).await,
        );
        fixture.assert_status(claimed_run.run, Status::Cancelled, "").await;
        let after = fixture.row(claimed_run.run).await.last_seq;
        let result = fixture.append_as_closer(claimed_run.run, after, end_batch()).await;
        assert_eq!(result, AppendResult::RunEnded);
        claimed_run = fixture.open_and_claim(|_| {}).await;
    }
    let pending = fixture.open(|_| {}).await;
    assert_appended(&fixture.append_as_closer(pending, Seq(1), pause_batch()).await);
    fixture.assert_status(pending, Status::Paused, "").await;
    assert!(fixture.try_claim_one(claimed_run.worker).await.is_none(), "the run left the queue");
    assert_appended(&fixture.append_as_closer(pending, Seq(2), cancel_batch()).await);
    assert!(fixture.row(pending).await.finished_at.is_some());
}

/// A closer's append can be retried, although the run has continued.
pub async fn a_close_can_be_retried(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    assert_appended_at(fixture.append_as_closer(run, Seq(1), pause_batch()).await, Seq(2));
    assert_appended_at(fixture.append_as_closer(run, Seq(1), pause_batch()).await, Seq(2));
    assert_appended(&fixture.append_outside(run, events_batch([resumed()])).await);
    let mut claimed_run = fixture.claim_one(fixture.worker().await).await;
    assert_appended_at(fixture.append_as_closer(run, Seq(1), pause_batch()).await, Seq(2));
    fixture.assert_status(run, Status::Running, "").await;
    claimed_run.park("child").await;
    assert_appended_at(
        fixture.append_as_closer(run, claimed_run.last, cancel_batch()).await,
        claimed_run.last.next(),
    );
    assert_appended_at(
        fixture.append_as_closer(run, claimed_run.last, cancel_batch()).await,
        claimed_run.last.next(),
    );
}

/// If the last change of a batch is refused, none of the others takes effect.
pub async fn a_refused_batch_leaves_no_trace(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let child = fixture.new_run(|_| {});
    let child_id = child.id;
    let blob = Blob::new(b"never stored".to_vec());
    let hash = blob.hash();
    let timer = fixture.ids.timer();
    let batch = park_batch("child")
        .with_change(RowChange::CreateRun(Box::new(child)))
        .with_change(RowChange::PutBlob(blob))
        .with_change(RowChange::SetTimer(TimerUpdate::Consume(timer)));
    assert_eq!(refused(claimed_run.append(batch).await), AppendRefusalReason::TimerConsumed);
    fixture.assert_status(claimed_run.run, Status::Running, "").await;
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, claimed_run.last);
    assert_eq!(fixture.harness.store.get_run(child_id).await.expect("row"), None);
    assert_eq!(fixture.harness.records.blob(hash).await.expect("blob"), None);
    claimed_run.append_ok(events_batch([progress(1)])).await;
}

/// No event can be appended after the end of a run.
pub async fn no_event_follows_the_end_of_a_run(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.end().await;
    let row = fixture.row(claimed_run.run).await;
    assert_eq!((row.status, row.worker), (Status::Completed, None));
    assert!(row.finished_at.is_some());
    assert_eq!(claimed_run.append(events_batch([progress(1)])).await, AppendResult::RunEnded);
    let closed = fixture.append_as_closer(claimed_run.run, claimed_run.last, pause_batch()).await;
    assert_eq!(closed, AppendResult::RunEnded);
    let appended = fixture.append_outside(claimed_run.run, events_batch([resumed()])).await;
    assert_eq!(appended, AppendResult::RunEnded);
    assert_eq!(fixture.row(claimed_run.run).await, row);
    assert!(fixture.try_claim_one(claimed_run.worker).await.is_none());
}

/// An append to an unknown run is reported.
pub async fn an_unknown_run_is_reported(fixture: StoreFixture) {
    let driver =
        JournalAuthor::Driver { worker: fixture.worker().await, epoch: Epoch(1), after: Seq(0) };
    for author in [driver, JournalAuthor::Outsider, JournalAuthor::Closer { after: Seq(0) }] {
        let batch = events_batch([resumed()]);
        let appended = fixture.append(fixture.ids.run(), author, batch).await;
        assert_eq!(appended, AppendResult::RunNotFound, "{author:?}");
    }
}

fn assert_appended_at(appended: AppendResult, at: Seq) {
    match appended {
        AppendResult::Committed { seq, .. } => assert_eq!(seq, at),
        AppendResult::Conflict
        | AppendResult::Fenced
        | AppendResult::RunEnded
        | AppendResult::RunNotFound
        | AppendResult::Refused(_) => panic!("{appended:?}"),
    }
}
