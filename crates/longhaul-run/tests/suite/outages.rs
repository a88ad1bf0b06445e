//! Providers that are unavailable for longer than the quick retries, and providers that refuse the key
//! or the account of a run.
//!
//! Invariant: a run with recorded work does not fail because its provider is unavailable for a while.

use longhaul_core::policy::RunPolicy;
use longhaul_core::time::Millis;

use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::{plain, with_outage};

/// A run whose first model call has failed four times with `overloaded`, so that it waits.
fn run_in_outage(policy: RunPolicy, models: &str) -> TestRun {
    let mut test_run = TestRun::new(policy);
    test_run.play("claim");
    test_run.play(&format!("see {models}"));
    for _ in 0..3 {
        for line in ["err overloaded", "fire", "claim", "go"] {
            test_run.play(line);
        }
    }
    test_run.play("err overloaded");
    test_run
}

#[test]
fn a_run_waits_for_an_unavailable_provider_and_fails_only_after_the_whole_outage() {
    let test_run = run_in_outage(with_outage(Millis::from_secs(60)), "");
    check_in(
        test_run,
        r#"
        ? timers       => [19676]
        ? why          => The provider is unavailable (overloaded) since 2026-01-01T00:00:14.960000Z; the next attempt is at 2026-01-01T00:00:34.636000Z, the last one at 2026-01-01T00:01:14.960000Z.
        ? command      => longhaul resume RUN
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        ? step         => ask turn 1 try 5 max 4096
        err network    => turn.failed(network) run.waiting(outage) | waiting outage
        ? timers       => [33498]
        ? why          => The provider is unavailable (network) since 2026-01-01T00:00:14.960000Z; the next attempt is at 2026-01-01T00:01:08.134000Z, the last one at 2026-01-01T00:01:14.960000Z.
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err server     => turn.failed(server) run.waiting(outage) | waiting outage
        ? timers       => [6826]
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err overloaded => turn.failed(overloaded) run.failed(overloaded) | failed
        ? outcome      => overloaded: the provider was unavailable for 1m: the provider said overloaded
        ? hint         => when the provider is available again: `longhaul retry RUN`
    "#,
    );
}

#[test]
fn a_reply_ends_the_outage() {
    let test_run = run_in_outage(plain(), "");
    check_in(
        test_run,
        r#"
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        call list/pure => turn.completed tool.started(t1.1)
        done t1.1 ok   => tool.completed(t1.1) turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
    "#,
    );
}

#[test]
fn requests_during_an_outage_do_not_count_as_attempts() {
    let mut test_run = run_in_outage(with_outage(Millis::from_secs(48 * 60 * 60)), "");
    for _ in 0..200 {
        for line in ["fire", "claim", "go"] {
            test_run.play(line);
        }
        let result = test_run.play("err timeout");
        assert_eq!(result, "turn.failed(timeout) run.waiting(outage)");
        let delay: u64 = test_run.play("? timers").trim_matches(['[', ']']).parse().unwrap();
        assert!(delay <= 600_000, "{delay}");
    }
    test_run.play("fire");
    check_in(
        test_run,
        r#"
        claim     => run.claimed
        go        => turn.started
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_run_that_waits_for_a_provider_can_be_woken_early() {
    let test_run = run_in_outage(plain(), "");
    check_in(
        test_run,
        r#"
        surface t9.9            => tool.surfaced(t9.9) | running
        claim                   => run.claimed
        go                      => run.waiting(outage) | waiting outage
        ? timers                => [19676]
        resume                  => run.resumed | running
        claim                   => run.claimed
        go                      => turn.started
        err overloaded          => turn.failed(overloaded) run.waiting(outage) | waiting outage
        ? timers                => [33498]
        steer after_batch Hurry => steer.queued | running
        claim                   => run.claimed
        go                      => steer.delivered(after turn 0) turn.started
        crash                   =>
        claim                   => run.claimed
        go                      => run.recovered turn.failed(lost) turn.started
        pause                   => run.pause_requested
        err overloaded          => turn.failed(overloaded) run.paused | paused
        resume                  => run.resumed | running
        claim                   => run.claimed
        go                      => turn.started
        cancel                  => run.cancel_requested
        err overloaded          => turn.failed(overloaded) run.cancelled | cancelled
    "#,
    );
}

#[test]
fn fallback_models_are_tried_before_each_wait() {
    // The preferred model is tried with quick retries, then the fallback model.
    let mut test_run = run_in_outage(plain(), "b/x");
    assert_eq!(test_run.play("? model"), "b/x");
    for _ in 0..3 {
        for line in ["err overloaded", "fire", "claim", "go"] {
            test_run.play(line);
        }
    }
    check_in(
        test_run,
        r#"
        err overloaded => turn.failed(overloaded) run.waiting(outage) | waiting outage
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        ? model        => scripted/poem
        err overloaded => turn.failed(overloaded) turn.started
        ? model        => b/x
        err overloaded => turn.failed(overloaded) run.waiting(outage) | waiting outage
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        ? model        => scripted/poem
        err overloaded => turn.failed(overloaded) turn.started
        say Done.      => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_refused_key_of_a_fallback_model_does_not_end_the_wait_for_the_preferred_model() {
    for class in ["auth", "quota"] {
        let mut test_run = run_in_outage(plain(), "b/x");
        assert_eq!(test_run.play("? model"), "b/x");
        let waits = format!("turn.failed({class}) run.waiting(outage)");
        assert_eq!(test_run.play(&format!("err {class}")), waits);
        assert!(test_run.play("? why").contains("unavailable (overloaded) since"));
        for line in ["fire", "claim", "go", "err server"] {
            test_run.play(line);
        }
        assert_eq!(test_run.play("? model"), "b/x");
        assert_eq!(test_run.play(&format!("err {class}")), waits);
        // The key of both models is refused: the run does not wait for an outage.
        for line in ["fire", "claim", "go", "err auth"] {
            test_run.play(line);
        }
        assert_eq!(test_run.play("? model"), "b/x");
        let fails = format!("turn.failed({class}) run.failed({class})");
        assert_eq!(test_run.play(&format!("err {class}")), fails);
    }
}

#[test]
fn a_refused_key_or_account_blocks_a_run_with_recorded_work() {
    for (class, remedy) in
        [("auth", "Fix the provider's key"), ("quota", "Add credit to the provider's account")]
    {
        let mut test_run = TestRun::new(plain());
        for line in ["claim", "see", "call list/pure", "done t1.1 ok"] {
            test_run.play(line);
        }
        let result = test_run.play(&format!("err {class}"));
        assert_eq!(result, format!("turn.failed({class}) gate.raised(blocked) run.blocked"));
        let expected = format!(
            "The run is blocked: the provider said {class}. {remedy}, then continue: `longhaul resume {}`.",
            test_run.run.id()
        );
        assert_eq!(test_run.play("? why"), expected);
        check_in(
            test_run,
            r#"
            ? command => longhaul resume RUN
            resume    => run.resumed | running
            claim     => run.claimed
            go        => gate.withdrawn turn.started
            ? step    => ask turn 2 try 2 max 4096
            say Done. => turn.completed run.completed(Done.) | completed
        "#,
        );
    }
}

#[test]
fn a_resumed_run_that_is_refused_again_is_blocked_again() {
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call list/pure    => turn.completed tool.started(t1.1)
        done t1.1 ok      => tool.completed(t1.1) turn.started
        err auth          => turn.failed(auth) gate.raised(blocked) run.blocked | blocked blocked
        resume            => run.resumed | running
        claim             => run.claimed
        go                => gate.withdrawn turn.started
        err auth          => turn.failed(auth) gate.raised(blocked) run.blocked | blocked blocked
        surface t9.9      => tool.surfaced(t9.9) | running
        claim             => run.claimed
        go                => run.blocked | blocked blocked
        answer It is set. => gate.answered | running
        claim             => run.claimed
        go                => turn.started
    "#,
    );
}

#[test]
fn a_refused_key_does_not_fail_a_required_compaction() {
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        call list/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1) turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        err auth             => turn.failed(auth) gate.raised(blocked) run.blocked | blocked blocked
        resume               => run.resumed | running
        claim                => run.claimed
        go                   => gate.withdrawn turn.started
        ? step               => compact turn 2 try 3
        sum 2                => memory.compacted turn.started
    "#,
    );
}

#[test]
fn a_run_parks_before_it_calls_a_provider_that_another_run_found_limited() {
    check(
        plain(),
        r#"
        limit 100                =>
        claim                    => run.claimed | running
        see                      => run.prepared run.waiting(rate_limit) | waiting rate_limit
        ? timers                 => [107498]
        ? why                    => The provider limits the request rate; the next attempt is at 2026-01-01T00:01:47.498000Z.
        fire                     => timer.fired | running
        claim                    => run.claimed
        go                       => turn.started
        ? step                   => ask turn 1 try 1 max 4096
        call list/pure           => turn.completed tool.started(t1.1)
        limit 40                 =>
        done t1.1 ok             => tool.completed(t1.1) run.waiting(rate_limit) | waiting rate_limit
        surface t9.9             => tool.surfaced(t9.9) | running
        claim                    => run.claimed
        go                       => run.waiting(rate_limit) | waiting rate_limit
        steer after_batch Hurry. => steer.queued | running
        claim                    => run.claimed
        go                       => steer.delivered(after turn 1) turn.started
        call list/pure           => turn.completed tool.started(t2.1)
        done t2.1 ok             => tool.completed(t2.1) run.waiting(rate_limit) | waiting rate_limit
        resume                   => run.resumed | running
        claim                    => run.claimed
        go                       => turn.started
    "#,
    );
    // A run with a fallback model is not parked: its failed call switches to that model.
    check(
        plain(),
        r#"
        limit 100           =>
        claim               => run.claimed | running
        see b/x             => run.prepared turn.started
        err rate_limit 3600 => turn.failed(rate_limit) turn.started
        ? model             => b/x
    "#,
    );
}

#[test]
fn a_limited_provider_does_not_prolong_the_wait_for_an_outage() {
    let test_run = run_in_outage(with_outage(Millis::from_secs(60)), "");
    check_in(
        test_run,
        r#"
        fire           => timer.fired | running
        limit 3600     =>
        claim          => run.claimed
        go             => run.waiting(outage) | waiting outage
        ? timers       => [40324]
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err overloaded => turn.failed(overloaded) run.failed(overloaded) | failed
    "#,
    );
}
