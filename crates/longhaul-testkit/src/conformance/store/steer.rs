//! Messages for a run: bounded, in order, settled once.
//!
//! Never: when they are read; the heart decides that.

use longhaul_core::change::{Change, STEERS_MAX, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::port::store::Refused;
use longhaul_core::status::Status;

use crate::conformance::store::batches::{change_batch, steer_batch};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, refused};

/// Messages stand in the order of their arrival and wake a parked run.
pub async fn messages_wait_in_order(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    held.park("child").await;
    let mut expected = Vec::new();
    for text in ["first", "second", "third"] {
        // Younger ids first: the order is the arrival's, not the id's.
        let steer = SteerId::from_bits(u128::MAX - world.ids.next_bits());
        assert_appended(&world.append_outside(held.run, steer_batch(steer, text)).await);
        expected.push(text);
    }
    world.assert_status(held.run, Status::Running, "worker").await;
    let rows = rows(&world, held.run).await;
    let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
    assert_eq!(texts, expected);
    assert!(rows.iter().all(|row| row.status == SteerStatus::Queued));
    let other = world.open(|_| {}).await;
    assert_eq!(self::rows(&world, other).await, []);
}

/// So many may wait; what is settled makes room.
pub async fn waiting_messages_are_limited(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let ids: Vec<SteerId> = (0..STEERS_MAX).map(|_| world.ids.steer()).collect();
    for steer in &ids {
        assert_appended(&world.append_outside(held.run, steer_batch(*steer, "hello")).await);
    }
    let full = world.append_outside(held.run, steer_batch(world.ids.steer(), "one more")).await;
    assert_eq!(refused(full), Refused::SteersFull);
    held.last = world.row(held.run).await.last_seq;
    assert_eq!(held.last.0, 2 + STEERS_MAX as u64, "nothing was written");
    let delivered = SteerStatus::Delivered { after_turn: 1 };
    assert_appended(&held.change(settle_steer(ids[0], delivered)).await);
    assert_appended(
        &world.append_outside(held.run, steer_batch(world.ids.steer(), "one more")).await,
    );
    assert_eq!(rows(&world, held.run).await.len(), STEERS_MAX + 1);
}

/// A message is settled once: what was read can't be taken back.
pub async fn a_message_is_settled_once(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    let steer = world.ids.steer();
    assert_appended(&world.append_outside(run, steer_batch(steer, "hello")).await);
    let changed = Change::UpdateSteer(SteerUpdate {
        steer,
        edit: Some(("goodbye".to_owned(), Delivery::FollowUp)),
        status: SteerStatus::Queued,
    });
    assert_appended(&world.append_outside(run, change_batch(changed.clone())).await);
    let row = rows(&world, run).await.remove(0);
    assert_eq!((row.text.as_str(), row.delivery), ("goodbye", Delivery::FollowUp));
    let delivered = SteerStatus::Delivered { after_turn: 3 };
    assert_appended(
        &world.append_outside(run, change_batch(settle_steer(steer, delivered.clone()))).await,
    );
    for late in [settle_steer(steer, SteerStatus::Withdrawn), changed] {
        let told = world.append_outside(run, change_batch(late)).await;
        assert_eq!(refused(told), Refused::SteerSettled);
    }
    let row = rows(&world, run).await.remove(0);
    assert_eq!((row.text.as_str(), row.status), ("goodbye", delivered));
    let unknown = settle_steer(world.ids.steer(), SteerStatus::Withdrawn);
    let told = world.append_outside(run, change_batch(unknown)).await;
    assert_eq!(refused(told), Refused::SteerSettled);
}

fn settle_steer(steer: SteerId, status: SteerStatus) -> Change {
    Change::UpdateSteer(SteerUpdate { steer, edit: None, status })
}

async fn rows(world: &StoreFixture, run: RunId) -> Vec<SteerRow> {
    world.harness.records.steers(run).await.expect("steers")
}
