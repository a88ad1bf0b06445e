//! Budgets: a hold never exceeds the remaining cap, over a whole tree of runs. Turns and active
//! time are limited by the state machine, not by the store.

use longhaul_core::change::{BudgetHold, BudgetHoldSettlement, JournalBatch, RowChange, UsageRow};
use longhaul_core::policy::budget::{BudgetAccount, BudgetRaise};
use longhaul_core::port::records::{DAY_MICROS, UsageQuery};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult};
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Clock, Millis};
use longhaul_core::usage::{BudgetAmount, MicroUsd, RemainingBudget, Usage};

use crate::conformance::store::batches::{
    BatchExt as _, change_batch, end_batch, events_batch, park_batch, progress,
};
use crate::conformance::store::fixture::{
    ClaimedRun, StoreFixture, agent, assert_appended, refused,
};

/// A hold is created, and then spent, lost or released.
pub async fn a_hold_is_settled(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(caps(100, 1_000)).await;
    assert_appended(&claimed_run.change(RowChange::Hold(hold_of(60, 500).into())).await);
    assert_eq!(account(&fixture, &claimed_run).await.held, hold_of(60, 500));
    let settlement = BudgetHoldSettlement {
        held: hold_of(60, 500),
        spent: hold_of(20, 100),
        lost: hold_of(5, 50),
    };
    assert_appended(&claimed_run.change(RowChange::Settle(settlement)).await);
    let expected = BudgetAccount {
        cap_micro_usd: Some(MicroUsd(100)),
        cap_tokens: Some(1_000),
        spent: hold_of(20, 100),
        lost: hold_of(5, 50),
        held: hold_of(0, 0),
    };
    assert_eq!(account(&fixture, &claimed_run).await, expected);
    let too_much =
        BudgetHoldSettlement { held: hold_of(900, 900), spent: hold_of(0, 0), lost: hold_of(0, 0) };
    assert_appended(&claimed_run.change(RowChange::Settle(too_much)).await);
    assert_eq!(account(&fixture, &claimed_run).await.held, hold_of(0, 0));
}

/// A hold above the cap is refused with the remaining budget, and nothing is held.
pub async fn a_hold_that_does_not_fit_is_refused(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(caps(100, 1_000)).await;
    assert_appended(&claimed_run.change(RowChange::Hold(hold_of(60, 500).into())).await);
    let unreserved = RemainingBudget { micro_usd: Some(MicroUsd(40)), tokens: Some(500) };
    let unspent = RemainingBudget { micro_usd: Some(MicroUsd(100)), tokens: Some(1_000) };
    for hold in [hold_of(41, 0), hold_of(0, 501), hold_of(41, 501)] {
        let account = refusing_account(claimed_run.change(RowChange::Hold(hold.into())).await);
        assert_eq!((account.unreserved_budget(), account.unspent_budget()), (unreserved, unspent));
    }
    assert_eq!(account(&fixture, &claimed_run).await.held, hold_of(60, 500));
    assert_appended(&claimed_run.change(RowChange::Hold(hold_of(40, 500).into())).await);
    let settlement = BudgetHoldSettlement {
        held: hold_of(100, 1_000),
        spent: hold_of(0, 1_000),
        lost: hold_of(100, 0),
    };
    assert_appended(&claimed_run.change(RowChange::Settle(settlement)).await);
    let exhausted = RemainingBudget { micro_usd: Some(MicroUsd(0)), tokens: Some(0) };
    let account = refusing_account(claimed_run.change(RowChange::Hold(hold_of(1, 0).into())).await);
    assert_eq!(
        (account.unreserved_budget(), account.unspent_budget()),
        (exhausted, exhausted),
        "lost amounts count"
    );
}

/// A missing cap means no limit, and the remaining budget says so.
pub async fn a_budget_without_a_cap_is_unlimited(fixture: StoreFixture) {
    let mut unlimited = fixture.open_and_claim(|_| {}).await;
    assert_appended(&unlimited.change(RowChange::Hold(hold_of(1 << 40, 1 << 40).into())).await);
    let mut token_limited =
        fixture.open_and_claim(|task| task.policy.budget.tokens = Some(10)).await;
    let account =
        refusing_account(token_limited.change(RowChange::Hold(hold_of(5, 11).into())).await);
    assert_eq!(account.unreserved_budget(), RemainingBudget { micro_usd: None, tokens: Some(10) });
}

/// Raised caps apply immediately; the other caps do not change.
pub async fn caps_can_be_raised(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(caps(100, 1_000)).await;
    refused(claimed_run.change(RowChange::Hold(hold_of(150, 0).into())).await);
    let raise = BudgetRaise { micro_usd: Some(MicroUsd(200)), ..BudgetRaise::default() };
    assert_appended(
        &fixture.append_outside(claimed_run.run, change_batch(RowChange::RaiseBudget(raise))).await,
    );
    let account = account(&fixture, &claimed_run).await;
    assert_eq!((account.cap_micro_usd, account.cap_tokens), (Some(MicroUsd(200)), Some(1_000)));
    assert_appended(&claimed_run.change(RowChange::Hold(hold_of(150, 0).into())).await);
}

/// A raise does not lower a cap, and does not add a cap that is missing.
pub async fn a_raise_lowers_no_cap(fixture: StoreFixture) {
    let claimed_run = fixture.open_and_claim(|task| task.policy.budget.tokens = Some(1_000)).await;
    let raise =
        BudgetRaise { micro_usd: Some(MicroUsd(1)), tokens: Some(999), ..BudgetRaise::default() };
    assert_appended(&fixture.append_outside(claimed_run.run, raise_batch(raise)).await);
    let account = account(&fixture, &claimed_run).await;
    assert_eq!((account.cap_micro_usd, account.cap_tokens), (None, Some(1_000)));
}

/// A run that parks at a cap which was raised since the refusal is woken at once.
pub async fn a_raise_before_the_park_wakes_the_run(fixture: StoreFixture) {
    for (raised_to, status, reason) in
        [(100, Status::Waiting, "budget"), (200, Status::Running, "worker")]
    {
        let mut claimed_run = fixture.open_and_claim(caps(100, 1_000)).await;
        let raise = BudgetRaise { micro_usd: Some(MicroUsd(raised_to)), ..BudgetRaise::default() };
        assert_appended(&claimed_run.change(RowChange::RaiseBudget(raise)).await);
        let (micro_usd, tokens) = (Some(MicroUsd(100)), Some(1_000));
        let wait = RowChange::WaitForHigherCaps { micro_usd, tokens };
        claimed_run.append_ok(park_batch("budget").with_change(wait)).await;
        fixture.assert_status(claimed_run.run, status, reason).await;
    }
}

/// `RaiseBudget` of a child run leaves the caps of its tree unchanged, `RaiseTreeBudget` raises them.
pub async fn the_caps_of_a_tree_can_be_raised_through_a_child(fixture: StoreFixture) {
    let root = fixture.open_and_claim(caps(100, 1_000)).await;
    let child = child_of(&root).await;
    let raise = BudgetRaise { micro_usd: Some(MicroUsd(200)), ..BudgetRaise::default() };
    assert_appended(&fixture.append_outside(child.run, raise_batch(raise)).await);
    assert_eq!(account(&fixture, &root).await.cap_micro_usd, Some(MicroUsd(100)));
    let tree_raise = change_batch(RowChange::RaiseTreeBudget(raise));
    assert_appended(&fixture.append_outside(child.run, tree_raise).await);
    assert_eq!(account(&fixture, &root).await.cap_micro_usd, Some(MicroUsd(200)));
}

fn raise_batch(raise: BudgetRaise) -> JournalBatch {
    change_batch(RowChange::RaiseBudget(raise))
}

/// Child runs use the account of their root and have none of their own.
pub async fn a_tree_has_one_account(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(caps(100, 1_000)).await;
    let child = fixture.new_run(|task| {
        task.root = root.run;
        task.parent = Some(root.run);
        caps(1 << 40, 1 << 40)(task);
    });
    let child_id = child.id;
    assert_appended(&root.change(RowChange::CreateRun(Box::new(child))).await);
    let mut child = fixture.claim_one(root.worker).await;
    assert_eq!(child.run, child_id);
    assert_eq!(fixture.harness.records.budget_account(child_id).await.expect("account"), None);
    assert_appended(&child.change(RowChange::Hold(hold_of(70, 0).into())).await);
    assert_eq!(account(&fixture, &root).await.held, hold_of(70, 0));
    refused(root.change(RowChange::Hold(hold_of(40, 0).into())).await);
    let settlement =
        BudgetHoldSettlement { held: hold_of(70, 0), spent: hold_of(10, 0), lost: hold_of(0, 0) };
    child.append_ok(end_batch().with_change(RowChange::Settle(settlement))).await;
    assert_appended(&root.change(RowChange::Hold(hold_of(40, 0).into())).await);
    assert_eq!(account(&fixture, &root).await.spent, hold_of(10, 0));
}

/// A hold is refused from a share of a cap on, unless the model was warned. Amounts that are only held
/// do not count.
pub async fn a_hold_is_refused_until_the_model_is_warned(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(caps(100, 1_000)).await;
    let hold = |warn_money_at, warn_tokens_at| {
        let (amount, reserve) = (hold_of(1, 1), hold_of(0, 0));
        RowChange::Hold(BudgetHold { amount, reserve, warn_money_at, warn_tokens_at })
    };
    let spend = |spent| {
        let settlement = BudgetHoldSettlement { held: spent, spent, lost: hold_of(0, 0) };
        RowChange::Settle(settlement)
    };
    assert_appended(&claimed_run.change(RowChange::Hold(hold_of(95, 0).into())).await);
    assert_appended(&claimed_run.change(hold(Some(90), Some(90))).await);
    assert_appended(&claimed_run.change(spend(hold_of(89, 0))).await);
    assert_appended(&claimed_run.change(hold(Some(90), Some(90))).await);
    assert_appended(&claimed_run.change(spend(hold_of(1, 900))).await);
    let account = refusing_account(claimed_run.change(hold(Some(90), None)).await);
    assert_eq!(account.spent, hold_of(90, 900));
    refusing_account(claimed_run.change(hold(None, Some(90))).await);
    refusing_account(claimed_run.change(hold(Some(91), Some(90))).await);
    assert_appended(&claimed_run.change(hold(Some(91), Some(91))).await);
    assert_appended(&claimed_run.change(hold(None, None)).await);
}

/// A hold is refused that may not leave the reserve, unless the model was warned. Amounts that are only
/// held do not count, and a first hold needs no reserve.
pub async fn a_hold_leaves_a_reserve_until_the_model_is_warned(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(caps(100, 1_000)).await;
    let hold = |micros, warn_at| {
        let (amount, reserve) = (hold_of(micros, 1), hold_of(30, 10));
        let (warn_money_at, warn_tokens_at) = (warn_at, Some(90));
        RowChange::Hold(BudgetHold { amount, reserve, warn_money_at, warn_tokens_at })
    };
    assert_appended(&claimed_run.change(hold(80, Some(90))).await);
    let (amount, spent) = (hold_of(80, 1), hold_of(10, 1));
    let lost = hold_of(0, 0);
    let settlement = BudgetHoldSettlement { held: amount, spent, lost };
    assert_appended(&claimed_run.change(RowChange::Settle(settlement)).await);
    refusing_account(claimed_run.change(hold(61, Some(90))).await);
    assert_appended(&claimed_run.change(hold(60, Some(90))).await);
    assert_appended(&claimed_run.change(hold(30, Some(90))).await);
    let settlement = BudgetHoldSettlement { held: hold_of(90, 2), spent: hold_of(10, 0), lost };
    assert_appended(&claimed_run.change(RowChange::Settle(settlement)).await);
    refusing_account(claimed_run.change(hold(61, Some(90))).await);
    assert_appended(&claimed_run.change(hold(80, None)).await);
}

/// A raise of a child leaves the caps of its tree as they are. A raise of the root wakes the runs of
/// the tree that wait for a higher budget.
pub async fn a_raise_of_the_root_reaches_its_tree(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(|task| task.policy.budget.tokens = Some(100)).await;
    let [mut raised, mut waiting] = [child_of(&root).await, child_of(&root).await];
    waiting.park("budget").await;
    let raise = |tokens| {
        let tokens = Some(tokens);
        RowChange::RaiseBudget(BudgetRaise { tokens, ..BudgetRaise::default() })
    };
    for tokens in [50, 200] {
        assert_appended(&raised.change(raise(tokens)).await);
        assert_eq!(account(&fixture, &root).await.cap_tokens, Some(100));
    }
    fixture.assert_status(waiting.run, Status::Waiting, "budget").await;
    assert_appended(&root.change(raise(200)).await);
    assert_eq!(account(&fixture, &root).await.cap_tokens, Some(200));
    fixture.assert_status(waiting.run, Status::Running, "worker").await;
}

/// Tokens, cost, turns and active time add up in the run's row.
pub async fn usage_adds_up(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    for (model, cost) in [("a", Some(5)), ("b", Some(7)), ("", None)] {
        assert_appended(&claimed_run.change(add_usage(model, cost)).await);
    }
    let row = fixture.row(claimed_run.run).await;
    assert_eq!((row.turns, row.cost), (3, Some(MicroUsd(12))));
    assert_eq!((row.active, row.usage.total_tokens()), (Millis(300), 3 * 110));
    assert_eq!(row.usage.reasoning_tokens, 9);
    assert!(!row.usage.estimated);
    assert_appended(&claimed_run.change(add_usage("a", None)).await);
    assert_appended(&claimed_run.change(add_usage("a", Some(1))).await);
    let row = fixture.row(claimed_run.run).await;
    assert_eq!((row.turns, row.cost), (5, None), "the cost of one call is not known");
}

/// Usage is summed by day, agent and model, also of runs that have not ended.
pub async fn usage_is_summed_by_day_agent_and_model(fixture: StoreFixture) {
    let mut first = fixture.open_and_claim(|_| {}).await;
    let mut second = fixture.open_and_claim(|task| task.agent = agent("planner")).await;
    let start = fixture.harness.clock.now();
    assert_appended(&first.change(add_usage("b", Some(7))).await);
    assert_appended(&second.change(add_usage("b", None)).await);
    fixture.advance(Millis::from_secs(2 * 24 * 60 * 60));
    let batch = events_batch([progress(1)])
        .with_change(add_usage("a", Some(5)))
        .with_change(add_usage("a", Some(1)))
        .with_change(add_usage("b", Some(9)))
        .with_change(add_usage("", Some(3)));
    first.append_ok(batch).await;
    let now = fixture.harness.clock.now();
    let sums = async |since, limit| {
        let query = UsageQuery { since, limit };
        let sums = fixture.harness.records.usage_sums(query).await.expect("sums");
        sums.into_iter()
            .map(|sum| {
                assert_eq!(sum.usage.input_tokens, 100 * sum.calls);
                assert!(sum.day.as_micros() % DAY_MICROS == 0 && sum.day <= now);
                let is_today = sum.day.plus(Millis::from_secs(24 * 60 * 60)) > now;
                let names = (sum.agent.to_string(), sum.model);
                (is_today, names.0, names.1, sum.calls, sum.cost.0, sum.unpriced)
            })
            .collect::<Vec<_>>()
    };
    let sum = |is_today, agent: &str, model: &str, amounts: (u64, u64, u64)| {
        let (calls, cost, unpriced) = amounts;
        (is_today, agent.to_owned(), model.to_owned(), calls, cost, unpriced)
    };
    let all = [
        sum(true, "writer", "b", (1, 9, 0)),
        sum(true, "writer", "a", (2, 6, 0)),
        sum(false, "writer", "b", (1, 7, 0)),
        sum(false, "planner", "b", (1, 0, 1)),
    ];
    assert_eq!(sums(start, 9).await, all);
    assert_eq!(sums(start, 1).await, all[..1]);
    assert_eq!(sums(now, 9).await, all[..2]);
}

fn add_usage(model: &str, cost: Option<u64>) -> RowChange {
    RowChange::AddUsage(UsageRow {
        model: model.to_owned(),
        usage: Usage {
            input_tokens: 100,
            output_tokens: 10,
            reasoning_tokens: 3,
            ..Usage::default()
        },
        cost: cost.map(MicroUsd),
        turns: 1,
        active: Millis(100),
    })
}

pub(super) fn caps(micros: u64, tokens: u64) -> impl FnOnce(&mut TaskSpec) {
    move |task| {
        task.policy.budget.micro_usd = Some(MicroUsd(micros));
        task.policy.budget.tokens = Some(tokens);
    }
}

pub(super) const fn hold_of(micros: u64, tokens: u64) -> BudgetAmount {
    BudgetAmount { micro_usd: MicroUsd(micros), tokens }
}

/// Creates and claims a child of a run.
pub(super) async fn child_of(parent: &ClaimedRun) -> ClaimedRun {
    let fixture = &parent.fixture;
    let child = fixture.new_run(|task| {
        task.root = parent.run;
        task.parent = Some(parent.run);
    });
    let created = change_batch(RowChange::CreateRun(Box::new(child)));
    assert_appended(&fixture.append_outside(parent.run, created).await);
    fixture.claim_one(parent.worker).await
}

/// Returns the account that has refused a hold.
pub(super) fn refusing_account(appended: AppendResult) -> BudgetAccount {
    let reason = refused(appended);
    let AppendRefusalReason::OverBudget(account) = reason else {
        panic!("refused for another reason: {reason:?}");
    };
    account
}

async fn account(fixture: &StoreFixture, claimed_run: &ClaimedRun) -> BudgetAccount {
    let root = fixture.row(claimed_run.run).await.root;
    let account = fixture.harness.records.budget_account(root).await.expect("account");
    account.expect("a root has an account")
}
