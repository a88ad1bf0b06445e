//! Timers: due in order, told once.
//!
//! Never: the deadlines of gates; those are `gate`.

use longhaul_core::change::{Change, Due, TimerKind, TimerUpdate};
use longhaul_core::id::{RunId, TimerId};
use longhaul_core::port::store::Refused;
use longhaul_core::status::Status;
use longhaul_core::task::Start;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::conformance::store::batches::{
    BatchExt as _, arm_timer, change_batch, end_batch, events_batch, fire_timer_batch, park_batch,
    progress, spend_timer,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, refused};

/// Nothing before its time; then the longest due first, in pages.
pub async fn timers_come_due_in_order(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    assert_eq!(world.harness.records.next_timer_due().await.expect("next"), None);
    let start = world.harness.clock.now();
    let timers: Vec<TimerId> = (0..4).map(|_| world.ids.timer()).collect();
    let at = Change::SetTimer(TimerUpdate::Arm {
        timer: timers[3],
        run: held.run,
        due: Due::At(start.plus(Millis(15))),
        kind: TimerKind::ChildEnded(held.run),
    });
    let batch = events_batch([progress(1)])
        .with_change(arm_timer(timers[0], held.run, Millis(30)))
        .with_change(arm_timer(timers[1], held.run, Millis(10)))
        .with_change(arm_timer(timers[2], held.run, Millis(20)))
        .with_change(at);
    held.append_ok(batch).await;
    assert_eq!(due(&world, 9).await, []);
    assert_eq!(next_due(&world).await, Some(start.plus(Millis(10))));
    world.advance(Millis(10));
    assert_eq!(due(&world, 9).await, [timers[1]], "due at its very moment");
    world.advance(Millis(10));
    assert_eq!(due(&world, 9).await, [timers[1], timers[3], timers[2]]);
    assert_eq!(due(&world, 2).await, [timers[1], timers[3]]);
    let rows = world.harness.records.due_timers(9).await.expect("due");
    assert_eq!(rows[1].kind, TimerKind::ChildEnded(held.run));
    assert_eq!((rows[1].run, rows[1].due), (held.run, start.plus(Millis(15))));
    assert!(!rows[1].run_ended);
    assert_eq!(next_due(&world).await, Some(start.plus(Millis(10))));
}

/// Telling a timer spends it, wakes the run, and happens once.
pub async fn a_timer_fires_once(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let timer = world.ids.timer();
    held.append_ok(park_batch("timer").with_change(arm_timer(timer, held.run, Millis(10)))).await;
    world.advance(Millis(10));
    assert_appended(&world.append_outside(held.run, fire_timer_batch(timer)).await);
    world.assert_status(held.run, Status::Running, "worker").await;
    let last = world.row(held.run).await.last_seq;
    let again = world.append_outside(held.run, fire_timer_batch(timer)).await;
    assert_eq!(refused(again), Refused::TimerConsumed);
    assert_eq!(world.row(held.run).await.last_seq, last);
    assert_eq!(next_due(&world).await, None);
}

/// A timer that is set again moves; there are never two of a name.
pub async fn a_timer_set_again_moves(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let timer = world.ids.timer();
    let start = world.harness.clock.now();
    for span in [30, 10, 20] {
        held.change(arm_timer(timer, held.run, Millis(span))).await;
    }
    assert_eq!(next_due(&world).await, Some(start.plus(Millis(20))));
    world.advance(Millis(40));
    assert_eq!(due(&world, 9).await, [timer]);
    held.change(spend_timer(timer)).await;
    assert_eq!(due(&world, 9).await, []);
    let now = Change::SetTimer(TimerUpdate::Arm {
        timer,
        run: held.run,
        due: Due::Now,
        kind: TimerKind::Wake,
    });
    assert_appended(&held.change(now).await);
    assert_eq!(due(&world, 9).await, [timer]);
}

/// A timer for a run that has ended, or never was, says that nobody listens.
pub async fn a_timer_of_an_ended_run_says_so(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let unknown = world.ids.run();
    let [own, others] = [world.ids.timer(), world.ids.timer()];
    let batch = end_batch()
        .with_change(arm_timer(own, held.run, Millis(1)))
        .with_change(arm_timer(others, unknown, Millis(2)));
    held.append_ok(batch).await;
    world.advance(Millis(2));
    let rows = world.harness.records.due_timers(9).await.expect("due");
    let told: Vec<(RunId, bool)> = rows.iter().map(|row| (row.run, row.run_ended)).collect();
    assert_eq!(told, [(held.run, true), (unknown, true)]);
    // The sweep spends it beside the ended run, without a fact.
    assert_appended(&world.append_outside(held.run, change_batch(spend_timer(own))).await);
    assert_eq!(due(&world, 9).await, [others]);
}

/// A run with a start time rests until its timer is told.
pub async fn a_run_with_a_start_time_waits_for_it(world: StoreFixture) {
    let worker = world.worker().await;
    let at = world.harness.clock.now().plus(Millis(50));
    let run = world.open(|task| task.start = Start::At(at)).await;
    world.assert_status(run, Status::Pending, "start_at").await;
    assert!(world.try_claim_one(worker).await.is_none());
    assert_eq!(next_due(&world).await, Some(at));
    world.advance(Millis(50));
    let rows = world.harness.records.due_timers(9).await.expect("due");
    assert_eq!((rows[0].run, &rows[0].kind), (run, &TimerKind::Start));
    assert_appended(&world.append_outside(run, fire_timer_batch(rows[0].timer)).await);
    world.assert_status(run, Status::Pending, "worker").await;
    assert_eq!(world.claim_one(worker).await.run, run);
}

/// A run of a sequential batch rests until the run before it has its turn told.
pub async fn a_run_of_a_batch_waits_for_its_turn(world: StoreFixture) {
    let worker = world.worker().await;
    let batch = world.ids.batch();
    let in_batch = |start| {
        move |task: &mut longhaul_core::task::TaskSpec| {
            task.batch = Some(batch);
            task.start = start;
        }
    };
    let first = world.open(in_batch(Start::Now)).await;
    let second = world.open(in_batch(Start::AfterBatch)).await;
    world.assert_status(second, Status::Pending, "batch").await;
    world.assert_consistent().await;
    let mut held = world.claim_one(worker).await;
    assert_eq!(held.run, first);
    assert!(world.try_claim_one(worker).await.is_none());
    let timer = world.ids.timer();
    let turn = Change::SetTimer(TimerUpdate::Arm {
        timer,
        run: second,
        due: Due::Now,
        kind: TimerKind::BatchNext(batch),
    });
    held.append_ok(end_batch().with_change(turn)).await;
    assert_eq!(due(&world, 9).await, [timer]);
    assert_appended(&world.append_outside(second, fire_timer_batch(timer)).await);
    assert_eq!(world.claim_one(worker).await.run, second);
}

async fn due(world: &StoreFixture, limit: usize) -> Vec<TimerId> {
    let rows = world.harness.records.due_timers(limit).await.expect("due");
    rows.into_iter().map(|row| row.timer).collect()
}

async fn next_due(world: &StoreFixture) -> Option<Timestamp> {
    world.harness.records.next_timer_due().await.expect("next due")
}
