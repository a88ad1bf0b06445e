//! Caps: warned once, cut where little is left, parked where nothing is.
//!
//! Never: crossed. The world checks every hold against the account.

use longhaul_core::policy::Policy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::time::Millis;

use super::policies::{capped, money, plain};
use super::world::script::check;

#[test]
fn turns_park_and_a_raise_wakes() {
    let turns = capped(Budget {
        turns: Some(2),
        ..Budget::default()
    });
    check(
        turns,
        r#"
        claim                => run.claimed | running
        see                  => run.perceived turn.started
        call read/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1) turn.started
        call read/pure       => turn.completed tool.started(t2.1)
        done t2.1 ok         => tool.completed(t2.1) budget.reached(turns) run.waiting(budget) | waiting budget
        ? why                => Its budget of turns is used up.
        surface t9.9         => tool.surfaced(t9.9) | running
        claim                => run.claimed
        go                   => run.waiting(budget) | waiting budget
        raise tokens 9000000 => budget.raised | running
        claim                => run.claimed
        go                   => budget.reached(turns) run.waiting(budget) | waiting budget
        resume turns 10      => run.resumed | running
        claim                => run.claimed
        go                   => turn.started
        say Done.            => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn the_agent_is_warned_once() {
    let turns = capped(Budget {
        turns: Some(10),
        warn_percent: 20,
        ..Budget::default()
    });
    check(
        turns,
        r#"
        claim             => run.claimed | running
        see               => run.perceived turn.started
        call nonsense/bad => turn.completed tool.failed(t1.1) turn.started
        call nonsense/bad => turn.completed tool.failed(t2.1) budget.warned(turns) turn.started
        ? said            => [longhaul] Little is left of the budget of turns. Bring the work to a good end now: finish what is half done, and say what is left.
        call nonsense/bad => turn.completed tool.failed(t3.1) turn.started
        raise turns 12    => budget.raised
        call nonsense/bad => turn.completed tool.failed(t4.1) budget.warned(turns) turn.started
    "#,
    );
}

#[test]
fn active_time_parks() {
    let time = capped(Budget {
        active: Some(Millis(1_500)),
        ..Budget::default()
    });
    check(
        time,
        r#"
        claim          => run.claimed | running
        see            => run.perceived turn.started
        call read/pure => turn.completed tool.started(t1.1)
        done t1.1 ok   => tool.completed(t1.1) budget.warned(activetime) turn.started
        call read/pure => turn.completed tool.started(t2.1)
        done t2.1 ok   => tool.completed(t2.1) budget.reached(activetime) run.waiting(budget) | waiting budget
    "#,
    );
}

#[test]
fn what_is_left_of_the_account_cuts_the_reply_or_parks() {
    check(
        money(70_000),
        r#"
        claim              => run.claimed | running
        see                => run.perceived turn.started
        ? step             => ask turn 1 try 1 max 4096
        call read/pure     => turn.completed tool.started(t1.1)
        done t1.1 ok       => tool.completed(t1.1) turn.started
        ? step             => ask turn 2 try 1 max 4096
        crash              =>
        claim              => run.claimed
        go                 => run.recovered turn.failed(lost) budget.warned(money) budget.reached(money) run.waiting(budget) | waiting budget
        raise money 500000 => budget.raised | running
        claim              => run.claimed
        go                 => turn.started
        ? step             => ask turn 2 try 2 max 4096
        say Done.          => turn.completed run.completed(Done.) | completed
    "#,
    );
    check(
        money(40_000),
        r#"
        claim     => run.claimed | running
        see       => run.perceived budget.warned(money) turn.started
        ? step    => ask turn 1 try 1 max 2529
        ? said    => [longhaul] Little is left of the budget of money. Bring the work to a good end now: finish what is half done, and say what is left.
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
    let tokens = capped(Budget {
        tokens: Some(1_000),
        ..Budget::default()
    });
    check(
        tokens,
        r#"
        claim  => run.claimed | running
        see    => run.perceived budget.reached(tokens) run.waiting(budget) | waiting budget
        resume => run.resumed | running
        claim  => run.claimed
        go     => budget.reached(tokens) run.waiting(budget) | waiting budget
        cancel => run.cancel_requested | running
        claim  => run.claimed
        go     => run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_run_makes_so_many_turns_and_no_more() {
    let two = Policy {
        max_turns: Some(2),
        ..plain()
    };
    check(
        two,
        r#"
        claim             => run.claimed | running
        see               => run.perceived turn.started
        call nonsense/bad => turn.completed tool.failed(t1.1) turn.started
        call nonsense/bad => turn.completed tool.failed(t2.1) run.failed(turn_limit) | failed
        ? outcome         => turn_limit: the run has made the 2 turns it may make
    "#,
    );
    check(
        Policy {
            max_turns: Some(2),
            ..plain()
        },
        r#"
        claim                      => run.claimed | running
        see                        => run.perceived turn.started
        call read/pure             => turn.completed tool.started(t1.1)
        done t1.1 ok               => tool.completed(t1.1) turn.started
        call read/pure + send/once => turn.completed tool.failed(t2.1) tool.failed(t2.2) run.failed(turn_limit) | failed
    "#,
    );
}
