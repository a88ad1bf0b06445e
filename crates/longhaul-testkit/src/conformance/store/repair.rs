//! Repairs of rows that were made inconsistent on purpose. After every other check, a repair
//! must find nothing.

use longhaul_core::change::{RowChange, SandboxSlot, SandboxState};
use longhaul_core::id::CallId;
use longhaul_core::policy::effect_key::{EffectKeyChange, EffectKeyClaim, EffectKeyHolder};
use longhaul_core::port::records::RepairedRowCounts;
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, arm_timer, cancel_batch, change_batch, events_batch, gate_spec, park_batch,
    progress, raise_gate_batch, sandbox_row,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, lane_key};

/// A run that waits for something impossible is made ready.
pub async fn runs_without_a_wake_up_are_repaired(fixture: StoreFixture) {
    let reasons = [
        "approval",
        "question",
        "signal",
        "blocked",
        "timer",
        "retry",
        "rate_limit",
        "outage",
        "tool",
        "message",
        "sandbox_slot",
        "budget_held",
        "key",
    ];
    for reason in reasons {
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.park(reason).await;
        let expected =
            RepairedRowCounts { parked_without_waker: 1, ..RepairedRowCounts::default() };
        assert_eq!(repair(&fixture).await, expected, "{reason}");
        fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
        fixture.assert_consistent().await;
        fixture.claim_one(claimed_run.worker).await;
    }
}

/// A run that waits for a person, a child run, a timer or a gate is not repaired.
pub async fn valid_waits_are_not_repaired(fixture: StoreFixture) {
    for reason in ["budget", "child", "batch"] {
        fixture.open_and_claim(|_| {}).await.park(reason).await;
    }
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.append_ok(raise_gate_batch(gate_spec(fixture.ids.gate()))).await;
    claimed_run.park("approval").await;
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let timer = arm_timer(fixture.ids.timer(), claimed_run.run, Millis(10));
    claimed_run.append_ok(park_batch("retry").with_change(timer)).await;
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let queue_for_slot = RowChange::QueueForSlot("local".to_owned());
    claimed_run.append_ok(park_batch("sandbox_slot").with_change(queue_for_slot)).await;
    fixture.advance(Millis(20));
    fixture.assert_consistent().await;
    let [mut holder, mut claimed_run] =
        [fixture.open_and_claim(|_| {}).await, fixture.open_and_claim(|_| {}).await];
    wait_for_key_of(&mut holder, &mut claimed_run).await;
    fixture.assert_consistent().await;
}

/// Makes `waiting` wait for an effect key that `holder` claims.
pub async fn wait_for_key_of(holder: &mut ClaimedRun, waiting: &mut ClaimedRun) {
    let call = EffectKeyHolder { run: holder.run, call: CallId { turn: 1, index: 1 } };
    let key = Hash::digest(b"invoice:18");
    let claim = EffectKeyChange::Claim(EffectKeyClaim { key, holder: call, replaces: None });
    holder.append_ok(change_batch(RowChange::UpdateKey(claim))).await;
    let wait = RowChange::UpdateKey(EffectKeyChange::Wait { key, holder: call });
    waiting.append_ok(park_batch("key").with_change(wait)).await;
}

/// A run of a lane that is made ready still waits for its turn in the lane.
pub async fn a_repair_respects_lanes(fixture: StoreFixture) {
    let first = fixture.open_in_lane("a", 1).await;
    let worker = fixture.worker().await;
    let mut claimed_run = fixture.claim_one(worker).await;
    let park = RowChange::UpdateScheduling(longhaul_core::change::RunSchedulingUpdate::Park {
        reason: "timer",
        blocked: false,
        release_lane: true,
    });
    claimed_run.append_ok(events_batch([progress(1)]).with_change(park)).await;
    let second = fixture.open_in_lane("a", 1).await;
    assert_eq!(repair(&fixture).await.parked_without_waker, 1);
    fixture.assert_status(first[0], Status::Waiting, "lane").await;
    let lane = fixture.harness.records.find_lane(&lane_key("a")).await.expect("lane");
    assert_eq!(lane.map(|lane| (lane.holder, lane.depth)), Some((Some(second[0]), 2)));
}

/// A slot whose sandbox is not running is released, and the next run is woken.
pub async fn leaked_slots_are_released(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let states = [
        (SandboxState::Creating, 0),
        (SandboxState::Starting, 0),
        (SandboxState::Running, 0),
        (SandboxState::Stopping, 0),
        (SandboxState::Stopped, 1),
        (SandboxState::Deleted, 1),
        (SandboxState::Lost, 1),
    ];
    for (state, leaked) in states {
        let sandbox = fixture.ids.sandbox();
        let row = sandbox_row(sandbox, state, claimed_run.run);
        let slot = SandboxSlot { sandbox, provider: "local".to_owned(), capacity: 1 };
        let batch = events_batch([progress(1)])
            .with_change(RowChange::SetSandbox(row))
            .with_change(RowChange::AcquireSlot(slot));
        claimed_run.append_ok(batch).await;
        assert_eq!(repair(&fixture).await.slot_leaked, leaked, "{state:?}");
        fixture.assert_consistent().await;
        assert_appended(&claimed_run.change(RowChange::ReleaseSlot(sandbox)).await);
    }
    let slot_without_sandbox =
        SandboxSlot { sandbox: fixture.ids.sandbox(), provider: "local".to_owned(), capacity: 1 };
    assert_appended(&claimed_run.change(RowChange::AcquireSlot(slot_without_sandbox)).await);
    assert_eq!(repair(&fixture).await.slot_leaked, 1, "the sandbox does not exist");
}

pub async fn open_gates_of_ended_runs_are_withdrawn(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.append_ok(raise_gate_batch(gate_spec(fixture.ids.gate()))).await;
    claimed_run.append_ok(raise_gate_batch(gate_spec(fixture.ids.gate()))).await;
    claimed_run.park("approval").await;
    fixture.assert_consistent().await;
    assert_appended(
        &fixture.append_as_closer(claimed_run.run, claimed_run.last, cancel_batch()).await,
    );
    assert_eq!(repair(&fixture).await.gate_of_ended, 2);
    assert_appended(
        &fixture
            .append_outside(
                claimed_run.run,
                change_batch(RowChange::ReleaseSlot(fixture.ids.sandbox())),
            )
            .await,
    );
}

async fn repair(fixture: &StoreFixture) -> RepairedRowCounts {
    fixture.harness.records.repair_inconsistent_rows().await.expect("repair")
}
