//! Soft and hard timeouts of an attempt: what they count, and how an attempt ends.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::time::Millis;
use longhaul_run::state::control::RetryCounts;

use super::harness::script::check;
use super::policies::{ask_rule, plain};

/// A policy with a soft timeout of 5 s and a hard timeout of 10 s.
fn timed() -> RunPolicy {
    let retry = RetryPolicy {
        soft_timeout: Some(Millis::from_secs(5)),
        hard_timeout: Some(Millis::from_secs(10)),
        ..RetryPolicy::default()
    };
    RunPolicy { retry, rules: vec![ask_rule()], ..RunPolicy::default() }
}

#[test]
fn an_attempt_is_overdue_then_stopped_then_retried_then_failed() {
    check(
        timed(),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        late 4      =>
        late 5      => run.overdue
        late 9      =>
        ? why       => The run is calling the model, turn 1. It takes longer than its soft timeout.
        late 10     => run.timed_out
        late 11     =>
        err stopped => turn.failed(stopped) run.retry_scheduled run.waiting(retry) | waiting retry
        ? timers    => [1000]
        ? why       => The attempt reached its hard timeout; the next attempt is at 2026-01-01T00:00:01.000000Z.
        fire        => timer.fired | running
        claim       => run.claimed
        go          => run.retried(2) turn.started
        late 4      =>
        late 5      => run.overdue
        late 10     => run.timed_out
        err stopped => turn.failed(stopped) run.failed(timeout) | failed
        ? outcome   => timeout: attempt 2 of the run was stopped after its hard timeout of 10s
    "#,
    );
}

#[test]
fn the_calls_of_a_stopped_attempt_end_with_it() {
    // The second call has not started, the third waits for a person.
    check(
        timed(),
        r#"
        claim                                   => run.claimed | running
        see                                     => run.prepared turn.started
        call send/once + send/once + shell/once => turn.completed gate.raised(approval) tool.started(t1.1)
        late 10                                 => run.timed_out
        kill t1.1 stopped                       => tool.interrupted(t1.1) tool.failed(t1.2) gate.withdrawn tool.failed(t1.3) run.retry_scheduled run.waiting(retry) | waiting retry
        fire                                    => timer.fired | running
        claim                                   => run.claimed
        go                                      => run.retried(2) turn.started
        say Done.                               => turn.completed run.completed(Done.) | completed
    "#,
    );
    // A result that arrives in time ends the run.
    check(
        timed(),
        r#"
        claim     => run.claimed | running
        see       => run.prepared turn.started
        late 10   => run.timed_out
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
    // A call in doubt is decided first.
    check(
        timed(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call send/once!ask => turn.completed tool.started(t1.1)
        late 10           => run.timed_out
        lose t1.1         => tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        answer It was sent. => gate.answered | running
        claim             => run.claimed
        go                => tool.completed(t1.1) run.retry_scheduled run.waiting(retry) | waiting retry
    "#,
    );
}

#[test]
fn waits_do_not_count_and_recorded_time_does() {
    // Each call takes 700 ms.
    check(
        timed(),
        r#"
        claim                         => run.claimed | running
        see                           => run.prepared turn.started
        call wait/pure {"for": "1h"}  => turn.completed tool.started(t1.1) run.waiting(timer) | waiting timer
        tick 3600                     => timer.fired | running
        claim                         => run.claimed
        go                            => tool.completed(t1.1) turn.started
        late 4                        =>
        late 5                        => run.overdue
        late 9                        =>
        late 10                       => run.timed_out
    "#,
    );
}

#[test]
fn the_deadline_survives_a_takeover() {
    // The dead driver worked for 8 s after the start of the call, as its progress shows. The time
    // until the takeover does not count.
    check(
        timed(),
        r#"
        claim            => run.claimed | running
        see              => run.prepared turn.started
        call write/keyed => turn.completed tool.started(t1.1)
        tick 8           =>
        progress t1.1 80 => tool.progress
        tick 600         =>
        crash            =>
        claim            => run.claimed
        go               => run.recovered tool.started(t1.1 again 2)
        late 1           => run.overdue
        late 2           => run.timed_out
        kill t1.1        => tool.interrupted(t1.1) run.retry_scheduled run.waiting(retry) | waiting retry
        fire             => timer.fired | running
        claim            => run.claimed
        go               => run.retried(2) turn.started
        late 4           =>
    "#,
    );
    // A driver that dies after the timeout leaves the attempt ended.
    check(
        timed(),
        r#"
        claim            => run.claimed | running
        see              => run.prepared turn.started
        call write/keyed => turn.completed tool.started(t1.1)
        late 10          => run.timed_out
        crash            =>
        claim            => run.claimed
        go               => run.recovered tool.failed(t1.1) run.retry_scheduled run.waiting(retry) | waiting retry
    "#,
    );
}

#[test]
fn provider_retries_tool_retries_and_takeovers_are_counted_separately() {
    let counts = |script: &str| {
        let test_run = check(plain(), script);
        let control = test_run.run.control();
        (control.attempt.number, control.retries)
    };
    let provider = counts(
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
    "#,
    );
    let expected = RetryCounts { model_calls: 1, ..RetryCounts::default() };
    assert_eq!(provider, (1, expected));
    // A lost worker uses up neither the retries of the run nor those of the provider.
    let lost_model_call = counts(
        r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        crash =>
        claim => run.claimed
        go    => run.recovered turn.failed(lost) turn.started
        crash =>
        claim => run.claimed
        go    => run.recovered turn.failed(lost) turn.started
    "#,
    );
    let expected = RetryCounts { takeovers: 2, ..RetryCounts::default() };
    assert_eq!(lost_model_call, (1, expected));
    let lost_tool_call = counts(
        r#"
        claim            => run.claimed | running
        see              => run.prepared turn.started
        call write/keyed => turn.completed tool.started(t1.1)
        crash            =>
        claim            => run.claimed
        go               => run.recovered tool.started(t1.1 again 2)
    "#,
    );
    let expected = RetryCounts { tool_calls: 1, takeovers: 1, ..RetryCounts::default() };
    assert_eq!(lost_tool_call, (1, expected));
}
