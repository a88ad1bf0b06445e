//! Gates that programs raise: the run continues, but can't end before they are answered.

use super::harness::script::check;
use super::policies::{plain, result_gate};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::gate::GateTimeoutAction;

#[test]
fn a_run_ends_after_the_signals_that_programs_announced() {
    check(
        plain(),
        r#"
        claim                         => run.claimed | running
        signal the build              => gate.raised(signal)
        see                           => run.prepared turn.started
        call read/pure                => turn.completed tool.started(t1.1)
        done t1.1 ok                  => tool.completed(t1.1) turn.started
        say Done.                     => turn.completed run.waiting(signal) | waiting signal
        yes                           => !invalid_decision
        complete data {"build": 7}    => gate.answered | running
        complete @1                   => !already_answered
        claim                         => run.claimed
        go                            => turn.started(signal)
        ? said                        => [longhaul] This has happened: the build ¶ {"build": 7}
        say The build is green.       => turn.completed run.completed(The build is green.) | completed
    "#,
    );
}

#[test]
fn a_signal_does_not_answer_a_question() {
    check(
        plain(),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.prepared turn.started
        call ask_human/pure {"question": "Which?"} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        signal the build                           => gate.raised(signal)
        complete @2                                => gate.answered | running
        claim                                      => run.claimed
        go                                         => run.waiting(question) | waiting question
        answer Blue.                               => gate.answered | running
        claim                                      => run.claimed
        go                                         => tool.completed(t1.1) turn.started(signal)
        ? said                                     => [longhaul] This has happened: the build
        say Done.                                  => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_missing_signal_is_reported_before_the_result_is_approved() {
    check(
        result_gate(GateTimeoutAction::Reject),
        r#"
        claim            => run.claimed | running
        signal the build => gate.raised(signal)
        see              => run.prepared turn.started
        say Done.        => turn.completed run.waiting(signal) | waiting signal
        tick 600         => gate.expired(reject) | running
        claim            => run.claimed
        go               => turn.started(signal)
        ? said           => [longhaul] This has not happened before the deadline: the build
        say Without it.  => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
    "#,
    );
    check(
        plain(),
        r#"
        claim            => run.claimed | running
        signal the build => gate.raised(signal)
        see              => run.prepared turn.started
        say Done.        => turn.completed run.waiting(signal) | waiting signal
        cancel enough    => run.cancel_requested | running
        claim            => run.claimed
        go               => gate.withdrawn run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_signal_that_arrives_during_a_reply_is_sent_to_the_model_before_the_run_ends() {
    check(
        plain(),
        r#"
        claim            => run.claimed | running
        signal the build => gate.raised(signal)
        see              => run.prepared turn.started
        complete         => gate.answered
        say Done.        => turn.completed turn.started(signal)
        ? said           => [longhaul] This has happened: the build
        say The end.     => turn.completed run.completed(The end.) | completed
    "#,
    );
}

#[test]
fn a_run_without_turns_left_ends_with_its_result() {
    check(
        RunPolicy { max_turns: Some(1), ..plain() },
        r#"
        claim            => run.claimed | running
        signal the build => gate.raised(signal)
        see              => run.prepared turn.started
        say Done.        => turn.completed run.waiting(signal) | waiting signal
        complete         => gate.answered | running
        claim            => run.claimed
        go               => run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_signal_withdraws_the_approval_of_a_result_that_may_change() {
    check(
        result_gate(GateTimeoutAction::Reject),
        r#"
        claim            => run.claimed | running
        see              => run.prepared turn.started
        say Done.        => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        signal the build => gate.raised(signal)
        complete @2      => gate.answered | running
        claim            => run.claimed
        go               => gate.withdrawn turn.started(signal)
        say Built.       => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        yes              => gate.answered | running
        claim            => run.claimed
        go               => run.completed(Built.) | completed
    "#,
    );
}
