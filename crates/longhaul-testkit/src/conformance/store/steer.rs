//! Messages to a run: limited, in order, settled once. The state machine decides when they are
//! read.

use longhaul_core::change::{RowChange, STEERS_MAX, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::status::Status;

use crate::conformance::store::batches::{change_batch, steer_batch};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, refused};

/// Messages are stored in order of arrival and wake a parked run.
pub async fn messages_wait_in_order(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.park("child").await;
    let mut expected = Vec::new();
    for text in ["first", "second", "third"] {
        // The ids decrease, because the order must follow the arrival and not the ids.
        let steer = SteerId::from_bits(u128::MAX - fixture.ids.next_bits());
        assert_appended(&fixture.append_outside(claimed_run.run, steer_batch(steer, text)).await);
        expected.push(text);
    }
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
    let rows = rows(&fixture, claimed_run.run).await;
    let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
    assert_eq!(texts, expected);
    assert!(rows.iter().all(|row| row.status == SteerStatus::Queued));
    let other = fixture.open(|_| {}).await;
    assert_eq!(self::rows(&fixture, other).await, []);
}

/// The number of waiting messages is limited; a settled message no longer counts.
pub async fn waiting_messages_are_limited(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let ids: Vec<SteerId> = (0..STEERS_MAX).map(|_| fixture.ids.steer()).collect();
    for steer in &ids {
        assert_appended(
            &fixture.append_outside(claimed_run.run, steer_batch(*steer, "hello")).await,
        );
    }
    let result =
        fixture.append_outside(claimed_run.run, steer_batch(fixture.ids.steer(), "one more")).await;
    assert_eq!(refused(result), AppendRefusalReason::SteersFull);
    claimed_run.last = fixture.row(claimed_run.run).await.last_seq;
    assert_eq!(claimed_run.last.0, 2 + STEERS_MAX as u64, "no event was appended");
    let delivered = SteerStatus::Delivered { after_turn: 1 };
    assert_appended(&claimed_run.change(settle_steer(ids[0], delivered)).await);
    assert_appended(
        &fixture
            .append_outside(claimed_run.run, steer_batch(fixture.ids.steer(), "one more"))
            .await,
    );
    assert_eq!(rows(&fixture, claimed_run.run).await.len(), STEERS_MAX + 1);
}

/// A message is settled once: after it was read it can't be withdrawn.
pub async fn a_message_is_settled_once(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    let steer = fixture.ids.steer();
    assert_appended(&fixture.append_outside(run, steer_batch(steer, "hello")).await);
    let update = RowChange::UpdateSteer(SteerUpdate {
        steer,
        edit: Some(("goodbye".to_owned(), SteerDelivery::FollowUp)),
        status: SteerStatus::Queued,
    });
    assert_appended(&fixture.append_outside(run, change_batch(update.clone())).await);
    let row = rows(&fixture, run).await.remove(0);
    assert_eq!((row.text.as_str(), row.delivery), ("goodbye", SteerDelivery::FollowUp));
    let delivered = SteerStatus::Delivered { after_turn: 3 };
    assert_appended(
        &fixture.append_outside(run, change_batch(settle_steer(steer, delivered.clone()))).await,
    );
    for change in [settle_steer(steer, SteerStatus::Withdrawn), update] {
        let appended = fixture.append_outside(run, change_batch(change)).await;
        assert_eq!(refused(appended), AppendRefusalReason::SteerSettled);
    }
    let row = rows(&fixture, run).await.remove(0);
    assert_eq!((row.text.as_str(), row.status), ("goodbye", delivered));
    let unknown = settle_steer(fixture.ids.steer(), SteerStatus::Withdrawn);
    let appended = fixture.append_outside(run, change_batch(unknown)).await;
    assert_eq!(refused(appended), AppendRefusalReason::SteerSettled);
}

fn settle_steer(steer: SteerId, status: SteerStatus) -> RowChange {
    RowChange::UpdateSteer(SteerUpdate { steer, edit: None, status })
}

async fn rows(fixture: &StoreFixture, run: RunId) -> Vec<SteerRow> {
    fixture.harness.records.queued_steer_messages(run).await.expect("steers")
}
