//! Compaction of a conversation before it fills the context window, and failures of the compaction.

use longhaul_core::event::Event;
use longhaul_run::Run;
use longhaul_run::explain::explain_run_state;

use super::harness::inputs::{COMPACTOR_PRICE, USAGE};
use super::harness::script::check;
use super::policies::plain;

#[test]
fn a_conversation_is_compacted_before_it_fills_the_window() {
    let test_run = check(
        plain(),
        r#"
        claim           => run.claimed | running
        peer 10000      => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        pour t1.1 12000 => tool.completed(t1.1) turn.started
        ? step          => ask turn 2 try 1 max 4096
        call read/pure  => turn.completed tool.started(t2.1)
        pour t2.1 12000 => tool.completed(t2.1) turn.started
        ? step          => compact turn 3 try 1
        sum 3           => memory.compacted turn.started
        ? step          => ask turn 3 try 2 max 4096
        call read/pure  => turn.completed tool.started(t3.1)
        pour t3.1 6000  => tool.completed(t3.1) turn.started
        ? step          => ask turn 4 try 1 max 3487
        say Done.       => turn.completed run.completed(Done.) | completed
    "#,
    );
    let spent = |event: &Event| matches!(event, Event::MemoryCompacted(_));
    assert!(test_run.entries.iter().any(|entry| spent(&entry.event)));
}

#[test]
fn a_failed_early_compaction_keeps_the_conversation() {
    // Whatever the failure, the run continues at once with the full conversation.
    for class in ["auth", "refused", "network", "context_overflow"] {
        check(
            plain(),
            &format!(
                r#"
            claim           => run.claimed | running
            peer 10000      => run.prepared turn.started
            call read/pure  => turn.completed tool.started(t1.1)
            pour t1.1 12000 => tool.completed(t1.1) turn.started
            call read/pure  => turn.completed tool.started(t2.1)
            pour t2.1 12000 => tool.completed(t2.1) turn.started
            err {class}     => turn.failed({class}) turn.started
            ? step          => ask turn 3 try 2 max 1491
            ? model         => scripted/poem
            call read/pure  => turn.completed tool.started(t3.1)
            pour t3.1 300   => tool.completed(t3.1) turn.started
            ? step          => ask turn 4 try 1 max 1389
            call read/pure  => turn.completed tool.started(t4.1)
            pour t4.1 4000  => tool.completed(t4.1) turn.started
            ? step          => compact turn 5 try 1
        "#
            ),
        );
    }
    // If compaction is required, the run can't continue without it.
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        err refused          => turn.failed(refused) run.failed(context_overflow) | failed
        ? outcome            => context_overflow: the conversation could not be compacted: the provider said refused
    "#,
    );
}

#[test]
fn compaction_respects_retry_after() {
    let start = r#"
        claim           => run.claimed | running
        PEER            => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        pour t1.1 12000 => tool.completed(t1.1) turn.started
        call read/pure  => turn.completed tool.started(t2.1)
        pour t2.1 12000 => tool.completed(t2.1) turn.started
    "#;
    let own = start.replace("PEER", "peer 10000     ");
    // Compaction is not required yet: after the wait, the run continues with the full conversation.
    for (failure, wait) in
        [("rate_limit 20", "rate_limit"), ("overloaded 20", "retry"), ("server 20", "retry")]
    {
        let class = failure.split(' ').next().unwrap();
        check(
            plain(),
            &format!(
                "{own}
            err {failure} => turn.failed({class}) run.waiting({wait}) | waiting {wait}
            ? timers      => [22498]
            fire          => timer.fired | running
            claim         => run.claimed
            go            => turn.started
            ? step        => ask turn 3 try 2 max 1491
            ? model       => scripted/poem
        "
            ),
        );
    }
    // As with any request, another model is used at once if the wait is too long.
    check(
        plain(),
        &format!(
            "{own}
        err rate_limit 40 => turn.failed(rate_limit) turn.started
        ? step            => ask turn 3 try 2 max 1491
        ? model           => scripted/spare
    "
        ),
    );
    // The summary model may be the run's own model, given by name.
    let named = start.replace("PEER", "peer 10000 scripted/poem");
    check(
        plain(),
        &format!(
            "{named}
        err rate_limit 20 => turn.failed(rate_limit) run.waiting(rate_limit) | waiting rate_limit
        fire              => timer.fired | running
        claim             => run.claimed
        go                => turn.started
        ? step            => compact turn 3 try 2
    "
        ),
    );
    // A rate limit of another model does not affect the run's own model.
    let other = start.replace("PEER", "peer 10000 b/x ");
    check(
        plain(),
        &format!(
            "{other}
        err rate_limit 20 => turn.failed(rate_limit) turn.started
        ? step            => compact turn 3 try 2
    "
        ),
    );
}

#[test]
fn the_compaction_model_is_journaled_charged_and_has_a_fallback() {
    let start = r#"
        claim           => run.claimed | running
        peer 10000 b/x  => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        pour t1.1 12000 => tool.completed(t1.1) turn.started
        call read/pure  => turn.completed tool.started(t2.1)
        pour t2.1 12000 => tool.completed(t2.1) turn.started
        ? step          => compact turn 3 try 1 by b/x
    "#;
    let test_run = check(
        plain(),
        &format!(
            "{start}
        sum 3  => memory.compacted turn.started
        ? step => ask turn 3 try 2 max 4096
    "
        ),
    );
    let started = test_run.entries.iter().filter_map(|entry| match &entry.event {
        Event::TurnStarted(data) => Some((data.model.as_deref(), data.hold.micro_usd.0)),
        _ => None,
    });
    let started: Vec<_> = started.collect();
    assert_eq!(started[2].0, Some("b/x"));
    assert!(started[3].0.is_none());
    // The summary model is cheaper for the same conversation.
    assert!(started[2].1 < started[1].1, "{started:?}");

    // A failure of the summary model does not affect the run: its own model writes the summary.
    for class in ["auth", "rate_limit", "context_overflow"] {
        let test_run = check(
            plain(),
            &format!(
                "{start}
            err {class} => turn.failed({class}) turn.started
            ? step      => compact turn 3 try 2
            ? model     => scripted/poem
            sum 3       => memory.compacted turn.started
            ? step      => ask turn 3 try 3 max 4096
        "
            ),
        );
        let cost = test_run.run.control().totals.cost.0;
        assert!(cost > 0 && COMPACTOR_PRICE.cost(USAGE).0 < cost);
    }
    // Also if compaction is required.
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        peer 10000 b/x       => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        ? step               => compact turn 1 try 2 by b/x
        err auth             => turn.failed(auth) turn.started
        ? step               => compact turn 1 try 3
        err refused          => turn.failed(refused) turn.started
        ? model              => scripted/spare
        err refused          => turn.failed(refused) run.failed(context_overflow) | failed
    "#,
    );
}

#[test]
fn repeated_compaction_without_effect_ends_the_run() {
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see compactions=2    => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 1                => memory.compacted turn.started
        call read/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1) turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 3                => memory.compacted turn.started(compaction)
        call read/pure       => turn.completed tool.started(t2.1)
        done t2.1 ok         => tool.completed(t2.1) turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 5                => memory.compacted turn.started
        call read/pure       => turn.completed tool.started(t3.1)
        done t3.1 ok         => tool.completed(t3.1) turn.started
        err context_overflow => turn.failed(context_overflow) run.failed(compaction_thrash) | failed
        ? outcome            => compaction_thrash: the conversation fills the model's context window again soon after it is compacted
    "#,
    );
    // With two turns in between, compaction is allowed again.
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see compactions=2    => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 1                => memory.compacted turn.started
        call read/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1) turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 3                => memory.compacted turn.started(compaction)
        call read/pure       => turn.completed tool.started(t2.1)
        done t2.1 ok         => tool.completed(t2.1) turn.started
        call read/pure       => turn.completed tool.started(t3.1)
        done t3.1 ok         => tool.completed(t3.1) turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 5                => memory.compacted turn.started
        call read/pure       => turn.completed tool.started(t4.1)
        done t4.1 ok         => tool.completed(t4.1) turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        ? step               => compact turn 5 try 2
    "#,
    );
}

#[test]
fn a_crash_during_compaction_loses_nothing() {
    check(
        plain(),
        r#"
        claim           => run.claimed | running
        peer 10000      => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        pour t1.1 12000 => tool.completed(t1.1) turn.started
        call read/pure  => turn.completed tool.started(t2.1)
        pour t2.1 12000 => tool.completed(t2.1) turn.started
        ? step          => compact turn 3 try 1
        crash           =>
        claim           => run.claimed
        go              => run.recovered turn.failed(lost) turn.started
        ? step          => compact turn 3 try 2
        steer interrupt Hurry. => steer.queued
        halt Half       => turn.failed(stopped) steer.delivered(after turn 2) turn.started
        ? step          => compact turn 3 try 3
        cancel          => run.cancel_requested
        err stopped     => turn.failed(stopped) run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_fold_without_conversation_has_the_same_state() {
    let test_run = check(
        plain(),
        r#"
        claim           => run.claimed | running
        peer 10000      => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        pour t1.1 12000 => tool.completed(t1.1) turn.started
        call read/pure  => turn.completed tool.started(t2.1)
        pour t2.1 12000 => tool.completed(t2.1) turn.started
        sum 3           => memory.compacted turn.started
        call read/pure  => turn.completed tool.started(t3.1)
        pour t3.1 6000  => tool.completed(t3.1) turn.started
        say Done.       => turn.completed run.completed(Done.) | completed
    "#,
    );
    for end in 1..=test_run.entries.len() {
        let entries = &test_run.entries[..end];
        let replayed = Run::replay(entries).unwrap();
        let mut without_messages = Run::from_first_entry(&entries[0]).unwrap();
        for entry in &entries[1..] {
            without_messages.apply_without_transcript(entry).unwrap();
            assert!(without_messages.transcript().messages().is_empty());
        }
        assert_eq!(explain_run_state(&without_messages), explain_run_state(&replayed));
        assert_eq!(without_messages.outcome(), replayed.outcome());
        assert_eq!(without_messages.tools_called(), replayed.tools_called());
        assert_eq!(
            without_messages.transcript().current_model(),
            replayed.transcript().current_model()
        );
        assert_eq!(without_messages.status(), replayed.status());
    }
}
