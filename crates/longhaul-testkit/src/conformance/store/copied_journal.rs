//! Runs that start with the events of another run.

use longhaul_core::change::{
    Blob, BudgetHoldSettlement, JournalPrefixCopy, NewRun, RowChange, RunSchedulingUpdate,
    SteerRow, SteerStatus,
};
use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::event::run::{ForkKind, RunFailed, RunForked};
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::id::{Epoch, RunId, Seq};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::port::store::{
    AppendRefusalReason, CreateRunsRequest, JournalReadRequest, PruneRequest,
};
use longhaul_core::status::{RunError, Status};
use longhaul_core::task::{RetriedRun, TaskSpec};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_core::usage::{BudgetAmount, MicroUsd};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, change_batch, events_batch, park_batch, progress,
};
use crate::conformance::store::budget::child_of;
use crate::conformance::store::budget_queue::budget_wait_batch;
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

/// The copied events keep their numbers, times and epochs, and the retry itself starts unclaimed.
pub async fn a_retry_starts_with_a_copied_journal(fixture: StoreFixture) {
    let mut failed = fixture.open_and_claim(|_| {}).await;
    let long = Event::ProgressReported(ProgressReported { percent: 7, message: "x".repeat(9_000) });
    let at = fixture.harness.clock.now();
    let blob = Blob::new(b"a long result".to_vec());
    let batch = events_batch([progress(1), long.clone()]);
    failed.append_ok(batch.with_change(RowChange::PutBlob(blob.clone()))).await;
    fixture.advance(Millis(5));
    let through = failed.last;
    fail(&mut failed).await;
    let mut new = retry_of(&fixture, failed.run, |_| {});
    copy(&mut new, failed.run, through);
    let message = SteerMessage {
        steer: fixture.ids.steer(),
        text: "Go on.".to_owned(),
        delivery: SteerDelivery::AfterBatch,
        by: "cli:anna".to_owned(),
        is_task: true,
    };
    new.steers.push(SteerRow {
        steer: message.steer,
        text: message.text.clone(),
        delivery: message.delivery,
        by: message.by.clone(),
        status: SteerStatus::Queued,
    });
    new.events.push(Event::SteerQueued(message));
    let (retry, steers, last) = (new.id, new.steers.clone(), new.last_seq());
    fixture.open_runs(vec![new]).await;
    let expected =
        ["run.created", "run.claimed", "progress.reported", "progress.reported", "run.forked"];
    assert_eq!(fixture.kinds(retry).await[..5], expected);
    let request = JournalReadRequest { run: retry, after: Seq(1), limit: 3 };
    let page = fixture.harness.store.read_journal(request).await.expect("read");
    assert_eq!((page.last_seq, page.entries[2].seq), (last, through));
    assert_eq!((page.entries[2].at, page.entries[2].epoch), (at, failed.epoch));
    assert_eq!((page.entries[2].run, &page.entries[2].event), (retry, &long));
    let records = &fixture.harness.records;
    assert_eq!(records.queued_steer_messages(retry).await.expect("steers"), steers);
    fixture.assert_status(retry, Status::Pending, "worker").await;
    // Blobs live as long as the retry.
    fixture.advance(Millis(100));
    let request =
        PruneRequest { runs_older_than: Millis::ZERO, blobs_older_than: Millis::ZERO, limit: 10 };
    assert_eq!(fixture.harness.store.prune_old_data(request).await.expect("prune").runs, 1);
    assert!(records.blob(blob.hash()).await.expect("blob").is_some());
    assert_eq!(fixture.journal(retry).await[3], long);
    let mut claimed = fixture.claim_one(failed.worker).await;
    assert_eq!((claimed.run, claimed.epoch, claimed.last), (retry, Epoch(1), last.next()));
    claimed.append_ok(events_batch([progress(2)])).await;
    fixture.assert_consistent().await;
}

/// A journal that is no longer complete is not copied, and no run is created.
pub async fn an_incomplete_journal_is_not_copied(fixture: StoreFixture) {
    let mut failed = fixture.open_and_claim(|_| {}).await;
    fail(&mut failed).await;
    let mut new = retry_of(&fixture, failed.run, |_| {});
    copy(&mut new, failed.run, Seq(40));
    let id = new.id;
    let request = CreateRunsRequest { runs: vec![new], blobs: Vec::new(), idempotency: None };
    fixture.harness.store.create_runs(request).await.expect_err("the journal has 3 events");
    assert_eq!(fixture.harness.store.get_run(id).await.expect("row"), None);
}

/// Retries and their descendants use the account of the first run, also after it was deleted.
pub async fn retries_share_the_account_of_the_first_run(fixture: StoreFixture) {
    let capped = |task: &mut TaskSpec| task.policy.budget.micro_usd = Some(MicroUsd(100));
    let mut first = fixture.open_and_claim(capped).await;
    assert_appended(&first.change(RowChange::Hold(money(60).into())).await);
    fail(&mut first).await;
    let second = retry_of(&fixture, first.run, capped);
    fixture.open_runs(vec![second]).await;
    let mut second = fixture.claim_one(first.worker).await;
    let reason = refused(second.change(RowChange::Hold(money(50).into())).await);
    assert!(
        matches!(reason, AppendRefusalReason::OverBudget(account) if account.unreserved_budget().micro_usd == Some(MicroUsd(40)))
    );
    let child = fixture.new_run(|task| {
        task.root = second.run;
        task.parent = Some(second.run);
    });
    assert_appended(&second.change(RowChange::CreateRun(Box::new(child))).await);
    let mut child = fixture.claim_one(first.worker).await;
    assert_appended(&child.change(RowChange::Hold(money(30).into())).await);
    assert_eq!(held(&fixture, first.run).await, Some(money(90)));
    assert_eq!(held(&fixture, second.run).await, Some(money(90)));
    assert_eq!(held(&fixture, child.run).await, None, "only a root has an account");
    let raise = BudgetRaise { micro_usd: Some(MicroUsd(200)), ..BudgetRaise::default() };
    assert_appended(
        &fixture.append_outside(second.run, change_batch(RowChange::RaiseBudget(raise))).await,
    );
    assert_appended(&second.change(RowChange::Hold(money(50).into())).await);
    // The first run is deleted, and a retry of its retry still has the same account.
    fixture.advance(Millis(10));
    prune(&fixture).await;
    assert_eq!(fixture.harness.store.get_run(first.run).await.expect("row"), None);
    assert_eq!(held(&fixture, second.run).await, Some(money(140)));
    child.append_ok(failed_batch()).await;
    fail(&mut second).await;
    let mut third = retry_of(&fixture, second.run, capped);
    if let Some(retried) = &mut third.task.retry_of {
        retried.first = Some(first.run);
    }
    let third_id = third.id;
    fixture.open_runs(vec![third]).await;
    fixture.advance(Millis(10));
    prune(&fixture).await;
    assert_eq!(fixture.harness.store.get_run(second.run).await.expect("row"), None);
    assert_eq!(held(&fixture, third_id).await, Some(money(140)));
    assert_appended(&fixture.append_as_closer(third_id, Seq(1), cancel_batch()).await);
    fixture.open(|_| {}).await;
    fixture.advance(Millis(10));
    prune(&fixture).await;
    assert_eq!(held(&fixture, first.run).await, None, "nobody uses the account any more");
}

/// A retry shares the budget with the kept children of the failed run. Their places in the queue of
/// the budget don't stop the runs of the retry, because it may be that nobody drives them. A raise of
/// the retry wakes those that wait for a higher budget.
pub async fn a_retry_does_not_wait_for_kept_children(fixture: StoreFixture) {
    let capped = |task: &mut TaskSpec| task.policy.budget.micro_usd = Some(MicroUsd(100));
    let mut first = fixture.open_and_claim(capped).await;
    let [mut woken, mut parked, mut exhausted] =
        [child_of(&first).await, child_of(&first).await, child_of(&first).await];
    fail(&mut first).await;
    fixture.open_runs(vec![retry_of(&fixture, first.run, capped)]).await;
    let mut retry = fixture.claim_one(first.worker).await;
    let mut child = child_of(&retry).await;
    assert_appended(&retry.change(RowChange::Hold(money(90).into())).await);
    woken.append_ok(budget_wait_batch(60)).await;
    parked.append_ok(budget_wait_batch(60)).await;
    child.append_ok(budget_wait_batch(50)).await;
    let settlement = BudgetHoldSettlement { held: money(90), spent: money(0), lost: money(0) };
    assert_appended(&retry.change(RowChange::Settle(settlement)).await);
    for (run, status) in
        [(&woken, Status::Running), (&parked, Status::Waiting), (&child, Status::Running)]
    {
        assert_eq!(fixture.row(run.run).await.status, status, "{}", run.run);
    }
    assert_appended(&retry.change(RowChange::Hold(money(50).into())).await);
    exhausted.append_ok(park_batch("budget")).await;
    let raise = BudgetRaise { micro_usd: Some(MicroUsd(200)), ..BudgetRaise::default() };
    assert_appended(
        &fixture.append_outside(retry.run, change_batch(RowChange::RaiseBudget(raise))).await,
    );
    fixture.assert_status(exhausted.run, Status::Running, "worker").await;
    fixture.assert_consistent().await;
}

fn retry_of(fixture: &StoreFixture, failed: RunId, change: impl FnOnce(&mut TaskSpec)) -> NewRun {
    fixture.new_run(|task| {
        task.retry_of = Some(RetriedRun { run: failed, attempts: 1, first: None });
        change(task);
    })
}

fn copy(new: &mut NewRun, from: RunId, through: Seq) {
    new.copied_journal = Some(JournalPrefixCopy { from, through });
    let kind = ForkKind::Retry;
    let forked = RunForked { from, through, kind, drops_approvals: true, ..RunForked::default() };
    new.events.push(Event::RunForked(forked));
}

fn failed_batch() -> longhaul_core::change::JournalBatch {
    let error = RunError::new("auth", "refused", "");
    let end = RunSchedulingUpdate::End {
        status: Status::Failed,
        code: Some("auth".to_owned()),
        releases_lane: true,
    };
    events_batch([Event::RunFailed(RunFailed { error })])
        .with_change(RowChange::UpdateScheduling(end))
}

async fn fail(claimed: &mut ClaimedRun) {
    claimed.append_ok(failed_batch()).await;
}

async fn prune(fixture: &StoreFixture) {
    let request =
        PruneRequest { runs_older_than: Millis::ZERO, blobs_older_than: Millis::ZERO, limit: 10 };
    fixture.harness.store.prune_old_data(request).await.expect("prune");
}

async fn held(fixture: &StoreFixture, root: RunId) -> Option<BudgetAmount> {
    let account = fixture.harness.records.budget_account(root).await.expect("account");
    account.map(|account| account.held)
}

const fn money(micros: u64) -> BudgetAmount {
    BudgetAmount { micro_usd: MicroUsd(micros), tokens: 0 }
}
