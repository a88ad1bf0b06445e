//! Seats under more runs than there are seats.
//!
//! Never: waits for a seat. Whoever is told of none is found parked.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{Batch, Change, SandboxRow, SandboxState, Seat};
use longhaul_core::id::{RunId, SandboxId, WorkerId};
use longhaul_core::port::store::{Appended, Refused};

use crate::conformance::store::facts::{And as _, ends, parks, progress, says};
use crate::conformance::store::kit::{Held, World};
use crate::conformance::store::rounds::{DECISIONS_MAX, is_at, sweep};

/// More runs than seats, each queueing before it tries to sit: never more sit
/// than there are seats, and everybody sits once.
pub async fn seats_are_enough_for_everybody_in_turn(world: World) {
    let runs = (world.at.rounds / 100).clamp(6, 24);
    for _ in 0..runs {
        world.open(|_| {}).await;
    }
    let mut crew = JoinSet::new();
    for _ in 0..4 {
        let worker = world.worker().await;
        crew.spawn(sit_in_turn(world.clone(), worker));
    }
    let mut sat: usize = crew.join_all().await.into_iter().sum();
    // Whoever was told of a seat when its crew had gone home is served now.
    let last = world.worker().await;
    sat += sit_in_turn(world.clone(), last).await;
    assert_eq!(sat, runs, "somebody waits beside a free seat");
}

/// Drives what is ready and says how many runs it saw through.
async fn sit_in_turn(world: World, worker: WorkerId) -> usize {
    let mut ended = 0;
    loop {
        sweep(world.clone()).await;
        let Some(held) = world.try_take(worker).await else {
            return ended;
        };
        ended += usize::from(sit_or_park(held).await);
    }
}

/// Queues, then tries to sit; sits, gets up and ends, or parks. Whoever queues
/// first can't miss the seat that is freed between the try and the park.
async fn sit_or_park(mut held: Held) -> bool {
    let sandbox = SandboxId::from_bits(held.run.bits());
    let mut sits = false;
    for _ in 0..DECISIONS_MAX {
        held.last = held.world.row(held.run).await.last;
        if sits {
            if is_at(&held.append(ends().and(Change::FreeSeat(sandbox))).await) {
                return true;
            }
            continue;
        }
        let queues = Change::QueueSeat("local".to_owned());
        if !is_at(&held.change(queues).await) {
            continue;
        }
        yield_now().await;
        let told = held.append(sits_down(sandbox, held.run)).await;
        sits = is_at(&told);
        let is_full = told == Appended::Refused(Refused::NoSeat);
        if is_full && is_at(&held.append(parks("sandbox_slot")).await) {
            return false;
        }
        yield_now().await;
    }
    panic!("{} moved on {DECISIONS_MAX} times", held.run);
}

fn sits_down(sandbox: SandboxId, owner: RunId) -> Batch {
    let provider = "local".to_owned();
    let row = SandboxRow {
        sandbox,
        provider: provider.clone(),
        handle: String::new(),
        state: SandboxState::Running,
        host: None,
        owner,
    };
    let seat = Seat {
        sandbox,
        provider,
        seats: 2,
    };
    says([progress(1)])
        .and(Change::TakeSeat(seat))
        .and(Change::SetSandbox(row))
}
