//! The queue of a budget: runs that wait for the holds of other runs get the budget in the order in
//! which they began to wait.

use longhaul_core::change::{BudgetHoldSettlement, JournalBatch, RowChange};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, MicroUsd, RemainingBudget};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, change_batch, end_batch, events_batch, park_batch, pause_batch,
    resumed,
};
use crate::conformance::store::budget::{caps, child_of, hold_of, refusing_account};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, TTL, assert_appended};

/// A settlement wakes as many runs as fit, the first one first. A run that has not waited can't hold
/// what they need, whether they still wait or were woken.
pub async fn runs_hold_budget_in_the_order_of_their_waits(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(caps(100, 1_000)).await;
    let [mut newcomer, mut first, mut second, mut third] = [
        child_of(&root).await,
        child_of(&root).await,
        child_of(&root).await,
        child_of(&root).await,
    ];
    hold(&mut root, 90).await;
    // The order of the waits is not the order of the ids.
    third.append_ok(budget_wait_batch(60)).await;
    first.append_ok(budget_wait_batch(30)).await;
    second.append_ok(budget_wait_batch(20)).await;
    settle(&mut root, 50, 10).await;
    assert_waiting(&fixture, [&third, &first, &second]).await;
    assert_refused(&mut newcomer, 1, 0).await;
    fixture.assert_consistent().await;
    settle(&mut root, 40, 0).await;
    assert_woken(&fixture, [&third, &first]).await;
    assert_waiting(&fixture, [&second]).await;
    assert_refused(&mut root, 1, 0).await;
    let mut first = fixture.claim_one(root.worker).await;
    let mut third = fixture.claim_one(root.worker).await;
    hold(&mut first, 30).await;
    hold(&mut third, 60).await;
    assert_refused(&mut newcomer, 1, 0).await;
    settle(&mut third, 60, 30).await;
    let mut second = fixture.claim_one(root.worker).await;
    assert_refused(&mut newcomer, 11, 10).await;
    hold(&mut newcomer, 10).await;
    hold(&mut second, 20).await;
    fixture.assert_consistent().await;
}

/// A woken run that ends, pauses or waits for something else leaves the queue, and so does a parked
/// run that is cancelled. The next run is woken in the same append.
pub async fn a_run_that_needs_no_budget_leaves_the_queue(fixture: StoreFixture) {
    for batch in [end_batch(), pause_batch(), park_batch("child")] {
        let mut root = fixture.open_and_claim(caps(100, 1_000)).await;
        let [mut first, mut second] = [child_of(&root).await, child_of(&root).await];
        hold(&mut root, 90).await;
        first.append_ok(budget_wait_batch(60)).await;
        second.append_ok(budget_wait_batch(60)).await;
        settle(&mut root, 90, 0).await;
        let mut first = fixture.claim_one(root.worker).await;
        assert_waiting(&fixture, [&second]).await;
        first.append_ok(batch).await;
        let mut second = fixture.claim_one(root.worker).await;
        hold(&mut second, 60).await;
    }
    let mut root = fixture.open_and_claim(caps(100, 1_000)).await;
    let [mut first, mut second] = [child_of(&root).await, child_of(&root).await];
    hold(&mut root, 50).await;
    first.append_ok(budget_wait_batch(60)).await;
    second.append_ok(budget_wait_batch(50)).await;
    assert_waiting(&fixture, [&first, &second]).await;
    let cancelled = fixture.append_as_closer(first.run, first.last, cancel_batch()).await;
    assert_appended(&cancelled);
    assert_woken(&fixture, [&second]).await;
}

/// A woken run that holds less than it waited for leaves the rest to the next run.
pub async fn a_smaller_hold_wakes_the_next_run(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(caps(100, 1_000)).await;
    let [mut first, mut second] = [child_of(&root).await, child_of(&root).await];
    hold(&mut root, 90).await;
    first.append_ok(budget_wait_batch(60)).await;
    second.append_ok(budget_wait_batch(60)).await;
    settle(&mut root, 90, 0).await;
    let mut first = fixture.claim_one(root.worker).await;
    hold(&mut first, 40).await;
    assert_woken(&fixture, [&second]).await;
}

/// A woken run keeps its place if its worker dies or releases it, and if it has to wait again.
pub async fn a_woken_run_keeps_its_place(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(caps(100, 1_000)).await;
    let [mut first, mut second] = [child_of(&root).await, child_of(&root).await];
    hold(&mut root, 90).await;
    first.append_ok(budget_wait_batch(60)).await;
    second.append_ok(budget_wait_batch(50)).await;
    assert_appended(&fixture.append_outside(first.run, events_batch([resumed()])).await);
    let mut first = fixture.claim_one(root.worker).await;
    assert_refused(&mut first, 60, 10).await;
    first.append_ok(budget_wait_batch(70)).await;
    settle(&mut root, 90, 10).await;
    assert_waiting(&fixture, [&second]).await;
    fixture.claim_one(fixture.worker().await).await;
    fixture.advance(TTL);
    fixture.heartbeat(root.worker).await;
    fixture.advance(Millis(1));
    fixture.heartbeat(root.worker).await;
    fixture.assert_consistent().await;
    assert_refused(&mut root, 1, 0).await;
    let mut first = fixture.claim_one(root.worker).await;
    hold(&mut first, 70).await;
    assert_waiting(&fixture, [&second]).await;
}

/// A run whose amount can no longer fit is woken in its turn. A raise wakes the first run if it fits.
pub async fn a_spent_budget_and_a_raise_wake_the_first_run(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(caps(100, 1_000)).await;
    let [mut first, mut second] = [child_of(&root).await, child_of(&root).await];
    hold(&mut root, 80).await;
    first.append_ok(budget_wait_batch(40)).await;
    second.append_ok(budget_wait_batch(40)).await;
    raise(&root, 110).await;
    assert_waiting(&fixture, [&first, &second]).await;
    raise(&root, 120).await;
    assert_woken(&fixture, [&first]).await;
    assert_waiting(&fixture, [&second]).await;
    let mut first = fixture.claim_one(root.worker).await;
    hold(&mut first, 40).await;
    settle(&mut root, 10, 85).await;
    assert_woken(&fixture, [&second]).await;
}

/// A run that begins to wait after the hold was settled does not wait.
pub async fn a_run_that_waits_for_holds_too_late_is_woken(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(caps(100, 1_000)).await;
    claimed_run.append_ok(budget_wait_batch(100)).await;
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
    fixture.claim_one(claimed_run.worker).await;
}

async fn hold(run: &mut ClaimedRun, micros: u64) {
    assert_appended(&run.change(RowChange::Hold(hold_of(micros, 0).into())).await);
}

async fn settle(run: &mut ClaimedRun, held: u64, spent: u64) {
    let (held, spent) = (hold_of(held, 0), hold_of(spent, 0));
    let settlement = BudgetHoldSettlement { held, spent, lost: BudgetAmount::default() };
    assert_appended(&run.change(RowChange::Settle(settlement)).await);
}

async fn raise(root: &ClaimedRun, micros: u64) {
    let raise = BudgetRaise { micro_usd: Some(MicroUsd(micros)), ..BudgetRaise::default() };
    let batch = change_batch(RowChange::RaiseBudget(raise));
    assert_appended(&root.fixture.append_outside(root.run, batch).await);
}

/// Checks that a hold is refused, and how much the run could hold instead.
async fn assert_refused(run: &mut ClaimedRun, micros: u64, unreserved: u64) {
    let account = refusing_account(run.change(RowChange::Hold(hold_of(micros, 0).into())).await);
    let unreserved = RemainingBudget { micro_usd: Some(MicroUsd(unreserved)), tokens: Some(1_000) };
    assert_eq!(account.unreserved_budget(), unreserved);
}

async fn assert_waiting<const N: usize>(fixture: &StoreFixture, runs: [&ClaimedRun; N]) {
    for run in runs {
        fixture.assert_status(run.run, Status::Waiting, "budget_held").await;
    }
}

async fn assert_woken<const N: usize>(fixture: &StoreFixture, runs: [&ClaimedRun; N]) {
    for run in runs {
        fixture.assert_status(run.run, Status::Running, "worker").await;
    }
}

/// Returns the batch that parks a run until other runs release what they hold.
pub(super) fn budget_wait_batch(micros: u64) -> JournalBatch {
    park_batch("budget_held").with_change(RowChange::WaitForHolds(hold_of(micros, 0)))
}
