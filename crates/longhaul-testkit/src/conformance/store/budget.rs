//! Accounts: nothing is held that is not covered, over a whole tree of runs.
//!
//! Never: turns and active time; the heart counts those.

use longhaul_core::change::{Change, Settlement, UsageRow};
use longhaul_core::policy::budget::Raise;
use longhaul_core::port::shelves::{Account, Spend, SpendAsk};
use longhaul_core::port::store::Refused;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Clock, Millis};
use longhaul_core::usage::{Hold, Left, Micros, Usage};

use crate::conformance::store::facts::{And as _, ends, only, progress, says};
use crate::conformance::store::kit::{Held, World, refused, stands};

/// A hold is set aside, then used, lost or given back.
pub async fn a_hold_is_settled(world: World) {
    let mut held = world.held(caps(100, 1_000)).await;
    stands(&held.change(Change::Hold(amount(60, 500))).await);
    assert_eq!(account(&world, &held).await.held, amount(60, 500));
    let settlement = Settlement {
        held: amount(60, 500),
        spent: amount(20, 100),
        lost: amount(5, 50),
    };
    stands(&held.change(Change::Settle(settlement)).await);
    let expected = Account {
        cap_micros: Some(Micros(100)),
        cap_tokens: Some(1_000),
        spent: amount(20, 100),
        lost: amount(5, 50),
        held: amount(0, 0),
    };
    assert_eq!(account(&world, &held).await, expected);
    let too_much = Settlement {
        held: amount(900, 900),
        spent: amount(0, 0),
        lost: amount(0, 0),
    };
    stands(&held.change(Change::Settle(too_much)).await);
    assert_eq!(account(&world, &held).await.held, amount(0, 0));
}

/// What does not fit is refused with what is left, and nothing of it is held.
pub async fn a_hold_that_does_not_fit_is_refused(world: World) {
    let mut held = world.held(caps(100, 1_000)).await;
    stands(&held.change(Change::Hold(amount(60, 500))).await);
    let left = Left {
        micros: Some(Micros(40)),
        tokens: Some(500),
    };
    for hold in [amount(41, 0), amount(0, 501), amount(41, 501)] {
        let why = refused(held.change(Change::Hold(hold)).await);
        assert_eq!(why, Refused::OverBudget(left));
    }
    assert_eq!(account(&world, &held).await.held, amount(60, 500));
    stands(&held.change(Change::Hold(amount(40, 500))).await);
    let lost = Settlement {
        held: amount(100, 1_000),
        spent: amount(0, 1_000),
        lost: amount(100, 0),
    };
    stands(&held.change(Change::Settle(lost)).await);
    let none = Left {
        micros: Some(Micros(0)),
        tokens: Some(0),
    };
    let why = refused(held.change(Change::Hold(amount(1, 0))).await);
    assert_eq!(why, Refused::OverBudget(none), "what is lost counts");
}

/// A cap that is not there does not bind, and says so.
pub async fn what_has_no_cap_is_not_bound(world: World) {
    let mut free = world.held(|_| {}).await;
    stands(&free.change(Change::Hold(amount(1 << 40, 1 << 40))).await);
    let mut half = world
        .held(|task| task.policy.budget.tokens = Some(10))
        .await;
    let why = refused(half.change(Change::Hold(amount(5, 11))).await);
    let left = Left {
        micros: None,
        tokens: Some(10),
    };
    assert_eq!(why, Refused::OverBudget(left));
}

/// Caps that are raised bind from then on; the others stay.
pub async fn caps_can_be_raised(world: World) {
    let mut held = world.held(caps(100, 1_000)).await;
    refused(held.change(Change::Hold(amount(150, 0))).await);
    let raise = Raise {
        micros: Some(Micros(200)),
        ..Raise::default()
    };
    stands(&world.tell(held.run, only(Change::SetCap(raise))).await);
    let account = account(&world, &held).await;
    assert_eq!(
        (account.cap_micros, account.cap_tokens),
        (Some(Micros(200)), Some(1_000))
    );
    stands(&held.change(Change::Hold(amount(150, 0))).await);
}

/// Children draw on the account of their root and have none of their own.
pub async fn a_tree_has_one_account(world: World) {
    let mut root = world.held(caps(100, 1_000)).await;
    let child = world.new_run(|task| {
        task.root = root.run;
        task.parent = Some(root.run);
        caps(1 << 40, 1 << 40)(task);
    });
    let child_id = child.id;
    stands(&root.change(Change::OpenRun(Box::new(child))).await);
    let mut child = world.take(root.worker).await;
    assert_eq!(child.run, child_id);
    assert_eq!(
        world.at.shelves.account(child_id).await.expect("account"),
        None
    );
    stands(&child.change(Change::Hold(amount(70, 0))).await);
    assert_eq!(account(&world, &root).await.held, amount(70, 0));
    refused(root.change(Change::Hold(amount(40, 0))).await);
    let settlement = Settlement {
        held: amount(70, 0),
        spent: amount(10, 0),
        lost: amount(0, 0),
    };
    child.write(ends().and(Change::Settle(settlement))).await;
    stands(&root.change(Change::Hold(amount(40, 0))).await);
    assert_eq!(account(&world, &root).await.spent, amount(10, 0));
}

/// Tokens, money, turns and time add up in the run's row.
pub async fn usage_adds_up(world: World) {
    let mut held = world.held(|_| {}).await;
    for (model, cost) in [("a", Some(5)), ("b", Some(7)), ("", None)] {
        stands(&held.change(used(model, cost)).await);
    }
    let row = world.row(held.run).await;
    assert_eq!((row.turns, row.cost), (3, Some(Micros(12))));
    assert_eq!((row.active, row.usage.tokens()), (Millis(300), 3 * 110));
    assert_eq!(row.usage.reasoning_tokens, 9);
    assert!(!row.usage.estimated);
    stands(&held.change(used("a", None)).await);
    stands(&held.change(used("a", Some(1))).await);
    let row = world.row(held.run).await;
    assert_eq!(
        (row.turns, row.cost),
        (5, None),
        "of one call it is not known"
    );
}

/// What was used is summed by model, for a tree or since a time.
pub async fn spend_is_summed_by_model(world: World) {
    let mut first = world.held(|_| {}).await;
    let mut second = world.held(|_| {}).await;
    stands(&first.change(used("b", Some(7))).await);
    stands(&second.change(used("b", None)).await);
    world.pass(Millis(10));
    let since = world.at.clock.now();
    let late = says([progress(1)])
        .and(used("a", Some(5)))
        .and(used("b", Some(2)))
        .and(used("", Some(3)));
    first.write(late).await;
    let usage = |calls: u64| Usage {
        input_tokens: 100 * calls,
        output_tokens: 10 * calls,
        reasoning_tokens: 3 * calls,
        ..Usage::default()
    };
    let spend = |model: &str, cost, unpriced, calls| Spend {
        model: model.to_owned(),
        usage: usage(calls),
        cost: Micros(cost),
        unpriced,
    };
    let asked = async |root, since| {
        let spend = world.at.shelves.spend(SpendAsk { root, since }).await;
        let mut rows = spend.expect("spend");
        rows.sort_unstable_by(|one, other| one.model.cmp(&other.model));
        rows
    };
    assert_eq!(
        asked(None, None).await,
        [spend("a", 5, 0, 1), spend("b", 9, 1, 3)]
    );
    let of_first = [spend("a", 5, 0, 1), spend("b", 9, 0, 2)];
    assert_eq!(asked(Some(first.run), None).await, of_first);
    let lately = [spend("a", 5, 0, 1), spend("b", 2, 0, 1)];
    assert_eq!(asked(None, Some(since)).await, lately);
    assert_eq!(asked(Some(second.run), Some(since)).await, []);
}

fn used(model: &str, cost: Option<u64>) -> Change {
    Change::AddUsage(UsageRow {
        model: model.to_owned(),
        usage: Usage {
            input_tokens: 100,
            output_tokens: 10,
            reasoning_tokens: 3,
            ..Usage::default()
        },
        cost: cost.map(Micros),
        turns: 1,
        active: Millis(100),
    })
}

fn caps(micros: u64, tokens: u64) -> impl FnOnce(&mut TaskSpec) {
    move |task| {
        task.policy.budget.micros = Some(Micros(micros));
        task.policy.budget.tokens = Some(tokens);
    }
}

const fn amount(micros: u64, tokens: u64) -> Hold {
    Hold {
        micros: Micros(micros),
        tokens,
    }
}

async fn account(world: &World, held: &Held) -> Account {
    let root = world.row(held.run).await.root;
    let account = world.at.shelves.account(root).await.expect("account");
    account.expect("a root has an account")
}
