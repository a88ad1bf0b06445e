//! Sandbox slots with more runs than slots.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{JournalBatch, RowChange, SandboxSlot, SandboxState};
use longhaul_core::id::{RunId, SandboxId, WorkerId};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult};

use crate::conformance::store::batches::{
    BatchExt as _, end_batch, events_batch, park_batch, progress, sandbox_row,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture};
use crate::conformance::store::rounds::{DECISIONS_MAX, fire_due_timers, is_appended};

/// There are more runs than slots, and each run queues before it tries to acquire one. Never
/// more slots are in use than there are, and every run gets a slot once.
pub async fn every_run_gets_a_slot_in_turn(fixture: StoreFixture) {
    let runs = (fixture.harness.rounds / 100).clamp(6, 24);
    for _ in 0..runs {
        fixture.open(|_| {}).await;
    }
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let worker = fixture.worker().await;
        tasks.spawn(acquire_in_turn(fixture.clone(), worker));
    }
    let mut served: usize = tasks.join_all().await.into_iter().sum();
    // Serves the runs that were woken after their workers had stopped.
    let last = fixture.worker().await;
    served += acquire_in_turn(fixture.clone(), last).await;
    assert_eq!(served, runs, "a run waits although a slot is free");
}

/// Drives ready runs and returns how many have ended.
async fn acquire_in_turn(fixture: StoreFixture, worker: WorkerId) -> usize {
    let mut ended = 0;
    loop {
        fire_due_timers(fixture.clone()).await;
        let Some(claimed_run) = fixture.try_claim_one(worker).await else {
            return ended;
        };
        ended += usize::from(acquire_or_park(claimed_run).await);
    }
}

/// Queues and then tries to acquire a slot. Releases it and ends the run, or parks. Because the
/// run queues first, it can't miss a slot that is released between the attempt and the park.
async fn acquire_or_park(mut claimed_run: ClaimedRun) -> bool {
    let sandbox = SandboxId::from_bits(claimed_run.run.bits());
    let mut has_slot = false;
    for _ in 0..DECISIONS_MAX {
        claimed_run.last = claimed_run.fixture.row(claimed_run.run).await.last_seq;
        if has_slot {
            if is_appended(
                &claimed_run.append(end_batch().with_change(RowChange::ReleaseSlot(sandbox))).await,
            ) {
                return true;
            }
            continue;
        }
        let queue_for_slot = RowChange::QueueForSlot("local".to_owned());
        if !is_appended(&claimed_run.change(queue_for_slot).await) {
            continue;
        }
        yield_now().await;
        let appended = claimed_run.append(acquire_slot_batch(sandbox, claimed_run.run)).await;
        has_slot = is_appended(&appended);
        let is_full = appended == AppendResult::Refused(AppendRefusalReason::NoSlot);
        if is_full && is_appended(&claimed_run.append(park_batch("sandbox_slot")).await) {
            return false;
        }
        yield_now().await;
    }
    panic!("{}: append conflicted {DECISIONS_MAX} times", claimed_run.run);
}

fn acquire_slot_batch(sandbox: SandboxId, owner: RunId) -> JournalBatch {
    let provider = "local".to_owned();
    let row = sandbox_row(sandbox, SandboxState::Running, owner);
    let slot = SandboxSlot { sandbox, provider, capacity: 2 };
    events_batch([progress(1)])
        .with_change(RowChange::AcquireSlot(slot))
        .with_change(RowChange::SetSandbox(row))
}
