//! Spend caps: parallel runs never exceed a limit, a hold is settled in the window that it was made
//! in, and waiting runs are woken when their amounts fit.

use longhaul_core::change::{NewRun, RowChange, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::policy::spend_cap::{
    CapCounterKey, CapCounterRow, CapHold, CapLimitChange, CapReservation, CapSettlement, CapUnit,
    CapWaitRow, CapWindowRange, SPEND_TTL,
};
use longhaul_core::port::store::{
    AppendRefusalReason, AppendResult, CreateRunsOutcome, PruneRequest,
};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_core::usage::{BudgetAmount, MicroUsd};
use tokio::task::{JoinSet, yield_now};

use crate::conformance::store::batches::{
    BatchExt as _, events_batch, park_head, progress, resumed,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

const WINDOW: Millis = Millis::from_secs(24 * 60 * 60);
const LIMIT: u64 = 100;

/// Amounts are held, spent and lost by cap, subject and window. A settlement after the end of the
/// window, such as that of a request over midnight or of a crashed driver, counts in the old window.
/// A clock that is set back finds the old count.
pub async fn amounts_are_held_and_settled_by_window(fixture: StoreFixture) {
    let mut run = fixture.open_and_claim(|_| {}).await;
    let first = current_period(&fixture);
    let (anna, bert) = (reservation(first, "anna", 60), reservation(first, "bert", 10));
    assert_appended(&hold(&mut run, &[&anna, &bert]).await);
    let held = |one: &CapReservation| CapCounterRow { held: one.hold.amount, ..new_row(one) };
    assert_eq!(rows(&fixture).await, [held(&anna), held(&bert)]);
    fixture.advance(WINDOW);
    let later = reservation(current_period(&fixture), "anna", 100);
    assert_appended(&hold(&mut run, &[&later]).await);
    settle(&mut run, &anna, (20, 5)).await;
    assert_eq!(rows(&fixture).await, [held(&later)], "only the current window is listed");
    fixture.harness.clock.set(first.start);
    let settled = CapCounterRow { spent: 20, lost: 5, ..new_row(&anna) };
    assert_eq!(rows(&fixture).await, [settled.clone(), held(&bert)]);
    let excessive = reservation(first, "anna", 76);
    let refusal = AppendRefusalReason::OverCap(Box::new(settled.refusal()));
    assert_eq!(refused(hold(&mut run, &[&excessive]).await), refusal);
    assert_eq!(settled.refusal().left, 75, "lost amounts count");
}

/// If one of several amounts does not fit, nothing of the batch is written.
pub async fn a_hold_that_does_not_fit_holds_nothing(fixture: StoreFixture) {
    let mut run = fixture.open_and_claim(|_| {}).await;
    let period = current_period(&fixture);
    let (fits, too_much) = (reservation(period, "anna", 1), reservation(period, "bert", 101));
    let batch = events_batch([progress(1)])
        .with_change(RowChange::Hold(BudgetAmount { micro_usd: MicroUsd(1), tokens: 1 }.into()))
        .with_change(RowChange::HoldCaps(vec![fits, too_much.clone()]));
    let refusal = new_row(&too_much).refusal();
    let reason = refused(run.append(batch).await);
    assert_eq!(reason, AppendRefusalReason::OverCap(Box::new(refusal)));
    assert_eq!(rows(&fixture).await, []);
    let account = fixture.harness.records.budget_account(run.run).await.expect("account");
    assert_eq!(account.map(|account| account.held), Some(BudgetAmount::default()));
}

/// A driver whose time is outdated can't hold an amount in a window that has ended or not begun.
pub async fn a_hold_is_bound_to_the_current_window(fixture: StoreFixture) {
    let mut run = fixture.open_and_claim(|_| {}).await;
    let period = current_period(&fixture);
    fixture.advance(WINDOW);
    let reason = refused(hold(&mut run, &[&reservation(period, "anna", 1)]).await);
    assert_eq!(reason, AppendRefusalReason::CapWindowPassed);
    let next = CapWindowRange { start: period.end.plus(WINDOW), end: period.end.plus(WINDOW) };
    let reason = refused(hold(&mut run, &[&reservation(next, "anna", 1)]).await);
    assert_eq!(reason, AppendRefusalReason::CapWindowPassed);
}

/// When held amounts are released, the runs whose amounts fit are woken, the longest waiting first.
/// Runs that have ended or continue are not woken and do not count.
pub async fn a_settlement_wakes_runs_whose_amounts_fit(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    for _ in 0..6 {
        fixture.open(|_| {}).await;
    }
    let mut runs = claim_all(&fixture, worker).await;
    let period = current_period(&fixture);
    let held = reservation(period, "anna", 100);
    let mut holder = runs.pop().expect("a run");
    assert_appended(&hold(&mut holder, &[&held]).await);
    let mut timers = Vec::new();
    for (run, amount) in runs.iter_mut().zip([50, 90, 30, 30, 20]) {
        timers.push(wait(run, &reservation(period, "anna", amount)).await);
        fixture.advance(Millis(1));
    }
    assert_eq!(rows(&fixture).await[0].waiting, 5);
    // The first run is woken by somebody else and continues.
    fixture.append_outside(runs[0].run, events_batch([resumed()])).await;
    assert_eq!(rows(&fixture).await[0].waiting, 4);
    settle(&mut holder, &held, (30, 0)).await;
    let due = fixture.harness.records.due_timers(10).await.expect("timers");
    let due: Vec<_> = due.into_iter().map(|timer| timer.timer).collect();
    let mut expected = vec![timers[2], timers[3]];
    expected.sort();
    let mut woken = due;
    woken.sort();
    assert_eq!(woken, expected, "90 does not fit, and 20 does not fit beside 30 and 30");
    assert_eq!(rows(&fixture).await[0].waiting, 2);
}

/// If the amount is released between the refusal and the park of a run, the run is woken at once.
pub async fn a_run_that_waits_too_late_is_woken(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    fixture.open(|_| {}).await;
    fixture.open(|_| {}).await;
    let mut runs = claim_all(&fixture, worker).await;
    let period = current_period(&fixture);
    let amount = reservation(period, "anna", 80);
    let mut holder = runs.pop().expect("a run");
    let mut waiter = runs.pop().expect("a run");
    assert_appended(&hold(&mut holder, &[&amount]).await);
    assert!(matches!(hold(&mut waiter, &[&amount]).await, AppendResult::Refused(_)));
    settle(&mut holder, &amount, (1, 0)).await;
    let timer = wait(&mut waiter, &amount).await;
    let due = fixture.harness.records.due_timers(10).await.expect("timers");
    assert_eq!(due.into_iter().map(|due| due.timer).collect::<Vec<_>>(), [timer]);
}

/// A run whose amount fits is woken although the run that was woken before it makes no request.
pub async fn a_forgotten_run_is_woken(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    for _ in 0..3 {
        fixture.open(|_| {}).await;
    }
    let mut runs = claim_all(&fixture, worker).await;
    let period = current_period(&fixture);
    let (all, most) = (reservation(period, "anna", 100), reservation(period, "anna", 80));
    assert_appended(&hold(&mut runs[0], &[&all]).await);
    let timers = [wait(&mut runs[1], &most).await, wait(&mut runs[2], &most).await];
    settle(&mut runs[0], &all, (1, 0)).await;
    let due = async || {
        let due = fixture.harness.records.due_timers(10).await.expect("timers");
        due.into_iter().map(|due| due.timer).collect::<Vec<_>>()
    };
    assert_eq!(due().await, timers[..1]);
    fixture.harness.records.wake_runs_waiting_at_caps().await.expect("wake");
    let mut woken = due().await;
    woken.sort();
    let mut expected = timers.to_vec();
    expected.sort();
    assert_eq!(woken, expected);
}

/// A run that waits where nothing was counted yet is found by a change of the configuration, and a
/// limit is never lowered by a raise.
pub async fn a_run_waits_where_nothing_was_counted(fixture: StoreFixture) {
    let mut run = fixture.open_and_claim(|_| {}).await;
    let period = current_period(&fixture);
    let excessive = reservation(period, "anna", LIMIT + 1);
    assert!(matches!(hold(&mut run, &[&excessive]).await, AppendResult::Refused(_)));
    let timer = wait(&mut run, &excessive).await;
    assert_eq!(rows(&fixture).await[0].waiting, 1);
    let set_limit = async |subject: Option<&str>, limit| {
        let subject = subject.map(str::to_owned);
        let change = CapLimitChange { cap: "day-tokens-actor".to_owned(), subject, period, limit };
        fixture.harness.records.set_cap_limit(change).await.expect("limit");
    };
    set_limit(None, LIMIT + 1).await;
    let due = fixture.harness.records.due_timers(10).await.expect("timers");
    assert_eq!(due.into_iter().map(|due| due.timer).collect::<Vec<_>>(), [timer]);
    set_limit(Some("anna"), 900).await;
    set_limit(Some("anna"), 800).await;
    assert_eq!(rows(&fixture).await[0].raised_limit, Some(900));
}

/// A raised limit applies to one subject and window, a limit of the configuration to all subjects.
/// The higher one counts, and runs whose amounts fit are woken.
pub async fn a_higher_limit_wakes_runs(fixture: StoreFixture) {
    let period = current_period(&fixture);
    let set_limit = async |subject: Option<&str>, limit| {
        let subject = subject.map(str::to_owned);
        let change = CapLimitChange { cap: "day-tokens-actor".to_owned(), subject, period, limit };
        fixture.harness.records.set_cap_limit(change).await.expect("limit");
        fixture.harness.records.due_timers(10).await.expect("timers").len()
    };
    let worker = fixture.worker().await;
    for _ in 0..4 {
        fixture.open(|_| {}).await;
    }
    let mut runs = claim_all(&fixture, worker).await;
    let (anna, bert) = (reservation(period, "anna", 100), reservation(period, "bert", 100));
    assert_appended(&hold(&mut runs[0], &[&anna]).await);
    assert_appended(&hold(&mut runs[1], &[&bert]).await);
    wait(&mut runs[2], &anna).await;
    wait(&mut runs[3], &bert).await;
    assert_eq!(set_limit(Some("anna"), 199).await, 0, "the amount does not fit");
    assert_eq!(set_limit(Some("anna"), 200).await, 1);
    assert_eq!(set_limit(None, 150).await, 1, "a raised limit stays");
    assert_eq!(rows(&fixture).await[0].effective_limit(), 150);
    assert_eq!(set_limit(None, 200).await, 2);
    assert_eq!(set_limit(Some("cleo"), 5).await, 2, "before anything is counted");
    let cleo = reservation(period, "cleo", 101);
    assert!(matches!(hold(&mut runs[0], &[&cleo]).await, AppendResult::Refused(_)));
    assert_eq!(set_limit(Some("cleo"), 101).await, 2);
    assert_appended(&hold(&mut runs[0], &[&cleo]).await);
}

/// A cap that refuses tasks counts new runs, all of a request or none, and refuses them when nothing
/// is left or a run waits.
pub async fn new_runs_are_counted_and_refused(fixture: StoreFixture) {
    let period = current_period(&fixture);
    let new = |amount| NewRun {
        caps: vec![CapReservation { limit: 3, ..reservation(period, "anna", amount) }],
        ..fixture.new_run(|_| {})
    };
    let created = fixture.open_runs(vec![new(1), new(1)]).await;
    assert!(matches!(created, CreateRunsOutcome::Created(_)), "{created:?}");
    for (runs, left) in [(vec![new(1), new(1)], 0), (vec![new(1), new(1), new(1)], 0)] {
        let outcome = fixture.open_runs(runs).await;
        let CreateRunsOutcome::OverCap(refusal) = outcome else { panic!("{outcome:?}") };
        assert_eq!(refusal.left, left);
        assert_eq!(rows(&fixture).await[0].spent, 2, "nothing is counted");
    }
    let created = fixture.open_runs(vec![new(0)]).await;
    assert!(matches!(created, CreateRunsOutcome::Created(_)), "{created:?}");
    let worker = fixture.worker().await;
    let mut run = fixture.claim_one(worker).await;
    let reservation = CapReservation { limit: 3, ..reservation(period, "anna", 50) };
    wait(&mut run, &reservation).await;
    let refused = fixture.open_runs(vec![new(0)]).await;
    assert!(matches!(refused, CreateRunsOutcome::OverCap(_)), "{refused:?}");
}

/// Counts are kept for some time after their window.
pub async fn counts_are_pruned(fixture: StoreFixture) {
    let mut run = fixture.open_and_claim(|_| {}).await;
    let period = current_period(&fixture);
    assert_appended(&hold(&mut run, &[&reservation(period, "anna", 1)]).await);
    for (age, row_count) in [(SPEND_TTL, 1), (SPEND_TTL.plus(Millis(1)), 0)] {
        fixture.harness.clock.set(period.end.plus(age));
        let request =
            PruneRequest { runs_older_than: Millis(1), blobs_older_than: WINDOW, limit: 100 };
        fixture.harness.store.prune_old_data(request).await.expect("prune");
        fixture.harness.clock.set(period.start);
        assert_eq!(rows(&fixture).await.len(), row_count);
    }
}

/// Concurrent holds of many runs never exceed a cap, and everything is settled.
pub async fn holds_of_parallel_runs_never_pass_a_cap(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    for _ in 0..6 {
        fixture.open(|_| {}).await;
    }
    let mut drivers = JoinSet::new();
    for run in claim_all(&fixture, worker).await {
        drivers.spawn(hold_and_settle(run, fixture.harness.rounds / 40));
    }
    let spent: u64 = drivers.join_all().await.into_iter().sum();
    let row = rows(&fixture).await.remove(0);
    assert_eq!((row.spent, row.held), (spent, 0));
    assert!(spent > 0 && spent <= LIMIT, "{row:?}");
}

async fn hold_and_settle(mut run: ClaimedRun, rounds: usize) -> u64 {
    let amount = reservation(current_period(&run.fixture), "anna", 30);
    let mut spent = 0;
    for _ in 0..rounds {
        let held = hold(&mut run, &[&amount]).await;
        if matches!(held, AppendResult::Refused(_)) {
            yield_now().await;
            continue;
        }
        assert_appended(&held);
        let row = rows(&run.fixture).await.remove(0);
        assert!(row.spent + row.held <= LIMIT, "{row:?}");
        settle(&mut run, &amount, (1, 0)).await;
        spent += 1;
    }
    spent
}

/// Returns the window that begins now.
fn current_period(fixture: &StoreFixture) -> CapWindowRange {
    let start = fixture.harness.clock.now();
    CapWindowRange { start, end: start.plus(WINDOW) }
}

fn reservation(period: CapWindowRange, subject: &str, amount: u64) -> CapReservation {
    let (cap, subject) = ("day-tokens-actor".to_owned(), subject.to_owned());
    let key = CapCounterKey { cap, subject, window_start: period.start };
    let hold = CapHold { key, unit: CapUnit::Tokens, amount };
    CapReservation { hold, window_end: period.end, limit: LIMIT }
}

fn new_row(reservation: &CapReservation) -> CapCounterRow {
    let CapReservation { hold, window_end, limit } = reservation;
    CapCounterRow::new(hold.key.clone(), *window_end, *limit)
}

async fn claim_all(fixture: &StoreFixture, worker: longhaul_core::id::WorkerId) -> Vec<ClaimedRun> {
    let claims = fixture.claim(worker).await;
    claims.iter().map(|claim| ClaimedRun::new(fixture, worker, claim)).collect()
}

async fn hold(run: &mut ClaimedRun, reservations: &[&CapReservation]) -> AppendResult {
    let reservations = reservations.iter().map(|one| (*one).clone()).collect();
    run.change(RowChange::HoldCaps(reservations)).await
}

async fn settle(run: &mut ClaimedRun, held: &CapReservation, (spent, lost): (u64, u64)) {
    let CapHold { key, amount, .. } = held.hold.clone();
    let settlement = CapSettlement { key, held: amount, spent, lost };
    assert_appended(&run.change(RowChange::SettleCaps(vec![settlement])).await);
}

/// Parks a run that waits for an amount, and returns its timer.
async fn wait(run: &mut ClaimedRun, amount: &CapReservation) -> longhaul_core::id::TimerId {
    let timer = run.fixture.ids.timer();
    let reservation = amount.clone();
    let due = TimerDueTime::After(WINDOW);
    let arm = TimerUpdate::Arm { timer, run: run.run, due, kind: TimerKind::Wake };
    let batch = events_batch([progress(1)])
        .with_change(RowChange::SetTimer(arm))
        .with_change(RowChange::WaitAtCap(CapWaitRow { reservation, timer }))
        .with_change(park_head("cap"));
    run.append_ok(batch).await;
    timer
}

async fn rows(fixture: &StoreFixture) -> Vec<CapCounterRow> {
    fixture.harness.records.cap_counter_rows().await.expect("rows")
}
