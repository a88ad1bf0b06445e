//! What a repair finds when somebody made a mistake, and that it mends it.
//!
//! Never: finds anything after the other checks; each of them ends with a
//! repair that must find nothing.

use longhaul_core::change::{Change, SandboxRow, SandboxSlot, SandboxState};
use longhaul_core::port::records::Repairs;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, arm_timer, cancel_batch, change_batch, events_batch, gate_spec, park_batch,
    progress, raise_gate_batch,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, lane_key};

/// A run that waits for what can't come is made ready.
pub async fn runs_without_a_wake_up_are_repaired(world: StoreFixture) {
    let needy = [
        "approval",
        "question",
        "signal",
        "blocked",
        "timer",
        "retry",
        "rate_limit",
        "message",
        "sandbox_slot",
    ];
    for reason in needy {
        let mut held = world.open_and_claim(|_| {}).await;
        held.park(reason).await;
        let expected = Repairs { parked_without_waker: 1, ..Repairs::default() };
        assert_eq!(repair(&world).await, expected, "{reason}");
        world.assert_status(held.run, Status::Running, "worker").await;
        world.assert_consistent().await;
        world.claim_one(held.worker).await;
    }
}

/// A run that waits for a person, a child, a timer or a gate is left alone.
pub async fn valid_waits_are_not_repaired(world: StoreFixture) {
    for reason in ["budget", "child", "batch"] {
        world.open_and_claim(|_| {}).await.park(reason).await;
    }
    let mut held = world.open_and_claim(|_| {}).await;
    held.append_ok(raise_gate_batch(gate_spec(world.ids.gate()))).await;
    held.park("approval").await;
    let mut held = world.open_and_claim(|_| {}).await;
    let timer = arm_timer(world.ids.timer(), held.run, Millis(10));
    held.append_ok(park_batch("retry").with_change(timer)).await;
    let mut held = world.open_and_claim(|_| {}).await;
    let queues = Change::QueueForSlot("local".to_owned());
    held.append_ok(park_batch("sandbox_slot").with_change(queues)).await;
    world.advance(Millis(20));
    world.assert_consistent().await;
}

/// A run of a lane that is made ready again goes by its lane.
pub async fn a_repair_respects_lanes(world: StoreFixture) {
    let first = world.open_in_lane("a", 1).await;
    let worker = world.worker().await;
    let mut held = world.claim_one(worker).await;
    let lets_go = Change::SetHead(longhaul_core::change::HeadUpdate::Park {
        reason: "timer",
        blocked: false,
        release_lane: true,
    });
    held.append_ok(events_batch([progress(1)]).with_change(lets_go)).await;
    let second = world.open_in_lane("a", 1).await;
    assert_eq!(repair(&world).await.parked_without_waker, 1);
    world.assert_status(first[0], Status::Waiting, "lane").await;
    let lane = world.harness.records.lane(&lane_key("a")).await.expect("lane");
    assert_eq!(lane.map(|lane| (lane.head, lane.depth)), Some((Some(second[0]), 2)));
}

/// A seat whose sandbox does not run is freed, and the next one told.
pub async fn leaked_slots_are_released(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
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
        let sandbox = world.ids.sandbox();
        let row = SandboxRow {
            sandbox,
            provider: "local".to_owned(),
            handle: String::new(),
            state,
            host: None,
            owner: held.run,
        };
        let seat = SandboxSlot { sandbox, provider: "local".to_owned(), capacity: 1 };
        let batch = events_batch([progress(1)])
            .with_change(Change::SetSandbox(row))
            .with_change(Change::AcquireSlot(seat));
        held.append_ok(batch).await;
        assert_eq!(repair(&world).await.slot_leaked, leaked, "{state:?}");
        world.assert_consistent().await;
        assert_appended(&held.change(Change::ReleaseSlot(sandbox)).await);
    }
    let nowhere =
        SandboxSlot { sandbox: world.ids.sandbox(), provider: "local".to_owned(), capacity: 1 };
    assert_appended(&held.change(Change::AcquireSlot(nowhere)).await);
    assert_eq!(repair(&world).await.slot_leaked, 1, "there is no such sandbox");
}

/// A gate that an ended run left open is withdrawn.
pub async fn open_gates_of_ended_runs_are_withdrawn(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    held.append_ok(raise_gate_batch(gate_spec(world.ids.gate()))).await;
    held.append_ok(raise_gate_batch(gate_spec(world.ids.gate()))).await;
    held.park("approval").await;
    world.assert_consistent().await;
    assert_appended(&world.append_as_closer(held.run, held.last, cancel_batch()).await);
    assert_eq!(repair(&world).await.gate_of_ended, 2);
    assert_appended(
        &world
            .append_outside(held.run, change_batch(Change::ReleaseSlot(world.ids.sandbox())))
            .await,
    );
}

async fn repair(world: &StoreFixture) -> Repairs {
    world.harness.records.repair().await.expect("repair")
}
