//! Budget caps: one warning, shorter replies when little is left, and parking at the cap.
//!
//! The harness checks after every append that no hold exceeds the cap.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;

use super::harness::TestRun;
use super::harness::children::child_id;
use super::harness::rows::Head;
use super::harness::script::{check, check_in};
use super::policies::{plain, with_caps, with_money_cap};

#[test]
fn a_turn_cap_parks_the_run_and_a_raise_wakes_it() {
    let turns = with_caps(Budget { turns: Some(2), ..Budget::default() });
    check(
        turns,
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        call read/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1) budget.warned(turns) turn.started
        call read/pure       => turn.completed tool.started(t2.1)
        done t2.1 ok         => tool.completed(t2.1) budget.reached(turns) run.waiting(budget) | waiting budget
        ? why                => The run's budget of turns is used up.
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
fn a_budget_warning_is_given_once() {
    let turns = with_caps(Budget { turns: Some(10), warn_percent: 20, ..Budget::default() });
    check(
        turns,
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call nonsense/bad => turn.completed tool.failed(t1.1) turn.started
        call nonsense/bad => turn.completed tool.failed(t2.1) budget.warned(turns) turn.started
        ? said            => [longhaul] Little is left of the budget of turns. Wrap up your work now: finish what you started, and list what remains to be done.
        call nonsense/bad => turn.completed tool.failed(t3.1) turn.started
        raise turns 12    => budget.raised
        call nonsense/bad => turn.completed tool.failed(t4.1) budget.warned(turns) turn.started
    "#,
    );
}

#[test]
fn an_active_time_cap_parks_the_run() {
    let time = with_caps(Budget { active: Some(Millis(1_500)), ..Budget::default() });
    check(
        time,
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        call read/pure => turn.completed tool.started(t1.1)
        done t1.1 ok   => tool.completed(t1.1) budget.warned(activetime) turn.started
        call read/pure => turn.completed budget.reached(activetime) run.waiting(budget) | waiting budget
        raise active 60    => budget.raised | running
        claim          => run.claimed
        go             => tool.started(t2.1)
        done t2.1 ok   => tool.completed(t2.1) turn.started
    "#,
    );
}

#[test]
fn an_active_time_cap_ends_the_work_in_progress() {
    let time = || with_caps(Budget { active: Some(Millis(1_500)), ..Budget::default() });
    check(
        time(),
        r#"
        claim              => run.claimed | running
        see                => run.prepared turn.started
        late 1             =>
        late 2             => budget.reached(activetime)
        late 3             =>
        err stopped        => turn.failed(stopped) run.waiting(budget) | waiting budget
        raise active 60    => budget.raised | running
        claim              => run.claimed
        go                 => turn.started
        call read/pure     => turn.completed tool.started(t1.1)
        late 60            => budget.reached(activetime)
        kill t1.1 stopped  => tool.interrupted(t1.1) run.waiting(budget) | waiting budget
    "#,
    );
    // A final answer that arrives at the cap ends the run. A driver that dies at the cap leaves its
    // repeatable call to the driver that continues after a raise.
    check(
        time(),
        r#"
        claim     => run.claimed | running
        see       => run.prepared turn.started
        late 2    => budget.reached(activetime)
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
    check(
        time(),
        r#"
        claim              => run.claimed | running
        see                => run.prepared turn.started
        call write/keyed   => turn.completed tool.started(t1.1)
        late 2             => budget.reached(activetime)
        crash              =>
        claim              => run.claimed
        go                 => run.recovered run.waiting(budget) | waiting budget
        raise active 60    => budget.raised | running
        claim              => run.claimed
        go                 => tool.started(t1.1 again 2)
    "#,
    );
}

#[test]
fn the_remaining_budget_limits_the_reply_or_parks_the_run() {
    check(
        with_money_cap(70_000),
        r#"
        claim              => run.claimed | running
        see                => run.prepared turn.started
        ? step             => ask turn 1 try 1 max 4096
        call read/pure     => turn.completed tool.started(t1.1)
        done t1.1 ok       => tool.completed(t1.1) budget.warned(money) turn.started
        ? step             => ask turn 2 try 1 max 4096
        crash              =>
        claim              => run.claimed
        go                 => run.recovered turn.failed(lost) budget.reached(money) run.waiting(budget) | waiting budget
        raise money 500000 => budget.raised | running
        claim              => run.claimed
        go                 => turn.started
        ? step             => ask turn 2 try 2 max 4096
        say Done.          => turn.completed run.completed(Done.) | completed
    "#,
    );
    check(
        with_money_cap(40_000),
        r#"
        claim     => run.claimed | running
        see       => run.prepared budget.warned(money) turn.started
        ? step    => ask turn 1 try 1 max 2529
        ? said    => [longhaul] Little is left of the budget of money. Wrap up your work now: finish what you started, and list what remains to be done.
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
    let tokens = with_caps(Budget { tokens: Some(1_000), ..Budget::default() });
    check(
        tokens,
        r#"
        claim  => run.claimed | running
        see    => run.prepared budget.reached(tokens) run.waiting(budget) | waiting budget
        resume => run.resumed | running
        claim  => run.claimed
        go     => run.waiting(budget) | waiting budget
        cancel => run.cancel_requested | running
        claim  => run.claimed
        go     => run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_run_has_a_turn_to_wrap_up_before_its_budget_is_exhausted() {
    // The next call is too expensive, and a shorter reply is not.
    check(
        with_money_cap(200_000),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        others 0 170000   =>
        call nonsense/bad => turn.completed tool.failed(t1.1) budget.warned(money) turn.started
        ? step            => ask turn 2 try 1 max 1819
        others 0 190000   =>
        call nonsense/bad => turn.completed tool.failed(t2.1) budget.reached(money) run.waiting(budget) | waiting budget
    "#,
    );
    // A call that fits is the turn to wrap up if it may leave too little for another one.
    check(
        with_money_cap(200_000),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        others 0 115000   =>
        call nonsense/bad => turn.completed tool.failed(t1.1) turn.started
        others 0 125000   =>
        call nonsense/bad => turn.completed tool.failed(t2.1) budget.warned(money) turn.started
        ? step            => ask turn 3 try 1 max 4096
        ? said            => [longhaul] Little is left of the budget of money. Wrap up your work now: finish what you started, and list what remains to be done.
        say Done.         => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_call_that_does_not_fit_beside_the_holds_of_other_runs_waits_for_them() {
    check(
        with_money_cap(100_000),
        r#"
        claim           => run.claimed | running
        others 50000 0  =>
        see             => run.prepared run.waiting(budget_held) | waiting budget_held
        ? why           => The run waits until model calls of other runs of its tree release what they hold of the budget; it then continues automatically.
        others 40000 0  =>
        claim           => !not ready
        others 0 10000  =>
        claim           => run.claimed | running
        go              => turn.started
        ? step          => ask turn 1 try 1 max 4096
        say Done.       => turn.completed run.completed(Done.) | completed
    "#,
    );
    // What other runs hold leaves room for a short reply, which nobody wants. They then spend so much
    // that the whole reply does not fit any more.
    check(
        with_money_cap(100_000),
        r#"
        claim           => run.claimed | running
        others 60000 0  =>
        see             => run.prepared run.waiting(budget_held) | waiting budget_held
        tick 1          =>
        others 0 60000  =>
        claim           => run.claimed | running
        go              => budget.warned(money) turn.started
        ? step          => ask turn 1 try 1 max 2529
    "#,
    );
    // After the holds are settled, nothing useful is left.
    check(
        with_money_cap(100_000),
        r#"
        claim           => run.claimed | running
        others 90000 0  =>
        see             => run.prepared run.waiting(budget_held) | waiting budget_held
        others 0 90000  =>
        claim           => run.claimed | running
        go              => budget.warned(money) budget.reached(money) run.waiting(budget) | waiting budget
        ? why           => The run's budget of money is used up.
    "#,
    );
}

#[test]
fn a_warned_run_waits_for_a_short_reply_instead_of_all_that_is_left() {
    check(
        with_money_cap(200_000),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        others 40000 140000 =>
        call nonsense/bad   => turn.completed tool.failed(t1.1) budget.warned(money) run.waiting(budget_held) | waiting budget_held
        others 30000 140000 =>
        claim               => !not ready
        others 20000 140000 =>
        claim               => run.claimed | running
        go                  => turn.started
        ? step              => ask turn 2 try 1 max 2486
    "#,
    );
}

#[test]
fn the_model_is_warned_when_the_tree_has_used_most_of_its_budget() {
    check(
        with_money_cap(1_000_000),
        r#"
        claim             => run.claimed | running
        others 0 800000   =>
        see               => run.prepared turn.started
        others 0 920000   =>
        call nonsense/bad => turn.completed tool.failed(t1.1) budget.warned(money) turn.started
        ? said            => [longhaul] Little is left of the budget of money. Wrap up your work now: finish what you started, and list what remains to be done.
        ? step            => ask turn 2 try 1 max 4096
        call nonsense/bad => turn.completed tool.failed(t2.1) turn.started
        say Done.         => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn the_money_cap_of_a_child_binds_its_own_spending() {
    let child = || {
        let mut run = TestRun::with_task(|task| {
            task.policy = with_money_cap(70_000);
            task.parent = Some(child_id(1));
        });
        run.rows.account.cap.micro_usd = Some(MicroUsd(1_000_000));
        run
    };
    let script = r#"
        claim              => run.claimed | running
        see                => run.prepared turn.started
        call read/pure     => turn.completed tool.started(t1.1)
        done t1.1 ok       => tool.completed(t1.1) budget.warned(money) turn.started
        crash              =>
        claim              => run.claimed
        go                 => run.recovered turn.failed(lost) budget.reached(money) run.waiting(budget) | waiting budget
        ? why              => The run's budget of money is used up.
        raise money 500000 => budget.raised | running
        claim              => run.claimed
        go                 => turn.started
    "#;
    check_in(child(), script);
    let mut of_tree = child();
    of_tree.rows.account.cap.micro_usd = Some(MicroUsd(50_000));
    check_in(
        of_tree,
        r#"
        claim          => run.claimed | running
        others 0 49000 =>
        see            => run.prepared budget.warned(money) budget.reached(money) run.waiting(budget) | waiting budget
        ? why          => The run's budget of money of its whole tree is used up.
    "#,
    );
    let mut short_replies = child();
    short_replies.rows.account.cap.micro_usd = Some(MicroUsd(50_000));
    check_in(
        short_replies,
        r#"
        claim              => run.claimed | running
        others 0 49000     =>
        see max_output=512 => run.prepared budget.warned(money) budget.reached(money) run.waiting(budget) | waiting budget
        ? why              => The run's budget of money of its whole tree is used up.
    "#,
    );
}

#[test]
fn a_raise_that_raises_nothing_does_not_warn_the_model_again() {
    check(
        with_money_cap(1_000_000),
        r#"
        claim               => run.claimed | running
        others 0 800000     =>
        see                 => run.prepared turn.started
        others 0 920000     =>
        call nonsense/bad   => turn.completed tool.failed(t1.1) budget.warned(money) turn.started
        raise money 1000000 => budget.raised
        raise turns 500     => budget.raised
        call nonsense/bad   => turn.completed tool.failed(t2.1) turn.started
        raise money 1010000 => budget.raised
        call nonsense/bad   => turn.completed tool.failed(t3.1) budget.warned(money) turn.started
    "#,
    );
}

#[test]
fn the_cap_that_does_not_cover_the_shortest_reply_is_exhausted() {
    let caps = Budget { micro_usd: Some(MicroUsd(25_000)), tokens: Some(1), ..Budget::default() };
    check(
        with_caps(caps),
        r#"
        claim     => run.claimed | running
        see       => run.prepared budget.reached(tokens) run.waiting(budget) | waiting budget
        ? why     => The run's budget of tokens is used up.
        ? command => longhaul resume RUN --budget tokens=100000
    "#,
    );
}

#[test]
fn the_named_raise_covers_messages_that_are_larger_than_the_whole_budget() {
    let mut test_run =
        TestRun::new(with_caps(Budget { tokens: Some(50_000), ..Budget::default() }));
    for line in ["claim", "see"] {
        test_run.play(line);
    }
    for _ in 0..6 {
        test_run.play(&format!("steer after_batch {}", "x".repeat(60_000)));
    }
    let parked = test_run.play("call nonsense/bad");
    assert!(parked.contains("budget.reached(tokens) run.waiting(budget)"), "{parked}");
    let command = test_run.play("? command");
    let tokens = command.strip_prefix("longhaul resume RUN --budget tokens=").unwrap().to_owned();
    for line in [&format!("resume tokens {tokens}"), "claim"] {
        test_run.play(line);
    }
    let woken = test_run.play("go");
    assert!(woken.contains("turn.started"), "{command}: {woken}");
}

#[test]
fn a_root_run_learns_of_a_cap_that_was_raised_through_another_run() {
    let mut step = TestRun::with_task(|task| task.policy = with_money_cap(1_000_000));
    step.rows.account.cap.micro_usd = Some(MicroUsd(5_000_000));
    let mut step = check_in(
        step,
        r#"
        claim            => run.claimed | running
        others 0 4999000 =>
        see              => run.prepared budget.warned(money) budget.reached(money) run.waiting(budget) | waiting budget
        ? why            => The run's budget of money is used up.
        ? command        => longhaul resume RUN --budget usd=10
    "#,
    );
    // A raise through another run of the account changes no journal but its own.
    step.rows.account.cap.micro_usd = Some(MicroUsd(10_000_000));
    step.rows.head = Head::Ready;
    check_in(
        step,
        r#"
        claim => run.claimed | running
        go    => turn.started
    "#,
    );
}

#[test]
fn max_turns_ends_the_run() {
    let two = RunPolicy { max_turns: Some(2), ..plain() };
    check(
        two,
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call nonsense/bad => turn.completed tool.failed(t1.1) budget.warned(turns) turn.started
        ? said            => [longhaul] Little is left of the budget of turns. Wrap up your work now: finish what you started, and list what remains to be done.
        call nonsense/bad => turn.completed tool.failed(t2.1) run.failed(turn_limit) | failed
        ? outcome         => turn_limit: the run has reached its limit of 2 turns
    "#,
    );
    check(
        RunPolicy { max_turns: Some(2), ..plain() },
        r#"
        claim                      => run.claimed | running
        see                        => run.prepared turn.started
        call read/pure             => turn.completed tool.started(t1.1)
        done t1.1 ok               => tool.completed(t1.1) budget.warned(turns) turn.started
        call read/pure + send/once => turn.completed tool.failed(t2.1) tool.failed(t2.2) run.failed(turn_limit) | failed
    "#,
    );
}
