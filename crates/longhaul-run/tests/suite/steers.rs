//! Messages for a run in flight: when each is delivered, in every state.
//!
//! Invariant: no message is lost, and none is inserted between the results of a turn.

use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::GateTimeoutAction;

use super::harness::script::check;
use super::policies::{ask_rule, plain, result_gate, with_rule};

#[test]
fn a_message_is_delivered_after_the_batch() {
    check(
        plain(),
        r#"
        steer after_batch Use rhymes.    => steer.queued
        claim                            => run.claimed | running
        see                              => run.prepared steer.delivered(after turn 0) turn.started
        ? said                           => Use rhymes.
        steer after_batch Hurry.         => steer.queued
        resteer after_batch Don't hurry. => steer.changed
        call read/pure + shell/once      => turn.completed tool.started(t1.1)
        done t1.1 ok                     => tool.completed(t1.1) tool.started(t1.2)
        done t1.2 ok                     => tool.completed(t1.2) steer.delivered(after turn 1) turn.started
        ? said                           => Don't hurry.
        unsteer                          => !steer settled
        resteer after_batch              => !steer settled
    "#,
    );
}

#[test]
fn a_message_is_delivered_before_the_next_tool() {
    check(
        plain(),
        r#"
        claim                             => run.claimed | running
        see                               => run.prepared turn.started
        call shell/once + shell/once      => turn.completed tool.started(t1.1)
        steer before_next_tool Stop that. => steer.queued
        done t1.1 ok                      => tool.completed(t1.1) tool.failed(t1.2) steer.delivered(after turn 1) turn.started
        ? said                            => Stop that.
        steer before_next_tool No tools.  => steer.queued
        call shell/once                   => turn.completed tool.failed(t2.1) steer.delivered(after turn 2) turn.started
    "#,
    );
}

#[test]
fn an_interrupt_stops_running_work() {
    check(
        plain(),
        r#"
        claim                       => run.claimed | running
        see                         => run.prepared turn.started
        steer interrupt Rhyme!      => steer.queued
        halt Roses are              => turn.interrupted steer.delivered(after turn 1) turn.started
        ? said                      => Rhyme!
        steer interrupt And?        => steer.queued
        halt                        => turn.interrupted steer.delivered(after turn 2) turn.started
        call shell/once + read/pure => turn.completed tool.started(t3.1)
        steer interrupt Stop.       => steer.queued
        kill t3.1                   => tool.interrupted(t3.1) tool.failed(t3.2) steer.delivered(after turn 3) turn.started
        ? said                      => Stop.
    "#,
    );
}

#[test]
fn a_withdrawn_interrupt_leaves_a_valid_conversation() {
    check(
        plain(),
        r#"
        claim                  => run.claimed | running
        see                    => run.prepared turn.started
        steer interrupt Rhyme! => steer.queued
        unsteer                => steer.withdrawn
        halt Roses are         => turn.interrupted turn.started
        ? said                 => [longhaul] You were interrupted. Continue.
    "#,
    );
    check(
        plain(),
        r#"
        claim                  => run.claimed | running
        see                    => run.prepared turn.started
        steer interrupt Rhyme! => steer.queued
        pause                  => run.pause_requested
        halt Roses are         => turn.interrupted run.paused | paused
        unsteer                => steer.withdrawn
        resume                 => run.resumed | running
        claim                  => run.claimed
        go                     => turn.started
        ? said                 => [longhaul] You were interrupted. Continue.
    "#,
    );
    // A turn that the provider paused is sent back as it is.
    check(
        plain(),
        r#"
        claim                  => run.claimed | running
        see                    => run.prepared turn.started
        hold                   => turn.completed turn.started
        steer interrupt Rhyme! => steer.queued
        unsteer                => steer.withdrawn
        halt                   => turn.interrupted turn.started
        say Done.              => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_message_waits_for_an_approval_and_an_interrupt_withdraws_it() {
    check(
        with_rule(ask_rule()),
        r#"
        claim                    => run.claimed | running
        see                      => run.prepared turn.started
        call shell/once          => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        steer after_batch Hurry. => steer.queued | running
        claim                    => run.claimed
        go                       => run.waiting(approval) | waiting approval
        steer interrupt Stop.    => steer.queued | running
        claim                    => run.claimed
        go                       => gate.withdrawn tool.failed(t1.1) steer.delivered(after turn 1) steer.delivered(after turn 1) turn.started
        yes @1                   => !already_answered
    "#,
    );
}

#[test]
fn a_message_answers_an_open_question() {
    check(
        plain(),
        r#"
        claim                            => run.claimed | running
        see                              => run.prepared turn.started
        call ask_human/pure {"question": "Which?"} + report_blocked/pure {"reason": "no key"} => turn.completed gate.raised(question) gate.raised(blocked) run.waiting(question) | waiting question
        steer after_batch The blue one.  => steer.queued | running
        steer interrupt Here is the key. => steer.queued
        answer @1 Red.                   => gate.answered
        claim                            => run.claimed
        go                               => steer.delivered(as answer) gate.answered tool.completed(t1.1) tool.completed(t1.2) steer.delivered(after turn 1) turn.started
        ? said                           => Here is the key.
    "#,
    );
}

#[test]
fn a_message_from_before_the_question_is_not_its_answer() {
    check(
        plain(),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.prepared turn.started
        steer after_batch Use rhymes.              => steer.queued
        steer follow_up Then a song.               => steer.queued
        call ask_human/pure {"question": "Which?"} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        surface t9.9                               => tool.surfaced(t9.9) | running
        claim                                      => run.claimed
        go                                         => run.waiting(question) | waiting question
        answer Blue.                               => gate.answered | running
        claim                                      => run.claimed
        go                                         => tool.completed(t1.1) steer.delivered(after turn 1) turn.started
        say A poem.                                => turn.completed steer.delivered(after turn 2) turn.started
        ? said                                     => Then a song.
    "#,
    );
}

#[test]
fn a_message_ends_a_timer_wait_and_a_follow_up_does_not() {
    check(
        plain(),
        r#"
        claim                        => run.claimed | running
        see                          => run.prepared turn.started
        call wait/pure {"for": "1h"} => turn.completed tool.started(t1.1) run.waiting(timer) | waiting timer
        steer follow_up Later.       => steer.queued | running
        claim                        => run.claimed
        go                           => run.waiting(timer) | waiting timer
        steer after_batch Now.       => steer.queued | running
        claim                        => run.claimed
        go                           => tool.completed(t1.1) steer.delivered(after turn 1) turn.started
        ? said                       => Now.
        tick 3600                    => timer.fired
        say Done.                    => turn.completed steer.delivered(after turn 2) turn.started
    "#,
    );
}

#[test]
fn an_interrupt_ends_a_signal_wait() {
    check(
        plain(),
        r#"
        claim                               => run.claimed | running
        see                                 => run.prepared turn.started
        call wait/pure {"signal": "deploy"} => turn.completed gate.raised(signal) run.waiting(signal) | waiting signal
        steer after_batch Hm.               => steer.queued | running
        claim                               => run.claimed
        go                                  => run.waiting(signal) | waiting signal
        steer interrupt Stop waiting.       => steer.queued | running
        claim                               => run.claimed
        go                                  => gate.withdrawn tool.failed(t1.1) steer.delivered(after turn 1) steer.delivered(after turn 1) turn.started
    "#,
    );
}

#[test]
fn a_message_ends_a_retry_wait_and_a_follow_up_does_not() {
    check(
        plain(),
        r#"
        claim                  => run.claimed | running
        see                    => run.prepared turn.started
        err overloaded         => turn.failed(overloaded) run.waiting(retry) | waiting retry
        steer follow_up Later. => steer.queued | running
        claim                  => run.claimed
        go                     => run.waiting(retry) | waiting retry
        steer after_batch Now. => steer.queued | running
        claim                  => run.claimed
        go                     => steer.delivered(after turn 0) turn.started
        ? timers               => []
        say Done.              => turn.completed steer.delivered(after turn 1) turn.started
    "#,
    );
}

#[test]
fn a_message_does_not_end_a_budget_wait() {
    check(
        super::policies::with_money_cap(1),
        r#"
        claim                   => run.claimed | running
        see                     => run.prepared budget.reached(money) run.waiting(budget) | waiting budget
        steer interrupt Please. => steer.queued | running
        claim                   => run.claimed
        go                      => run.waiting(budget) | waiting budget
        resume                  => run.resumed | running
        claim                   => run.claimed
        go                      => run.waiting(budget) | waiting budget
        raise money 2           => budget.raised | running
        claim                   => run.claimed
        go                      => budget.reached(money) run.waiting(budget) | waiting budget
        raise money 9000000     => budget.raised | running
        claim                   => run.claimed
        go                      => steer.delivered(after turn 0) turn.started
    "#,
    );
}

#[test]
fn a_message_does_not_end_a_wait_for_turns() {
    let turns = Budget { turns: Some(1), ..Budget::default() };
    check(
        super::policies::with_caps(turns),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call nonsense/bad => turn.completed tool.failed(t1.1) budget.reached(turns) run.waiting(budget) | waiting budget
        steer interrupt X => steer.queued | running
        resume            => run.resumed
        claim             => run.claimed
        go                => budget.reached(turns) run.waiting(budget) | waiting budget
        raise turns 5     => budget.raised | running
        claim             => run.claimed
        go                => steer.delivered(after turn 1) turn.started
    "#,
    );
}

#[test]
fn an_interrupt_during_compaction_is_delivered_first() {
    check(
        plain(),
        r#"
        claim                       => run.claimed | running
        see                         => run.prepared turn.started
        err context_overflow        => turn.failed(context_overflow) turn.started
        steer interrupt Never mind. => steer.queued
        halt                        => turn.failed(stopped) steer.delivered(after turn 0) turn.started
        ? said                      => Never mind.
        ? step                      => compact turn 1 try 3
    "#,
    );
}

#[test]
fn a_message_keeps_a_run_from_ending() {
    check(
        result_gate(GateTimeoutAction::Approve),
        r#"
        claim                        => run.claimed | running
        see                          => run.prepared turn.started
        steer follow_up And a title. => steer.queued
        say A poem.                  => turn.completed steer.delivered(after turn 1) turn.started
        say Poem, a poem.            => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        steer after_batch No, wait.  => steer.queued | running
        claim                        => run.claimed
        go                           => run.waiting(approval) | waiting approval
        yes                          => gate.answered | running
        claim                        => run.claimed
        go                           => steer.delivered(after turn 2) turn.started
        say Poem.                    => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        steer interrupt Stop.        => steer.queued | running
        claim                        => run.claimed
        go                           => gate.withdrawn steer.delivered(after turn 3) turn.started
        ? said                       => Stop.
    "#,
    );
    check(
        plain(),
        r#"
        claim                                        => run.claimed | running
        see                                          => run.prepared turn.started
        call finish/pure {"output": "x"} + read/pure => turn.completed tool.completed(t1.1) tool.started(t1.2)
        steer after_batch One more thing.            => steer.queued
        done t1.2 ok                                 => tool.completed(t1.2) steer.delivered(after turn 1) turn.started
    "#,
    );
}

#[test]
fn a_message_is_dropped_at_the_end_and_rejected_after_it() {
    check(
        plain(),
        r#"
        claim                    => run.claimed | running
        see                      => run.prepared turn.started
        steer follow_up Later.   => steer.queued
        err auth                 => turn.failed(auth) steer.dropped run.failed(auth) | failed
        steer after_batch Hello? => !run_ended
    "#,
    );
}

#[test]
fn a_message_must_not_be_empty_or_too_long() {
    let mut test_run = super::harness::TestRun::new(plain());
    let long = "x".repeat(64 * 1024 + 1);
    assert_eq!(test_run.play(&format!("steer after_batch {long}")), "!too_long");
    assert_eq!(test_run.play("steer after_batch  "), "!empty");
    for _ in 0..64 {
        assert_eq!(test_run.play("steer after_batch x"), "steer.queued");
    }
    assert_eq!(test_run.play("steer after_batch x"), "!steers full");
}
