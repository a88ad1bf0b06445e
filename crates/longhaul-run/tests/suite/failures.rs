//! Failing models: retries of a request, retries of the run, compaction, and failure of the run.
//!
//! Invariant: every wait for a retry has a timer.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::time::Millis;

use super::harness::script::check;
use super::policies::{plain, with_outage};

#[test]
fn a_model_call_is_retried_after_2_4_8_seconds_then_the_run_if_it_waits_for_no_outage() {
    check(
        with_outage(Millis::ZERO),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        ? timers       => [2498]
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err network    => turn.failed(network) run.waiting(retry) | waiting retry
        ? timers       => [4056]
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err rate_limit => turn.failed(rate_limit) run.waiting(rate_limit) | waiting rate_limit
        ? timers       => [8406]
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err server     => turn.failed(server) run.retry_scheduled run.waiting(retry) | waiting retry
        ? timers       => [1000]
        fire           => timer.fired | running
        claim          => run.claimed
        go             => run.retried(2) turn.started
        ? step         => ask turn 1 try 5 max 4096
        err timeout    => turn.failed(timeout) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err timeout    => turn.failed(timeout) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err timeout    => turn.failed(timeout) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err timeout    => turn.failed(timeout) run.failed(timeout) | failed
        ? outcome      => timeout: the provider said timeout
        ? hint         => when the provider is available again: `longhaul retry RUN`
    "#,
    );
}

#[test]
fn the_timer_of_a_wait_that_was_cut_short_is_deleted() {
    for skip in [
        "resume => run.resumed | running\n claim => run.claimed\n go => turn.started",
        "steer after_batch Now. => steer.queued | running\n claim => run.claimed\n go => steer.delivered(after turn 0) turn.started",
    ] {
        check(
            with_outage(Millis::ZERO),
            &format!(
                r#"
            claim          => run.claimed | running
            see            => run.prepared turn.started
            err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
            ? timers       => [2498]
            {skip}
            ? timers       => []
            err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
            ? timers       => [4056]
        "#
            ),
        );
    }
}

#[test]
fn retry_after_is_a_minimum_delay_with_jitter_above_it() {
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        err rate_limit 40 => turn.failed(rate_limit) run.waiting(rate_limit) | waiting rate_limit
        ? timers          => [47498]
        ? why             => The provider limits the request rate; the next attempt is at 2026-01-01T00:00:47.498000Z.
        tick 47           =>
        tick 1            => timer.fired | running
        claim             => run.claimed
        go                => turn.started
    "#,
    );
    // An absurd delay is shortened to the time for which the run waits in an outage.
    check(
        plain(),
        r#"
        claim                           => run.claimed | running
        see                             => run.prepared turn.started
        err rate_limit 9223372036854775 => turn.failed(rate_limit) run.waiting(outage) | waiting outage
        steer after_batch Go on.        => steer.queued | running
        claim                           => run.claimed
        go                              => steer.delivered(after turn 0) turn.started
    "#,
    );
}

#[test]
fn a_permanent_failure_ends_the_run() {
    for class in ["auth", "invalid_request", "refused", "quota"] {
        let mut test_run = super::harness::TestRun::new(plain());
        test_run.play("claim");
        test_run.play("see");
        let result = test_run.play(&format!("err {class}"));
        assert_eq!(result, format!("turn.failed({class}) run.failed({class})"));
    }
    let never =
        RunPolicy { retry: RetryPolicy { max_retries: 0, ..RetryPolicy::default() }, ..plain() };
    // An internal error of the provider may be caused by the request, so it is no outage.
    check(
        never,
        r#"
        claim      => run.claimed | running
        see        => run.prepared turn.started
        err server => turn.failed(server) run.waiting(retry) | waiting retry
        fire       => timer.fired | running
        claim      => run.claimed
        go         => turn.started
        err server => turn.failed(server) run.waiting(retry) | waiting retry
        fire       => timer.fired | running
        claim      => run.claimed
        go         => turn.started
        err server => turn.failed(server) run.waiting(retry) | waiting retry
        fire       => timer.fired | running
        claim      => run.claimed
        go         => turn.started
        err server => turn.failed(server) run.failed(server) | failed
    "#,
    );
}

#[test]
fn a_fallback_model_is_used_after_a_permanent_failure() {
    // An invalid key is not retried. The next turn stays with the fallback model.
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see b/x c/y    => run.prepared turn.started
        ? model        => scripted/poem
        err auth       => turn.failed(auth) turn.started
        ? model        => b/x
        ? step         => ask turn 1 try 2 max 4096
        call list/pure => turn.completed tool.started(t1.1)
        done t1.1 ok   => tool.completed(t1.1) turn.started
        ? model        => b/x
        err quota      => turn.failed(quota) turn.started
        ? model        => c/y
        err auth       => turn.failed(auth) gate.raised(blocked) run.blocked | blocked blocked
    "#,
    );
    // Transient failures are retried for each model. A new attempt of the run starts with the first
    // model again.
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see b/x        => run.prepared turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        ? model        => scripted/poem
        err overloaded => turn.failed(overloaded) turn.started
        ? model        => b/x
        err refused    => turn.failed(refused) run.failed(refused) | failed
    "#,
    );
}

#[test]
fn a_fallback_model_is_used_only_where_it_helps() {
    // A provider with a long rate limit is not asked again: the next model is used.
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see b/x             => run.prepared turn.started
        err rate_limit 3600 => turn.failed(rate_limit) turn.started
        ? model             => b/x
        err rate_limit 3600 => turn.failed(rate_limit) run.waiting(rate_limit) | waiting rate_limit
    "#,
    );
    // A conversation that is too long for one model counts as too long for all.
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see b/x              => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        ? model              => scripted/poem
        err auth             => turn.failed(auth) turn.started
        ? model              => b/x
    "#,
    );
    // A run that is being cancelled sends no more requests.
    check(
        plain(),
        r#"
        claim       => run.claimed | running
        see b/x     => run.prepared turn.started
        cancel      => run.cancel_requested
        err auth    => turn.failed(auth) run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_conversation_that_is_too_long_is_compacted_once() {
    check(
        plain(),
        r#"
        claim                 => run.claimed | running
        see                   => run.prepared turn.started
        call read/pure        => turn.completed tool.started(t1.1)
        done t1.1 a long poem => tool.completed(t1.1) turn.started
        err context_overflow  => turn.failed(context_overflow) turn.started
        ? step                => compact turn 2 try 2
        sum 2                 => memory.compacted turn.started
        ? step                => ask turn 2 try 3 max 4096
        err context_overflow  => turn.failed(context_overflow) run.failed(context_overflow) | failed
        ? outcome             => context_overflow: the conversation is too long for the model, even after compaction
    "#,
    );
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        err network          => turn.failed(network) run.waiting(retry) | waiting retry
        fire                 => timer.fired | running
        claim                => run.claimed
        go                   => turn.started
        ? step               => compact turn 1 try 3
        crash                =>
        claim                => run.claimed
        go                   => run.recovered turn.failed(lost) turn.started
        sum 9                => memory.compacted turn.started
        say Done.            => turn.completed run.completed(Done.) | completed
    "#,
    );
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        err context_overflow => turn.failed(context_overflow) run.failed(context_overflow) | failed
        ? outcome            => context_overflow: the conversation could not be compacted: the provider said context_overflow
    "#,
    );
}

#[test]
fn a_summary_never_separates_a_call_from_its_result() {
    for replaced in 0..6 {
        let mut test_run = super::harness::TestRun::new(plain());
        for line in ["claim", "see", "call read/pure", "done t1.1 ok", "err context_overflow"] {
            test_run.play(line);
        }
        // The harness checks the conversation of the next request.
        let result = test_run.play(&format!("sum {replaced}"));
        assert_eq!(result, "memory.compacted turn.started", "{replaced}");
    }
}

#[test]
fn a_stale_timer_changes_nothing() {
    check(
        plain(),
        r#"
        claim                  => run.claimed | running
        see                    => run.prepared turn.started
        err overloaded         => turn.failed(overloaded) run.waiting(retry) | waiting retry
        steer after_batch Now. => steer.queued | running
        fire                   => timer.fired
        claim                  => run.claimed
        go                     => steer.delivered(after turn 0) turn.started
        err overloaded         => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire                   => timer.fired | running
        claim                  => run.claimed
        go                     => turn.started
    "#,
    );
}

#[test]
fn a_failed_model_call_is_charged_its_real_cost() {
    check(
        plain(),
        r#"
        claim            => run.claimed | running
        see              => run.prepared turn.started
        waste server 777 => turn.failed(server) run.waiting(retry) | waiting retry
        ? cost           => 777
        fire             => timer.fired | running
        claim            => run.claimed
        go               => turn.started
        waste server     => turn.failed(server) run.waiting(retry) | waiting retry
        ? cost           => 1377
    "#,
    );
}
