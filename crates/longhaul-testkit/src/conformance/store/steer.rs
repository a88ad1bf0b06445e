//! Messages for a run: bounded, in order, settled once.
//!
//! Never: when they are read; the heart decides that.

use longhaul_core::change::{Change, STEERS_MAX, SteerMove, SteerRow, SteerStatus};
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::port::store::Refused;
use longhaul_core::status::Status;

use crate::conformance::store::facts::{only, steers};
use crate::conformance::store::kit::{World, refused, stands};

/// Messages stand in the order of their arrival and wake a parked run.
pub async fn messages_wait_in_order(world: World) {
    let mut held = world.held(|_| {}).await;
    held.park("child").await;
    let mut expected = Vec::new();
    for text in ["first", "second", "third"] {
        // Younger ids first: the order is the arrival's, not the id's.
        let steer = SteerId::from_bits(u128::MAX - world.ids.bits());
        stands(&world.tell(held.run, steers(steer, text)).await);
        expected.push(text);
    }
    world.is(held.run, Status::Running, "worker").await;
    let rows = rows(&world, held.run).await;
    let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
    assert_eq!(texts, expected);
    assert!(rows.iter().all(|row| row.status == SteerStatus::Queued));
    let other = world.open(|_| {}).await;
    assert_eq!(self::rows(&world, other).await, []);
}

/// So many may wait; what is settled makes room.
pub async fn so_many_messages_may_wait(world: World) {
    let mut held = world.held(|_| {}).await;
    let ids: Vec<SteerId> = (0..STEERS_MAX).map(|_| world.ids.steer()).collect();
    for steer in &ids {
        stands(&world.tell(held.run, steers(*steer, "hello")).await);
    }
    let full = world
        .tell(held.run, steers(world.ids.steer(), "one more"))
        .await;
    assert_eq!(refused(full), Refused::SteersFull);
    held.last = world.row(held.run).await.last;
    assert_eq!(held.last.0, 2 + STEERS_MAX as u64, "nothing was written");
    let delivered = SteerStatus::Delivered { after_turn: 1 };
    stands(&held.change(settles(ids[0], delivered)).await);
    stands(
        &world
            .tell(held.run, steers(world.ids.steer(), "one more"))
            .await,
    );
    assert_eq!(rows(&world, held.run).await.len(), STEERS_MAX + 1);
}

/// A message is settled once: what was read can't be taken back.
pub async fn a_message_is_settled_once(world: World) {
    let run = world.open(|_| {}).await;
    let steer = world.ids.steer();
    stands(&world.tell(run, steers(steer, "hello")).await);
    let changed = Change::ChangeSteer(SteerMove {
        steer,
        words: Some(("goodbye".to_owned(), Delivery::FollowUp)),
        status: SteerStatus::Queued,
    });
    stands(&world.tell(run, only(changed.clone())).await);
    let row = rows(&world, run).await.remove(0);
    assert_eq!(
        (row.text.as_str(), row.delivery),
        ("goodbye", Delivery::FollowUp)
    );
    let delivered = SteerStatus::Delivered { after_turn: 3 };
    stands(
        &world
            .tell(run, only(settles(steer, delivered.clone())))
            .await,
    );
    for late in [settles(steer, SteerStatus::Withdrawn), changed] {
        let told = world.tell(run, only(late)).await;
        assert_eq!(refused(told), Refused::SteerSettled);
    }
    let row = rows(&world, run).await.remove(0);
    assert_eq!((row.text.as_str(), row.status), ("goodbye", delivered));
    let unknown = settles(world.ids.steer(), SteerStatus::Withdrawn);
    let told = world.tell(run, only(unknown)).await;
    assert_eq!(refused(told), Refused::SteerSettled);
}

fn settles(steer: SteerId, status: SteerStatus) -> Change {
    Change::ChangeSteer(SteerMove {
        steer,
        words: None,
        status,
    })
}

async fn rows(world: &World, run: RunId) -> Vec<SteerRow> {
    world.at.shelves.steers(run).await.expect("steers")
}
