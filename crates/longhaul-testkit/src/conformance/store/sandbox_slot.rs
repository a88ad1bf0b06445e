//! Sandbox slots: never more in use than there are, and the queue for them.

use longhaul_core::change::{RowChange, SandboxSlot, SandboxState, TimerKind};
use longhaul_core::id::{RunId, SandboxId};
use longhaul_core::port::records::DueTimer;
use longhaul_core::port::store::{AppendRefusalReason, AppendResult};
use longhaul_core::status::Status;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, events_batch, fire_timer_batch, park_batch, progress, sandbox_row,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

/// Slots are limited per provider. Acquiring a slot twice has no further effect.
pub async fn slots_are_limited(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let [first, second, third] = sandbox_ids(&fixture);
    assert_appended(&acquire_slot(&mut claimed_run, first, "local").await);
    assert_appended(&acquire_slot(&mut claimed_run, first, "local").await);
    assert_appended(&acquire_slot(&mut claimed_run, second, "local").await);
    assert_eq!(
        refused(acquire_slot(&mut claimed_run, third, "local").await),
        AppendRefusalReason::NoSlot
    );
    assert_appended(&acquire_slot(&mut claimed_run, third, "remote").await);
    assert_appended(&claimed_run.change(RowChange::ReleaseSlot(first)).await);
    assert_appended(&claimed_run.change(RowChange::ReleaseSlot(first)).await);
    let [fourth, fifth, _] = sandbox_ids(&fixture);
    assert_appended(&acquire_slot(&mut claimed_run, fourth, "local").await);
    assert_eq!(
        refused(acquire_slot(&mut claimed_run, fifth, "local").await),
        AppendRefusalReason::NoSlot
    );
}

/// A released slot wakes the first run of the queue by a timer: the one with the highest
/// priority, then the longest wait.
pub async fn a_released_slot_wakes_the_first_waiter(fixture: StoreFixture) {
    let mut holder = fixture.open_and_claim(|_| {}).await;
    let [first, second, _] = sandbox_ids(&fixture);
    assert_appended(&acquire_slot(&mut holder, first, "local").await);
    assert_appended(&acquire_slot(&mut holder, second, "local").await);
    let mut waiting = Vec::new();
    for priority in [0, 7, 7] {
        let mut claimed_run = fixture.open_and_claim(|task| task.priority = priority).await;
        claimed_run.append_ok(queue_batch("local")).await;
        fixture.assert_status(claimed_run.run, Status::Waiting, "sandbox_slot").await;
        fixture.advance(Millis(10));
        waiting.push(claimed_run.run);
    }
    let mut other_provider = fixture.open_and_claim(|task| task.priority = 9).await;
    other_provider.append_ok(queue_batch("remote")).await;
    fixture.assert_consistent().await;
    for (sandbox, next) in [(first, waiting[1]), (second, waiting[2])] {
        assert_appended(&holder.change(RowChange::ReleaseSlot(sandbox)).await);
        assert_appended(&holder.change(RowChange::ReleaseSlot(sandbox)).await);
        let due = due(&fixture).await;
        assert_eq!(due.len(), 1, "one slot, one wake-up");
        assert_eq!((due[0].run, &due[0].kind), (next, &TimerKind::Wake));
        assert_appended(&fixture.append_outside(next, fire_timer_batch(due[0].timer)).await);
        fixture.assert_status(next, Status::Running, "worker").await;
        fixture.assert_consistent().await;
    }
}

/// A run that has acquired a slot leaves the queue and does not get the next released slot.
pub async fn acquiring_a_slot_leaves_the_queue(fixture: StoreFixture) {
    let mut holder = fixture.open_and_claim(|_| {}).await;
    let [first, second, third] = sandbox_ids(&fixture);
    assert_appended(&acquire_slot(&mut holder, first, "local").await);
    let mut acquiring = fixture.open_and_claim(|task| task.priority = 9).await;
    assert_appended(&acquiring.change(RowChange::QueueForSlot("local".to_owned())).await);
    assert_appended(&acquire_slot(&mut acquiring, second, "local").await);
    let mut waiting = fixture.open_and_claim(|_| {}).await;
    waiting.append_ok(queue_batch("local")).await;
    assert_eq!(
        refused(acquire_slot(&mut holder, third, "local").await),
        AppendRefusalReason::NoSlot
    );
    assert_appended(&holder.change(RowChange::ReleaseSlot(first)).await);
    assert_eq!(woken_runs(&fixture).await, [waiting.run]);
}

/// Ended runs are skipped, because a slot offered to them would be lost.
pub async fn a_released_slot_skips_ended_runs(fixture: StoreFixture) {
    let mut holder = fixture.open_and_claim(|_| {}).await;
    let [first, ..] = sandbox_ids(&fixture);
    assert_appended(&acquire_slot(&mut holder, first, "local").await);
    let mut ended = fixture.open_and_claim(|task| task.priority = 9).await;
    ended.append_ok(queue_batch("local")).await;
    let mut next = fixture.open_and_claim(|_| {}).await;
    next.append_ok(queue_batch("local")).await;
    assert_appended(&fixture.append_as_closer(ended.run, ended.last, cancel_batch()).await);
    assert_appended(&holder.change(RowChange::ReleaseSlot(first)).await);
    assert_eq!(woken_runs(&fixture).await, [next.run]);
}

/// A run that queues twice keeps its first position.
pub async fn queueing_twice_keeps_the_queue_position(fixture: StoreFixture) {
    let mut holder = fixture.open_and_claim(|_| {}).await;
    let [first, ..] = sandbox_ids(&fixture);
    assert_appended(&acquire_slot(&mut holder, first, "local").await);
    let mut early = fixture.open_and_claim(|_| {}).await;
    assert_appended(&early.change(RowChange::QueueForSlot("local".to_owned())).await);
    fixture.advance(Millis(10));
    let mut late = fixture.open_and_claim(|_| {}).await;
    late.append_ok(queue_batch("local")).await;
    fixture.advance(Millis(10));
    early.append_ok(queue_batch("local")).await;
    assert_appended(&holder.change(RowChange::ReleaseSlot(first)).await);
    assert_eq!(woken_runs(&fixture).await, [early.run]);
    assert_appended(
        &fixture.append_outside(early.run, fire_timer_batch(due(&fixture).await[0].timer)).await,
    );
    assert_appended(&acquire_slot(&mut holder, first, "local").await);
    assert_appended(&holder.change(RowChange::ReleaseSlot(first)).await);
    assert_eq!(woken_runs(&fixture).await, [late.run], "the run was in the queue once");
}

/// Acquires one of two slots for a sandbox and marks it as running.
async fn acquire_slot(
    claimed_run: &mut ClaimedRun,
    sandbox: SandboxId,
    provider: &str,
) -> AppendResult {
    let provider = provider.to_owned();
    let row = sandbox_row(sandbox, SandboxState::Running, claimed_run.run);
    let slot = SandboxSlot { sandbox, provider, capacity: 2 };
    let batch = events_batch([progress(1)])
        .with_change(RowChange::SetSandbox(row))
        .with_change(RowChange::AcquireSlot(slot));
    claimed_run.append(batch).await
}

fn queue_batch(provider: &str) -> longhaul_core::change::JournalBatch {
    park_batch("sandbox_slot").with_change(RowChange::QueueForSlot(provider.to_owned()))
}

fn sandbox_ids(fixture: &StoreFixture) -> [SandboxId; 3] {
    [fixture.ids.sandbox(), fixture.ids.sandbox(), fixture.ids.sandbox()]
}

async fn due(fixture: &StoreFixture) -> Vec<DueTimer> {
    fixture.harness.records.due_timers(9).await.expect("due")
}

async fn woken_runs(fixture: &StoreFixture) -> Vec<RunId> {
    due(fixture).await.into_iter().map(|row| row.run).collect()
}
