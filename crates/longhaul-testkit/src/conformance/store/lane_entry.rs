//! Conditions under which a new run enters its lane, and tasks that are added to runs in it.

use longhaul_core::change::{
    LaneEntryPolicy, NewRun, RowChange, TimerDueTime, TimerKind, TimerUpdate,
};
use longhaul_core::id::RunId;
use longhaul_core::port::store::{
    AppendRefusalReason, AppendResult, BusyLane, CreateRunsOutcome, CreateRunsRequest,
    IdempotencyRecord,
};
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, change_batch, events_batch, fire_timer_batch, resumed,
    spend_timer, steer_batch,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, lane_key, refused};
use crate::conformance::store::lane::park_releasing_lane;

const WINDOW: Millis = Millis(100);
const COLLECT: LaneEntryPolicy = LaneEntryPolicy::IfNoneWaits { window: WINDOW };

/// A run that needs an empty lane is refused while any run is in the lane.
pub async fn a_run_enters_an_empty_lane_only(fixture: StoreFixture) {
    let first = create(&fixture, LaneEntryPolicy::IfEmpty).await;
    assert_eq!(busy(&fixture, LaneEntryPolicy::IfEmpty).await, (Some(first), first));
    let second = create(&fixture, LaneEntryPolicy::Enqueue).await;
    assert_eq!(busy(&fixture, LaneEntryPolicy::IfEmpty).await, (Some(first), second));
    let worker = fixture.worker().await;
    fixture.claim_one(worker).await.end().await;
    assert_eq!(busy(&fixture, LaneEntryPolicy::IfEmpty).await, (Some(second), second));
    fixture.harness.records.set_lane_pause_state(&lane_key("a"), true).await.expect("pause");
    assert_eq!(busy(&fixture, LaneEntryPolicy::IfEmpty).await, (None, second));
    let last = fixture.row(second).await.last_seq;
    assert_appended(&fixture.append_as_closer(second, last, cancel_batch()).await);
    create(&fixture, LaneEntryPolicy::IfEmpty).await;
}

/// At most one run of a lane collects messages. It starts when no message has arrived for its
/// window.
pub async fn a_waiting_run_collects_messages(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let first = create(&fixture, COLLECT).await;
    assert_eq!(busy(&fixture, COLLECT).await, (Some(first), first), "no worker has claimed it");
    let mut claimed_run = fixture.claim_one(worker).await;
    let second = create(&fixture, COLLECT).await;
    assert_eq!(busy(&fixture, COLLECT).await, (Some(first), second));
    fixture.advance(Millis(WINDOW.0 * 2));
    let after = fixture.row(second).await.last_seq;
    let message = steer_batch(fixture.ids.steer(), "more");
    assert_appended(&fixture.append_as_closer(second, after, message.clone()).await);
    let due = fixture.harness.clock.now().plus(WINDOW);
    fixture.advance(Millis(WINDOW.0 / 2));
    claimed_run.end().await;
    fixture.assert_status(second, Status::Pending, "collect").await;
    assert!(fixture.try_claim_one(worker).await.is_none());
    fixture.assert_consistent().await;
    assert_eq!(fixture.harness.records.next_timer_due().await.expect("next"), Some(due));
    // A message that is based on an old state of the run is refused.
    let result =
        fixture.append_as_closer(second, after, steer_batch(fixture.ids.steer(), "x")).await;
    assert_eq!(result, AppendResult::Conflict);
    // A message begins the window anew, also for a sweep that has read the timer already.
    fixture.advance(WINDOW);
    let outdated = fixture.harness.records.due_timers(9).await.expect("due");
    let after = fixture.row(second).await.last_seq;
    let message = steer_batch(fixture.ids.steer(), "even more");
    assert_appended(&fixture.append_as_closer(second, after, message).await);
    let result = fixture.append_outside(second, fire_timer_batch(outdated[0].timer)).await;
    assert_eq!(refused(result), AppendRefusalReason::TimerConsumed);
    let due = fixture.harness.clock.now().plus(WINDOW);
    assert_eq!(fixture.harness.records.next_timer_due().await.expect("next"), Some(due));
    fixture.assert_status(second, Status::Pending, "collect").await;
    // Pausing and resuming the lane does not change the window.
    for paused in [true, false] {
        let lane = lane_key("a");
        fixture.harness.records.set_lane_pause_state(&lane, paused).await.expect("pause");
    }
    fixture.assert_status(second, Status::Pending, "collect").await;
    fixture.advance(WINDOW);
    let timers = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(timers.len(), 1);
    assert_eq!((timers[0].run, &timers[0].kind), (second, &TimerKind::Delay(WINDOW)));
    assert_appended(&fixture.append_outside(second, fire_timer_batch(timers[0].timer)).await);
    fixture.claim_one(worker).await.end().await;
    // Without a recent message the next run starts at once.
    let third = create(&fixture, COLLECT).await;
    let mut claimed_run = fixture.claim_one(worker).await;
    assert_eq!(claimed_run.run, third);
    let fourth = create(&fixture, COLLECT).await;
    fixture.advance(WINDOW);
    claimed_run.end().await;
    assert_eq!(fixture.claim_one(worker).await.run, fourth);
}

/// A run that a worker has claimed before keeps its own timers when it gets its lane again.
pub async fn a_claimed_run_keeps_its_timers(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let first = create(&fixture, COLLECT).await;
    let mut claimed_run = fixture.claim_one(worker).await;
    let second = create(&fixture, COLLECT).await;
    fixture.advance(WINDOW);
    let timer = fixture.ids.timer();
    let due = TimerDueTime::After(WINDOW);
    let kind = TimerKind::Delay(WINDOW);
    let arm = RowChange::SetTimer(TimerUpdate::Arm { timer, run: first, due, kind });
    claimed_run.append_ok(park_releasing_lane().with_change(arm)).await;
    let mut claimed_second = fixture.claim_one(worker).await;
    assert_eq!(claimed_second.run, second);
    assert_appended(&fixture.append_outside(first, events_batch([resumed()])).await);
    fixture.assert_status(first, Status::Waiting, "lane").await;
    claimed_second.end().await;
    assert_eq!(fixture.claim_one(worker).await.run, first);
    fixture.advance(WINDOW);
    let timers = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(timers.iter().map(|due| due.timer).collect::<Vec<_>>(), [timer]);
}

/// A run that interrupts its lane sets a timer for every other run in it.
pub async fn a_run_interrupts_its_lane(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let older = [
        create(&fixture, LaneEntryPolicy::Enqueue).await,
        create(&fixture, LaneEntryPolicy::Enqueue).await,
    ];
    fixture.claim_one(worker).await;
    let newest = create(&fixture, LaneEntryPolicy::Interrupt).await;
    let timers = fixture.harness.records.due_timers(9).await.expect("due");
    let mut cancelled: Vec<RunId> = timers.iter().map(|timer| timer.run).collect();
    cancelled.sort();
    assert_eq!(cancelled, older);
    assert!(timers.iter().all(|timer| timer.kind == TimerKind::LaneInterrupted(newest)));
    fixture.assert_status(newest, Status::Pending, "lane").await;
    // A run is cancelled once, however many newer runs there are. The lane is never full for them.
    for count in 3..9 {
        fixture.advance(Millis(5));
        let newer = NewRun { lane_depth_max: 1, ..new_run(&fixture, LaneEntryPolicy::Interrupt) };
        let created = CreateRunsOutcome::Created(vec![newer.id]);
        assert_eq!(fixture.open_runs(vec![newer]).await, created);
        let timers = fixture.harness.records.due_timers(99).await.expect("due");
        assert_eq!(timers.len(), count);
    }
    // A run whose timer has fired is not cancelled again.
    let timers = fixture.harness.records.due_timers(99).await.expect("due");
    let head_timer =
        timers.iter().find(|timer| timer.run == older[0]).expect("the timer of the holder");
    let consumed = change_batch(spend_timer(head_timer.timer));
    assert_appended(&fixture.append_outside(older[0], consumed).await);
    create(&fixture, LaneEntryPolicy::Interrupt).await;
    assert_eq!(fixture.harness.records.due_timers(99).await.expect("due").len(), 8);
}

/// The key of a task that was added to a run is remembered like the key of a new run.
pub async fn an_added_task_has_a_key(fixture: StoreFixture) {
    let run = create(&fixture, LaneEntryPolicy::Enqueue).await;
    let add = async |key: IdempotencyRecord| {
        let batch = steer_batch(fixture.ids.steer(), "more");
        fixture.append_outside(run, batch.with_change(RowChange::SaveSubmitKey(key))).await
    };
    assert_appended(&add(key("body")).await);
    assert_eq!(refused(add(key("body")).await), AppendRefusalReason::SubmitKeyUsed);
    let steers = fixture.harness.records.queued_steer_messages(run).await.expect("steers");
    assert_eq!(steers.len(), 1);
    let open = async |key: IdempotencyRecord| {
        let runs = vec![fixture.new_run(|_| {})];
        let request = CreateRunsRequest { runs, blobs: Vec::new(), idempotency: Some(key) };
        fixture.harness.store.create_runs(request).await.expect("open")
    };
    assert_eq!(open(key("body")).await, CreateRunsOutcome::Existing(vec![run]));
    assert_eq!(open(key("other")).await, CreateRunsOutcome::KeyReused);
}

fn key(body: &str) -> IdempotencyRecord {
    IdempotencyRecord {
        principal: "ops".to_owned(),
        key: "k".to_owned(),
        body_hash: Hash::digest(body.as_bytes()),
        ttl: Some(Millis::from_secs(60)),
    }
}

fn new_run(fixture: &StoreFixture, entry: LaneEntryPolicy) -> NewRun {
    NewRun { lane_entry: entry, ..fixture.new_run(|task| task.lane = Some(lane_key("a"))) }
}

/// Creates a run in the lane `a`.
async fn create(fixture: &StoreFixture, entry: LaneEntryPolicy) -> RunId {
    let new = new_run(fixture, entry);
    let id = new.id;
    assert_eq!(fixture.open_runs(vec![new]).await, CreateRunsOutcome::Created(vec![id]));
    id
}

/// Asserts that a run is refused, and returns the holder and the last run of the lane.
async fn busy(fixture: &StoreFixture, entry: LaneEntryPolicy) -> (Option<RunId>, RunId) {
    match fixture.open_runs(vec![new_run(fixture, entry)]).await {
        CreateRunsOutcome::LaneBusy(BusyLane { lane, holder, last }) => {
            assert_eq!(lane, lane_key("a"));
            (holder, last)
        }
        other @ (CreateRunsOutcome::Created(_)
        | CreateRunsOutcome::Existing(_)
        | CreateRunsOutcome::KeyReused
        | CreateRunsOutcome::LaneFull(_)
        | CreateRunsOutcome::OverCap(_)) => panic!("the lane is not busy: {other:?}"),
    }
}
