//! Timers: due in order, told once.
//!
//! Never: the deadlines of gates; those are `gate`.

use longhaul_core::change::{Change, Due, TimerKind, TimerMove};
use longhaul_core::id::{RunId, TimerId};
use longhaul_core::port::store::Refused;
use longhaul_core::status::Status;
use longhaul_core::task::Start;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::conformance::store::facts::{
    And as _, arms, ends, fires, only, parks, progress, says, spends,
};
use crate::conformance::store::kit::{World, refused, stands};

/// Nothing before its time; then the longest due first, in pages.
pub async fn timers_come_due_in_order(world: World) {
    let mut held = world.held(|_| {}).await;
    assert_eq!(world.at.shelves.next_due().await.expect("next"), None);
    let start = world.at.clock.now();
    let timers: Vec<TimerId> = (0..4).map(|_| world.ids.timer()).collect();
    let at = Change::SetTimer(TimerMove::Arm {
        timer: timers[3],
        run: held.run,
        due: Due::At(start.plus(Millis(15))),
        what: TimerKind::ChildEnded(held.run),
    });
    let batch = says([progress(1)])
        .and(arms(timers[0], held.run, Millis(30)))
        .and(arms(timers[1], held.run, Millis(10)))
        .and(arms(timers[2], held.run, Millis(20)))
        .and(at);
    held.write(batch).await;
    assert_eq!(due(&world, 9).await, []);
    assert_eq!(next_due(&world).await, Some(start.plus(Millis(10))));
    world.pass(Millis(10));
    assert_eq!(due(&world, 9).await, [timers[1]], "due at its very moment");
    world.pass(Millis(10));
    assert_eq!(due(&world, 9).await, [timers[1], timers[3], timers[2]]);
    assert_eq!(due(&world, 2).await, [timers[1], timers[3]]);
    let rows = world.at.shelves.due(9).await.expect("due");
    assert_eq!(rows[1].what, TimerKind::ChildEnded(held.run));
    assert_eq!(
        (rows[1].run, rows[1].due),
        (held.run, start.plus(Millis(15)))
    );
    assert!(!rows[1].ended);
    assert_eq!(next_due(&world).await, Some(start.plus(Millis(10))));
}

/// Telling a timer spends it, wakes the run, and happens once.
pub async fn a_timer_is_told_once(world: World) {
    let mut held = world.held(|_| {}).await;
    let timer = world.ids.timer();
    held.write(parks("timer").and(arms(timer, held.run, Millis(10))))
        .await;
    world.pass(Millis(10));
    stands(&world.tell(held.run, fires(timer)).await);
    world.is(held.run, Status::Running, "worker").await;
    let last = world.row(held.run).await.last;
    let again = world.tell(held.run, fires(timer)).await;
    assert_eq!(refused(again), Refused::TimerSpent);
    assert_eq!(world.row(held.run).await.last, last);
    assert_eq!(next_due(&world).await, None);
}

/// A timer that is set again moves; there are never two of a name.
pub async fn a_timer_set_again_moves(world: World) {
    let mut held = world.held(|_| {}).await;
    let timer = world.ids.timer();
    let start = world.at.clock.now();
    for span in [30, 10, 20] {
        held.change(arms(timer, held.run, Millis(span))).await;
    }
    assert_eq!(next_due(&world).await, Some(start.plus(Millis(20))));
    world.pass(Millis(40));
    assert_eq!(due(&world, 9).await, [timer]);
    held.change(spends(timer)).await;
    assert_eq!(due(&world, 9).await, []);
    let now = Change::SetTimer(TimerMove::Arm {
        timer,
        run: held.run,
        due: Due::Now,
        what: TimerKind::Wake,
    });
    stands(&held.change(now).await);
    assert_eq!(due(&world, 9).await, [timer]);
}

/// A timer for a run that has ended, or never was, says that nobody listens.
pub async fn a_timer_for_nobody_says_so(world: World) {
    let mut held = world.held(|_| {}).await;
    let unknown = world.ids.run();
    let [own, others] = [world.ids.timer(), world.ids.timer()];
    let batch = ends()
        .and(arms(own, held.run, Millis(1)))
        .and(arms(others, unknown, Millis(2)));
    held.write(batch).await;
    world.pass(Millis(2));
    let rows = world.at.shelves.due(9).await.expect("due");
    let told: Vec<(RunId, bool)> = rows.iter().map(|row| (row.run, row.ended)).collect();
    assert_eq!(told, [(held.run, true), (unknown, true)]);
    // The sweep spends it beside the ended run, without a fact.
    stands(&world.tell(held.run, only(spends(own))).await);
    assert_eq!(due(&world, 9).await, [others]);
}

/// A run with a start time rests until its timer is told.
pub async fn a_run_with_a_start_time_waits_for_it(world: World) {
    let worker = world.worker().await;
    let at = world.at.clock.now().plus(Millis(50));
    let run = world.open(|task| task.start = Start::At(at)).await;
    world.is(run, Status::Pending, "start_at").await;
    assert!(world.try_take(worker).await.is_none());
    assert_eq!(next_due(&world).await, Some(at));
    world.pass(Millis(50));
    let rows = world.at.shelves.due(9).await.expect("due");
    assert_eq!((rows[0].run, &rows[0].what), (run, &TimerKind::Start));
    stands(&world.tell(run, fires(rows[0].timer)).await);
    world.is(run, Status::Pending, "worker").await;
    assert_eq!(world.take(worker).await.run, run);
}

/// A run of a sequential batch rests until the run before it has its turn told.
pub async fn a_run_of_a_batch_waits_for_its_turn(world: World) {
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
    world.is(second, Status::Pending, "batch").await;
    world.is_in_order().await;
    let mut held = world.take(worker).await;
    assert_eq!(held.run, first);
    assert!(world.try_take(worker).await.is_none());
    let timer = world.ids.timer();
    let turn = Change::SetTimer(TimerMove::Arm {
        timer,
        run: second,
        due: Due::Now,
        what: TimerKind::BatchTurn(batch),
    });
    held.write(ends().and(turn)).await;
    assert_eq!(due(&world, 9).await, [timer]);
    stands(&world.tell(second, fires(timer)).await);
    assert_eq!(world.take(worker).await.run, second);
}

async fn due(world: &World, limit: usize) -> Vec<TimerId> {
    let rows = world.at.shelves.due(limit).await.expect("due");
    rows.into_iter().map(|row| row.timer).collect()
}

async fn next_due(world: &World) -> Option<Timestamp> {
    world.at.shelves.next_due().await.expect("next due")
}
