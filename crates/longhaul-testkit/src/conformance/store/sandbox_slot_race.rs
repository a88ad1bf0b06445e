//! Sandbox slots with more runs than slots.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{JournalBatch, RowChange, SandboxRow, SandboxSlot, SandboxState};
use longhaul_core::id::{RunId, SandboxId, WorkerId};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult};

use crate::conformance::store::batches::{
    BatchExt as _, end_batch, events_batch, park_batch, progress,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture};
use crate::conformance::store::rounds::{DECISIONS_MAX, fire_due_timers, is_appended};

/// There are more runs than slots, and each run queues before it tries to acquire one. Never
/// more slots are in use than there are, and every run gets a slot once.
pub async fn every_run_gets_a_slot_in_turn(world: StoreFixture) {
    let runs = (world.harness.rounds / 100).clamp(6, 24);
    for _ in 0..runs {
        world.open(|_| {}).await;
    }
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let worker = world.worker().await;
        tasks.spawn(acquire_in_turn(world.clone(), worker));
    }
    let mut sat: usize = tasks.join_all().await.into_iter().sum();
    // Serves the runs that were woken after their workers had stopped.
    let last = world.worker().await;
    sat += acquire_in_turn(world.clone(), last).await;
    assert_eq!(sat, runs, "a run waits although a slot is free");
}

/// Drives ready runs and returns how many have ended.
async fn acquire_in_turn(world: StoreFixture, worker: WorkerId) -> usize {
    let mut ended = 0;
    loop {
        fire_due_timers(world.clone()).await;
        let Some(held) = world.try_claim_one(worker).await else {
            return ended;
        };
        ended += usize::from(acquire_or_park(held).await);
    }
}

/// Queues and then tries to acquire a slot. Releases it and ends the run, or parks. Because the
/// run queues first, it can't miss a slot that is released between the attempt and the park.
async fn acquire_or_park(mut held: ClaimedRun) -> bool {
    let sandbox = SandboxId::from_bits(held.run.bits());
    let mut sits = false;
    for _ in 0..DECISIONS_MAX {
        held.last = held.fixture.row(held.run).await.last_seq;
        if sits {
            if is_appended(
                &held.append(end_batch().with_change(RowChange::ReleaseSlot(sandbox))).await,
            ) {
                return true;
            }
            continue;
        }
        let queues = RowChange::QueueForSlot("local".to_owned());
        if !is_appended(&held.change(queues).await) {
            continue;
        }
        yield_now().await;
        let appended = held.append(acquire_slot_batch(sandbox, held.run)).await;
        sits = is_appended(&appended);
        let is_full = appended == AppendResult::Refused(AppendRefusalReason::NoSlot);
        if is_full && is_appended(&held.append(park_batch("sandbox_slot")).await) {
            return false;
        }
        yield_now().await;
    }
    panic!("{}: append conflicted {DECISIONS_MAX} times", held.run);
}

fn acquire_slot_batch(sandbox: SandboxId, owner: RunId) -> JournalBatch {
    let provider = "local".to_owned();
    let row = SandboxRow {
        sandbox,
        provider: provider.clone(),
        handle: String::new(),
        state: SandboxState::Running,
        host: None,
        owner,
    };
    let seat = SandboxSlot { sandbox, provider, capacity: 2 };
    events_batch([progress(1)])
        .with_change(RowChange::AcquireSlot(seat))
        .with_change(RowChange::SetSandbox(row))
}
