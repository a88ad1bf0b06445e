//! Queue for sandbox slots: kept slots, unused wake-ups, fair shares and positions.

use longhaul_core::change::{JournalBatch, RowChange, SandboxSlot, SandboxState, SlotQueueLength};
use longhaul_core::id::{RunId, SandboxId};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult};
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, events_batch, fire_timer_batch, park_batch, pause_batch, progress,
    sandbox_row,
};
use crate::conformance::store::fixture::{
    ClaimedRun, StoreFixture, agent, assert_appended, refused,
};

/// A slot that was released for a woken run can't be acquired by another run.
pub async fn a_slot_is_kept_for_a_woken_run(fixture: StoreFixture) {
    let (mut holder, [first, second]) = occupy_slots(&fixture).await;
    let waiting = queue_run(&fixture, |_| {}).await;
    release(&mut holder, first).await;
    let mut newcomer = fixture.open_and_claim(|_| {}).await;
    let newer = fixture.ids.sandbox();
    assert_eq!(refused(acquire(&mut newcomer, newer).await), AppendRefusalReason::NoSlot);
    let mut woken = claim_woken_run(&fixture, waiting).await;
    fixture.assert_consistent().await;
    assert_eq!(refused(acquire(&mut newcomer, newer).await), AppendRefusalReason::NoSlot);
    assert_appended(&acquire(&mut woken, fixture.ids.sandbox()).await);
    assert_eq!(position(&fixture, waiting).await, None);
    assert_eq!(refused(acquire(&mut newcomer, newer).await), AppendRefusalReason::NoSlot);
    release(&mut holder, second).await;
    assert_appended(&acquire(&mut newcomer, newer).await);
    assert_eq!(woken_runs(&fixture).await, []);
}

/// A woken run that ends, is paused or waits for something else passes its slot on. So does a run
/// that waits for a slot again, but it remains in the queue.
pub async fn a_woken_run_that_needs_no_slot_passes_it_on(fixture: StoreFixture) {
    let (mut holder, [first, _]) = occupy_slots(&fixture).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(queue_run(&fixture, |_| {}).await);
    }
    release(&mut holder, first).await;
    let batches = [cancel_batch(), pause_batch(), park_batch("budget"), park_batch("sandbox_slot")];
    for (index, batch) in batches.into_iter().enumerate() {
        let is_queued = index == 3;
        let mut woken = claim_woken_run(&fixture, waiting[index]).await;
        woken.append_ok(batch).await;
        assert_eq!(woken_runs(&fixture).await, [waiting[index + 1]]);
        assert_eq!(position(&fixture, waiting[index]).await, is_queued.then_some(2));
        assert_eq!(queue(&fixture, 2).await.woken, 1);
        fixture.assert_consistent().await;
    }
    // Nobody waits behind the last run, and the run in front of it did not get a slot.
    let mut last = claim_woken_run(&fixture, waiting[4]).await;
    last.append_ok(park_batch("sandbox_slot")).await;
    assert_eq!(woken_runs(&fixture).await, []);
    assert_eq!(position(&fixture, waiting[4]).await, Some(2));
}

/// A run that leaves the queue without having been woken wakes nobody.
pub async fn a_waiting_run_leaves_the_queue(fixture: StoreFixture) {
    let (mut holder, [first, _]) = occupy_slots(&fixture).await;
    for batch in [cancel_batch(), pause_batch(), park_batch("budget")] {
        let mut waiting = fixture.open_and_claim(|task| task.priority = 9).await;
        assert_appended(&waiting.change(RowChange::QueueForSlot("local".to_owned())).await);
        waiting.append_ok(batch).await;
        assert_eq!(position(&fixture, waiting.run).await, None);
    }
    let next = queue_run(&fixture, |_| {}).await;
    assert_eq!(woken_runs(&fixture).await, []);
    release(&mut holder, first).await;
    assert_eq!(woken_runs(&fixture).await, [next]);
}

/// A run that waits for another provider leaves the queue of the first one, and passes its slot on.
pub async fn a_run_waits_for_one_provider(fixture: StoreFixture) {
    let (mut holder, [first, _]) = occupy_slots(&fixture).await;
    let moved = queue_run(&fixture, |_| {}).await;
    let next = queue_run(&fixture, |_| {}).await;
    release(&mut holder, first).await;
    let mut woken = claim_woken_run(&fixture, moved).await;
    assert_appended(&woken.change(RowChange::QueueForSlot("local".to_owned())).await);
    assert_eq!(woken_runs(&fixture).await, [], "the run is queued already");
    assert_appended(&woken.change(RowChange::QueueForSlot("remote".to_owned())).await);
    assert_eq!(woken_runs(&fixture).await, [next]);
    assert_eq!(position(&fixture, moved).await, Some(1));
    assert_eq!(position(&fixture, next).await, Some(1));
}

/// Among runs of the same priority, the agent that occupies the fewest slots comes first. Woken runs
/// count as well.
pub async fn agents_share_the_slots(fixture: StoreFixture) {
    let (mut holder, [first, second]) = occupy_slots(&fixture).await;
    let early = queue_run(&fixture, |_| {}).await;
    let urgent = queue_run(&fixture, |task| task.priority = 5).await;
    let reader = |task: &mut TaskSpec| task.agent = agent("reader");
    let other_agent = queue_run(&fixture, reader).await;
    let other_agent_later = queue_run(&fixture, reader).await;
    let expected = [urgent, other_agent, early, other_agent_later];
    for (index, sandbox) in [(0, first), (1, second)] {
        release(&mut holder, sandbox).await;
        assert_eq!(due(&fixture).await.last(), Some(&expected[index]));
        let mut woken = claim_woken_run(&fixture, expected[index]).await;
        let own = fixture.ids.sandbox();
        assert_appended(&acquire(&mut woken, own).await);
    }
    // Now each of the two agents occupies one slot, so that the longest wait decides.
    assert_eq!(queue(&fixture, 3).await, SlotQueueLength { waiting: 1, woken: 1 });
    assert_eq!(woken_runs(&fixture).await, [early]);
    let late_other_agent = queue_run(&fixture, |_| {}).await;
    assert_eq!(position(&fixture, other_agent_later).await, Some(2));
    assert_eq!(position(&fixture, late_other_agent).await, Some(3));
}

/// Free slots are offered to waiting runs, each slot once.
pub async fn free_slots_are_offered(fixture: StoreFixture) {
    let (_holder, _) = occupy_slots(&fixture).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(queue_run(&fixture, |_| {}).await);
    }
    for (capacity, woken) in [(0, 0), (2, 0), (3, 1), (3, 1), (2, 1), (4, 2), (9, 3)] {
        let expected = SlotQueueLength { waiting: 3 - woken, woken };
        assert_eq!(queue(&fixture, capacity).await, expected, "capacity {capacity}");
        assert_eq!(woken_runs(&fixture).await, waiting[..woken as usize]);
    }
    let records = &fixture.harness.records;
    let remote = records.wake_runs_for_free_slots("remote", 9).await.expect("queue");
    assert_eq!(remote, SlotQueueLength::default());
}

/// The position counts the runs that get a slot earlier, woken runs first.
pub async fn the_queue_position_is_known(fixture: StoreFixture) {
    let (mut holder, [first, _]) = occupy_slots(&fixture).await;
    assert_eq!(position(&fixture, holder.run).await, None);
    let low = queue_run(&fixture, |_| {}).await;
    let high = queue_run(&fixture, |task| task.priority = 3).await;
    let later = queue_run(&fixture, |_| {}).await;
    let positions = async || {
        [
            position(&fixture, high).await,
            position(&fixture, low).await,
            position(&fixture, later).await,
        ]
    };
    assert_eq!(positions().await, [Some(1), Some(2), Some(3)]);
    release(&mut holder, first).await;
    let highest = queue_run(&fixture, |task| task.priority = 9).await;
    assert_eq!(position(&fixture, highest).await, Some(2));
    assert_eq!(positions().await, [Some(1), Some(3), Some(4)]);
}

/// The sandbox of an ended run is updated if it is in the expected state, and its slot is released
/// when it needs none.
pub async fn the_sandbox_of_an_ended_run_is_updated(fixture: StoreFixture) {
    let (mut owner, [sandbox, _]) = occupy_slots(&fixture).await;
    let waiting = queue_run(&fixture, |_| {}).await;
    let records = &fixture.harness.records;
    let update = async |owner, from, to| {
        let row = sandbox_row(sandbox, to, owner);
        records.update_sandbox_of_ended_run(row, from).await.expect("update")
    };
    let (running, stopping) = (SandboxState::Running, SandboxState::Stopping);
    assert!(!update(owner.run, running, stopping).await, "the owner has not ended");
    owner.end().await;
    assert!(!update(owner.run, SandboxState::Stopped, stopping).await, "another state");
    assert!(!update(waiting, running, stopping).await, "another owner");
    assert!(update(owner.run, running, stopping).await);
    assert!(!update(owner.run, running, stopping).await, "already updated");
    assert_eq!(woken_runs(&fixture).await, []);
    assert!(update(owner.run, stopping, SandboxState::Stopped).await);
    assert_eq!(woken_runs(&fixture).await, [waiting]);
    let unknown = sandbox_row(fixture.ids.sandbox(), stopping, owner.run);
    assert!(!records.update_sandbox_of_ended_run(unknown, running).await.expect("update"));
    let filter = longhaul_core::change::SandboxFilter {
        owner: Some(owner.run),
        limit: 1,
        ..Default::default()
    };
    let rows = records.list_sandboxes(filter).await.expect("sandboxes");
    assert_eq!(rows, [sandbox_row(sandbox, SandboxState::Stopped, owner.run)]);
    fixture.assert_consistent().await;
}

/// Opens a run that occupies the two slots of the provider.
async fn occupy_slots(fixture: &StoreFixture) -> (ClaimedRun, [SandboxId; 2]) {
    let mut holder = fixture.open_and_claim(|_| {}).await;
    let sandboxes = [fixture.ids.sandbox(), fixture.ids.sandbox()];
    for sandbox in sandboxes {
        assert_appended(&acquire(&mut holder, sandbox).await);
    }
    (holder, sandboxes)
}

async fn acquire(claimed_run: &mut ClaimedRun, sandbox: SandboxId) -> AppendResult {
    let row = sandbox_row(sandbox, SandboxState::Running, claimed_run.run);
    let slot = SandboxSlot { sandbox, provider: "local".to_owned(), capacity: 2 };
    let batch = events_batch([progress(1)])
        .with_change(RowChange::SetSandbox(row))
        .with_change(RowChange::AcquireSlot(slot));
    claimed_run.append(batch).await
}

async fn release(holder: &mut ClaimedRun, sandbox: SandboxId) {
    let row = sandbox_row(sandbox, SandboxState::Stopped, holder.run);
    let batch = JournalBatch::default()
        .with_change(RowChange::SetSandbox(row))
        .with_change(RowChange::ReleaseSlot(sandbox));
    assert_appended(&holder.append(batch).await);
}

/// Opens a run that waits for a slot. Later runs have waited for a shorter time.
async fn queue_run(fixture: &StoreFixture, change: impl FnOnce(&mut TaskSpec)) -> RunId {
    let mut claimed_run = fixture.open_and_claim(change).await;
    let queue = RowChange::QueueForSlot("local".to_owned());
    claimed_run.append_ok(park_batch("sandbox_slot").with_change(queue)).await;
    fixture.advance(Millis(10));
    claimed_run.run
}

/// Fires the timer of a woken run, and claims the run.
async fn claim_woken_run(fixture: &StoreFixture, run: RunId) -> ClaimedRun {
    let timers = fixture.harness.records.due_timers(9).await.expect("due timers");
    let timer = timers.iter().find(|timer| timer.run == run).expect("a timer of the woken run");
    assert_appended(&fixture.append_outside(run, fire_timer_batch(timer.timer)).await);
    fixture.assert_status(run, Status::Running, "worker").await;
    let worker = fixture.worker().await;
    let claimed_run = fixture.claim_one(worker).await;
    assert_eq!(claimed_run.run, run);
    claimed_run
}

async fn due(fixture: &StoreFixture) -> Vec<RunId> {
    let timers = fixture.harness.records.due_timers(9).await.expect("due timers");
    timers.into_iter().map(|timer| timer.run).collect()
}

/// Returns the runs whose wake-up timers are due, in the order of their ids.
async fn woken_runs(fixture: &StoreFixture) -> Vec<RunId> {
    let mut runs = due(fixture).await;
    runs.sort_unstable();
    runs
}

async fn queue(fixture: &StoreFixture, capacity: u32) -> SlotQueueLength {
    let records = &fixture.harness.records;
    records.wake_runs_for_free_slots("local", capacity).await.expect("queue")
}

async fn position(fixture: &StoreFixture, run: RunId) -> Option<u32> {
    fixture.harness.records.slot_queue_position(run).await.expect("position")
}
