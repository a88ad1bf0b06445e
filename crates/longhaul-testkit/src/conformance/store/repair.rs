//! What a repair finds when somebody made a mistake, and that it mends it.
//!
//! Never: finds anything after the other checks; each of them ends with a
//! repair that must find nothing.

use longhaul_core::change::{Change, SandboxRow, SandboxState, Seat};
use longhaul_core::port::shelves::Repairs;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;

use crate::conformance::store::facts::{
    And as _, arms, cancels, gate_spec, only, parks, progress, raises, says,
};
use crate::conformance::store::kit::{World, lane_key, stands};

/// A run that waits for what can't come is made ready.
pub async fn runs_that_nothing_can_wake_are_found(world: World) {
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
        let mut held = world.held(|_| {}).await;
        held.park(reason).await;
        let expected = Repairs {
            parked_for_ever: 1,
            ..Repairs::default()
        };
        assert_eq!(repair(&world).await, expected, "{reason}");
        world.is(held.run, Status::Running, "worker").await;
        world.is_in_order().await;
        world.take(held.worker).await;
    }
}

/// A run that waits for a person, a child, a timer or a gate is left alone.
pub async fn runs_that_wait_rightly_are_left_alone(world: World) {
    for reason in ["budget", "child", "batch"] {
        world.held(|_| {}).await.park(reason).await;
    }
    let mut held = world.held(|_| {}).await;
    held.write(raises(gate_spec(world.ids.gate()))).await;
    held.park("approval").await;
    let mut held = world.held(|_| {}).await;
    let timer = arms(world.ids.timer(), held.run, Millis(10));
    held.write(parks("retry").and(timer)).await;
    let mut held = world.held(|_| {}).await;
    let queues = Change::QueueSeat("local".to_owned());
    held.write(parks("sandbox_slot").and(queues)).await;
    world.pass(Millis(20));
    world.is_in_order().await;
}

/// A run of a lane that is made ready again goes by its lane.
pub async fn a_repair_heeds_lanes(world: World) {
    let first = world.open_in_lane("a", 1).await;
    let worker = world.worker().await;
    let mut held = world.take(worker).await;
    let lets_go = Change::SetHead(longhaul_core::change::HeadMove::Park {
        reason: "timer",
        blocked: false,
        release_lane: true,
    });
    held.write(says([progress(1)]).and(lets_go)).await;
    let second = world.open_in_lane("a", 1).await;
    assert_eq!(repair(&world).await.parked_for_ever, 1);
    world.is(first[0], Status::Waiting, "lane").await;
    let lane = world.at.shelves.lane(&lane_key("a")).await.expect("lane");
    assert_eq!(
        lane.map(|lane| (lane.head, lane.depth)),
        Some((Some(second[0]), 2))
    );
}

/// A seat whose sandbox does not run is freed, and the next one told.
pub async fn leaked_seats_are_freed(world: World) {
    let mut held = world.held(|_| {}).await;
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
        let seat = Seat {
            sandbox,
            provider: "local".to_owned(),
            seats: 1,
        };
        let batch = says([progress(1)])
            .and(Change::SetSandbox(row))
            .and(Change::TakeSeat(seat));
        held.write(batch).await;
        assert_eq!(repair(&world).await.seat_leaked, leaked, "{state:?}");
        world.is_in_order().await;
        stands(&held.change(Change::FreeSeat(sandbox)).await);
    }
    let nowhere = Seat {
        sandbox: world.ids.sandbox(),
        provider: "local".to_owned(),
        seats: 1,
    };
    stands(&held.change(Change::TakeSeat(nowhere)).await);
    assert_eq!(
        repair(&world).await.seat_leaked,
        1,
        "there is no such sandbox"
    );
}

/// A gate that an ended run left open is withdrawn.
pub async fn open_gates_of_ended_runs_are_withdrawn(world: World) {
    let mut held = world.held(|_| {}).await;
    held.write(raises(gate_spec(world.ids.gate()))).await;
    held.write(raises(gate_spec(world.ids.gate()))).await;
    held.park("approval").await;
    world.is_in_order().await;
    stands(&world.close(held.run, held.last, cancels()).await);
    assert_eq!(repair(&world).await.gate_of_ended, 2);
    stands(
        &world
            .tell(held.run, only(Change::FreeSeat(world.ids.sandbox())))
            .await,
    );
}

async fn repair(world: &World) -> Repairs {
    world.at.shelves.repair().await.expect("repair")
}
