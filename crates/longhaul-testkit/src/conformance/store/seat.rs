//! Seats of sandboxes: never more than there are, and the queue for them.
//!
//! Never: a sandbox itself.

use longhaul_core::change::{Change, SandboxRow, SandboxState, Seat, TimerKind};
use longhaul_core::id::{RunId, SandboxId};
use longhaul_core::port::shelves::DueTimer;
use longhaul_core::port::store::{Appended, Refused};
use longhaul_core::status::Status;
use longhaul_core::time::Millis;

use crate::conformance::store::facts::{And as _, cancels, fires, parks, progress, says};
use crate::conformance::store::kit::{Held, World, refused, stands};

/// A provider has so many seats; another's are others; sitting twice is sitting.
pub async fn there_are_so_many_seats(world: World) {
    let mut held = world.held(|_| {}).await;
    let [first, second, third] = boxes(&world);
    stands(&sit(&mut held, first, "local").await);
    stands(&sit(&mut held, first, "local").await);
    stands(&sit(&mut held, second, "local").await);
    assert_eq!(
        refused(sit(&mut held, third, "local").await),
        Refused::NoSeat
    );
    stands(&sit(&mut held, third, "remote").await);
    stands(&held.change(Change::FreeSeat(first)).await);
    stands(&held.change(Change::FreeSeat(first)).await);
    let [fourth, fifth, _] = boxes(&world);
    stands(&sit(&mut held, fourth, "local").await);
    assert_eq!(
        refused(sit(&mut held, fifth, "local").await),
        Refused::NoSeat
    );
}

/// The first in the queue is told by a timer: the highest priority, then the
/// longest wait.
pub async fn a_freed_seat_wakes_the_first_in_the_queue(world: World) {
    let mut holder = world.held(|_| {}).await;
    let [first, second, _] = boxes(&world);
    stands(&sit(&mut holder, first, "local").await);
    stands(&sit(&mut holder, second, "local").await);
    let mut waiting = Vec::new();
    for priority in [0, 7, 7] {
        let mut held = world.held(|task| task.priority = priority).await;
        held.write(queues("local")).await;
        world.is(held.run, Status::Waiting, "sandbox_slot").await;
        world.pass(Millis(10));
        waiting.push(held.run);
    }
    let mut elsewhere = world.held(|task| task.priority = 9).await;
    elsewhere.write(queues("remote")).await;
    world.is_in_order().await;
    for (sandbox, next) in [(first, waiting[1]), (second, waiting[2])] {
        stands(&holder.change(Change::FreeSeat(sandbox)).await);
        stands(&holder.change(Change::FreeSeat(sandbox)).await);
        let due = due(&world).await;
        assert_eq!(due.len(), 1, "one seat, one wake");
        assert_eq!((due[0].run, &due[0].what), (next, &TimerKind::Wake));
        stands(&world.tell(next, fires(due[0].timer)).await);
        world.is(next, Status::Running, "worker").await;
        world.is_in_order().await;
    }
}

/// Whoever got a seat stands in no queue: the next one that is freed is not for
/// it.
pub async fn whoever_sits_waits_no_more(world: World) {
    let mut holder = world.held(|_| {}).await;
    let [first, second, third] = boxes(&world);
    stands(&sit(&mut holder, first, "local").await);
    let mut quick = world.held(|task| task.priority = 9).await;
    stands(&quick.change(Change::QueueSeat("local".to_owned())).await);
    stands(&sit(&mut quick, second, "local").await);
    let mut slow = world.held(|_| {}).await;
    slow.write(queues("local")).await;
    assert_eq!(
        refused(sit(&mut holder, third, "local").await),
        Refused::NoSeat
    );
    stands(&holder.change(Change::FreeSeat(first)).await);
    assert_eq!(woken(&world).await, [slow.run]);
}

/// Whoever has ended is passed over: a seat that is told to nobody is lost.
pub async fn a_freed_seat_passes_over_the_ended(world: World) {
    let mut holder = world.held(|_| {}).await;
    let [first, ..] = boxes(&world);
    stands(&sit(&mut holder, first, "local").await);
    let mut gone = world.held(|task| task.priority = 9).await;
    gone.write(queues("local")).await;
    let mut next = world.held(|_| {}).await;
    next.write(queues("local")).await;
    stands(&world.close(gone.run, gone.last, cancels()).await);
    stands(&holder.change(Change::FreeSeat(first)).await);
    assert_eq!(woken(&world).await, [next.run]);
}

/// Queueing twice keeps the first place.
pub async fn queueing_twice_keeps_the_place(world: World) {
    let mut holder = world.held(|_| {}).await;
    let [first, ..] = boxes(&world);
    stands(&sit(&mut holder, first, "local").await);
    let mut early = world.held(|_| {}).await;
    stands(&early.change(Change::QueueSeat("local".to_owned())).await);
    world.pass(Millis(10));
    let mut late = world.held(|_| {}).await;
    late.write(queues("local")).await;
    world.pass(Millis(10));
    early.write(queues("local")).await;
    stands(&holder.change(Change::FreeSeat(first)).await);
    assert_eq!(woken(&world).await, [early.run]);
    stands(
        &world
            .tell(early.run, fires(due(&world).await[0].timer))
            .await,
    );
    stands(&sit(&mut holder, first, "local").await);
    stands(&holder.change(Change::FreeSeat(first)).await);
    assert_eq!(woken(&world).await, [late.run], "it stood there once");
}

/// A sandbox takes a seat out of two, and its row says that it runs.
async fn sit(held: &mut Held, sandbox: SandboxId, provider: &str) -> Appended {
    let provider = provider.to_owned();
    let row = SandboxRow {
        sandbox,
        provider: provider.clone(),
        handle: String::new(),
        state: SandboxState::Running,
        host: None,
        owner: held.run,
    };
    let seat = Seat {
        sandbox,
        provider,
        seats: 2,
    };
    let batch = says([progress(1)])
        .and(Change::SetSandbox(row))
        .and(Change::TakeSeat(seat));
    held.append(batch).await
}

fn queues(provider: &str) -> longhaul_core::change::Batch {
    parks("sandbox_slot").and(Change::QueueSeat(provider.to_owned()))
}

fn boxes(world: &World) -> [SandboxId; 3] {
    [
        world.ids.sandbox(),
        world.ids.sandbox(),
        world.ids.sandbox(),
    ]
}

async fn due(world: &World) -> Vec<DueTimer> {
    world.at.shelves.due(9).await.expect("due")
}

async fn woken(world: &World) -> Vec<RunId> {
    due(world).await.into_iter().map(|row| row.run).collect()
}
