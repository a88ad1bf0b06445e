//! Heartbeats, and releasing the runs of dead workers. A worker is not declared dead merely
//! because its reaper could not see it.

use longhaul_core::id::{Epoch, WorkerId};
use longhaul_core::port::store::{AppendResult, Heartbeat, WorkerLiveness};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::conformance::store::batches::{events_batch, progress, release_batch};
use crate::conformance::store::fixture::{StoreFixture, TTL, heartbeat, inbox, run_ids};

/// Heartbeat interval: a third of the TTL.
const HEARTBEAT_INTERVAL: Millis = Millis(TTL.0 / 3);

/// The runs of a silent worker become ready with their epoch, and the next claim fences the
/// silent worker.
pub async fn runs_of_a_silent_worker_are_released(fixture: StoreFixture) {
    let reaper = fixture.worker().await;
    let mut reaped = fixture.open_and_claim(|_| {}).await;
    let mut live = fixture.open_and_claim(|_| {}).await;
    for _ in 0..3 {
        fixture.advance(HEARTBEAT_INTERVAL);
        assert_eq!(fixture.heartbeat(reaper).await.reaped, 0);
        fixture.heartbeat(live.worker).await;
    }
    fixture.advance(Millis(1));
    assert_eq!(fixture.heartbeat(reaper).await.reaped, 1);
    assert_eq!(fixture.heartbeat(reaper).await.reaped, 0, "once");
    let row = fixture.row(reaped.run).await;
    assert_eq!((row.status, row.worker), (Status::Running, None));
    assert_eq!((row.reason.as_deref(), row.epoch), (Some("worker"), Epoch(1)));
    assert_eq!(row.last_seq, reaped.last, "no event was appended");
    assert_eq!(reaped.append(events_batch([progress(1)])).await, AppendResult::Fenced);
    let mut next = fixture.claim_one(reaper).await;
    assert_eq!((next.run, next.epoch), (reaped.run, Epoch(2)));
    reaped.last = next.last;
    assert_eq!(reaped.append(events_batch([progress(1)])).await, AppendResult::Fenced);
    next.append_ok(events_batch([progress(2)])).await;
    live.append_ok(events_batch([progress(3)])).await;
}

/// A dead worker learns that it is dead, and stays dead.
pub async fn a_dead_worker_learns_that_it_is_dead(fixture: StoreFixture) {
    let reaper = fixture.worker().await;
    let dead = fixture.worker().await;
    expire_others(&fixture, reaper).await;
    for draining in [false, true] {
        let ack = fixture.heartbeat_with(Heartbeat { draining, ..heartbeat(dead) }).await;
        assert_eq!((ack.liveness, ack.reaped), (WorkerLiveness::Dead, 0));
    }
    assert_eq!(liveness(&fixture, dead).await, WorkerLiveness::Dead);
    assert_eq!(liveness(&fixture, reaper).await, WorkerLiveness::Live);
}

/// A late claim of a reaped worker gets nothing and leaves no run stuck.
pub async fn a_late_claim_of_a_reaped_worker_leaves_no_stuck_run(fixture: StoreFixture) {
    let reaper = fixture.worker().await;
    let mut reaped = fixture.open_and_claim(|_| {}).await;
    let new_run = fixture.open(|_| {}).await;
    expire_others(&fixture, reaper).await;
    for _ in 0..2 {
        assert_eq!(fixture.claim(reaped.worker).await, []);
    }
    fixture.assert_consistent().await;
    let claimed = fixture.claim(reaper).await;
    assert_eq!(run_ids(&claimed), [reaped.run, new_run]);
    assert_eq!(reaped.append(release_batch()).await, AppendResult::Fenced);
}

/// A draining worker sends heartbeats, keeps its runs, and claims no new ones.
pub async fn draining_workers_send_heartbeats_too(fixture: StoreFixture) {
    let reaper = fixture.worker().await;
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let draining_heartbeat = || Heartbeat { draining: true, ..heartbeat(claimed_run.worker) };
    fixture.heartbeat_with(draining_heartbeat()).await;
    for _ in 0..6 {
        fixture.advance(HEARTBEAT_INTERVAL);
        assert_eq!(fixture.heartbeat(reaper).await.reaped, 0);
        let ack = fixture.heartbeat_with(draining_heartbeat()).await;
        assert_eq!(
            (ack.liveness, ack.now),
            (WorkerLiveness::Draining, fixture.harness.clock.now())
        );
    }
    fixture.open(|_| {}).await;
    assert_eq!(fixture.claim(claimed_run.worker).await, []);
    claimed_run.append_ok(events_batch([progress(1)])).await;
    fixture.heartbeat(claimed_run.worker).await;
    assert_eq!(
        fixture.claim(claimed_run.worker).await.len(),
        1,
        "the worker may become live again"
    );
}

/// After its own silence, a worker sends heartbeats for one TTL before it reaps, because the
/// others may have been disconnected from the store too.
pub async fn a_reaper_that_was_silent_waits_one_ttl(fixture: StoreFixture) {
    let first = fixture.worker().await;
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    fixture.advance(Millis(TTL.0 * 2));
    assert_eq!(fixture.heartbeat(first).await.reaped, 0, "back after a failover");
    for _ in 0..2 {
        fixture.advance(HEARTBEAT_INTERVAL);
        assert_eq!(fixture.heartbeat(first).await.reaped, 0, "not in contact for one TTL yet");
    }
    let ack = fixture.heartbeat(claimed_run.worker).await;
    assert_eq!(ack.liveness, WorkerLiveness::Live, "the worker was not reaped");
    claimed_run.append_ok(events_batch([progress(1)])).await;
    for _ in 0..4 {
        fixture.advance(HEARTBEAT_INTERVAL);
        assert_eq!(fixture.heartbeat(first).await.reaped, 0);
        fixture.heartbeat(claimed_run.worker).await;
    }
    fixture.advance(HEARTBEAT_INTERVAL);
    fixture.heartbeat(first).await;
    expire_others(&fixture, first).await;
    assert_eq!(fixture.heartbeat(claimed_run.worker).await.liveness, WorkerLiveness::Dead);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
}

/// A new worker waits one TTL before it reaps, because it does not know yet which workers are
/// alive.
pub async fn a_new_worker_waits_one_ttl_before_it_reaps(fixture: StoreFixture) {
    let claimed_run = fixture.open_and_claim(|_| {}).await;
    fixture.advance(Millis(TTL.0 + 1));
    let new = fixture.ids.worker();
    assert_eq!(fixture.heartbeat(new).await.reaped, 0);
    fixture.advance(HEARTBEAT_INTERVAL);
    assert_eq!(fixture.heartbeat(new).await.reaped, 0);
    assert_eq!(liveness(&fixture, claimed_run.worker).await, WorkerLiveness::Live);
    fixture.advance(HEARTBEAT_INTERVAL);
    assert_eq!(fixture.heartbeat(new).await.reaped, 0);
    fixture.advance(HEARTBEAT_INTERVAL);
    assert_eq!(fixture.heartbeat(new).await.reaped, 1);
}

/// After the clock was set back, the stored heartbeats are in the future. They allow no claim
/// and keep no dead worker alive; the next heartbeat fixes that.
pub async fn a_heartbeat_from_the_future_is_stale(fixture: StoreFixture) {
    let reaper = fixture.worker().await;
    let claimed_run = fixture.open_and_claim(|_| {}).await;
    let new_run = fixture.open(|_| {}).await;
    keep_alive(&fixture, &[reaper, claimed_run.worker]).await;
    let hour_ago = fixture.harness.clock.now().as_micros() - 3_600_000_000;
    fixture.harness.clock.set(Timestamp::from_micros(hour_ago));
    assert_eq!(fixture.claim(reaper).await, []);
    assert_eq!(fixture.heartbeat(reaper).await.reaped, 0, "not in contact for one TTL yet");
    assert_eq!(run_ids(&fixture.claim(reaper).await), [new_run]);
    for _ in 0..2 {
        fixture.advance(HEARTBEAT_INTERVAL);
        assert_eq!(fixture.heartbeat(reaper).await.reaped, 0);
    }
    fixture.advance(HEARTBEAT_INTERVAL);
    assert_eq!(fixture.heartbeat(reaper).await.reaped, 1);
    assert_eq!(liveness(&fixture, claimed_run.worker).await, WorkerLiveness::Dead);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
}

/// After the clock was set forward, all heartbeats look old. The first worker that sends a
/// heartbeat does not reap the others.
pub async fn a_clock_set_forward_reaps_no_live_worker(fixture: StoreFixture) {
    let first = fixture.worker().await;
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    keep_alive(&fixture, &[first, claimed_run.worker]).await;
    let clock = &fixture.harness.clock;
    clock.set(clock.now().plus(Millis::from_secs(3_600)));
    assert_eq!(fixture.heartbeat(first).await.reaped, 0);
    let ack = fixture.heartbeat(claimed_run.worker).await;
    assert_eq!((ack.liveness, ack.reaped), (WorkerLiveness::Live, 0));
    keep_alive(&fixture, &[first, claimed_run.worker]).await;
    claimed_run.append_ok(events_batch([progress(1)])).await;
}

/// Workers are listed with their claimed runs.
pub async fn workers_are_listed_with_their_runs(fixture: StoreFixture) {
    let claimed_run = fixture.open_and_claim(|_| {}).await;
    let idle = fixture.worker().await;
    let rows = fixture.harness.records.list_workers().await.expect("workers");
    let count = |worker: WorkerId| {
        let row = rows.iter().find(|row| row.worker == worker);
        row.map(|row| (row.runs, row.liveness, row.host.as_str(), row.build.as_str()))
    };
    assert_eq!(count(claimed_run.worker), Some((1, WorkerLiveness::Live, "here", "test")));
    assert_eq!(count(idle), Some((0, WorkerLiveness::Live, "here", "test")));
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.inboxes == [inbox("main")] && row.types.is_empty()));
    assert!(rows.iter().all(|row| row.heartbeat_at == fixture.harness.clock.now()));
}

/// Advances the clock while only the reaper sends heartbeats, until the others are reaped.
async fn expire_others(fixture: &StoreFixture, reaper: WorkerId) {
    for _ in 0..4 {
        fixture.advance(HEARTBEAT_INTERVAL);
        fixture.heartbeat(reaper).await;
    }
}

/// Advances the clock by more than a TTL while all these workers send heartbeats.
async fn keep_alive(fixture: &StoreFixture, workers: &[WorkerId]) {
    for _ in 0..4 {
        fixture.advance(HEARTBEAT_INTERVAL);
        for worker in workers {
            assert_eq!(fixture.heartbeat(*worker).await.reaped, 0);
        }
    }
}

/// Returns whether a worker is live or draining. Workers that are not listed are dead.
async fn liveness(fixture: &StoreFixture, worker: WorkerId) -> WorkerLiveness {
    let rows = fixture.harness.records.list_workers().await.expect("workers");
    let row = rows.iter().find(|row| row.worker == worker);
    row.map_or(WorkerLiveness::Dead, |row| row.liveness)
}
