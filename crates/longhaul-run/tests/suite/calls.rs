//! Tool calls of a reply: parallel or in order, each executed once.
//!
//! Invariant: a call that must run alone never runs in parallel with another one.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::effect_key::EffectKeyState;
use longhaul_core::status::RunOutcome;
use longhaul_run::explain::explain_run_state;

use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::{plain, with_money_cap};

#[test]
fn pure_and_keyed_calls_run_in_parallel_and_once_calls_in_order() {
    check(
        plain(),
        r#"
        claim        => run.claimed | running
        see          => run.prepared turn.started
        call read/pure + write/keyed + shell/once {"command": "make"} + pty/session + read/pure => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.2 ok => tool.completed(t1.2)
        done t1.1 ok => tool.completed(t1.1) tool.started(t1.3)
        ? step       => run t1.3 shell {"command": "make"}
        done t1.3 ok => tool.completed(t1.3) tool.started(t1.4)
        done t1.4 ok => tool.completed(t1.4) tool.started(t1.5)
        done t1.5 ok => tool.completed(t1.5) turn.started
        ? said       => t1.1: ok | t1.2: ok | t1.3: ok | t1.4: ok | t1.5: ok
    "#,
    );
}

#[test]
fn calls_on_the_same_path_run_in_the_models_order() {
    check(
        plain(),
        r#"
        claim        => run.claimed | running
        see          => run.prepared turn.started
        call write/keyed {"command": "a"} + write/keyed {"command": "a"} + read/pure {"command": "a"} + write/keyed {"command": "b"} + read/pure {"command": "c"} => turn.completed tool.started(t1.1) tool.started(t1.4) tool.started(t1.5)
        done t1.1 ok => tool.completed(t1.1) tool.started(t1.2)
        done t1.2 ok => tool.completed(t1.2) tool.started(t1.3)
        done t1.4 ok => tool.completed(t1.4)
        done t1.5 ok => tool.completed(t1.5)
        done t1.3 ok => tool.completed(t1.3) turn.started
        call read/pure {"command": "a"} + read/pure {"command": "a"} + write/keyed {"command": "a"} => turn.completed tool.started(t2.1) tool.started(t2.2)
        done t2.2 ok => tool.completed(t2.2)
        done t2.1 ok => tool.completed(t2.1) tool.started(t2.3)
    "#,
    );
}

#[test]
fn an_interrupted_write_is_repeated_before_the_next() {
    check(
        plain(),
        r#"
        claim        => run.claimed | running
        see          => run.prepared turn.started
        call write/keyed {"command": "a"} + write/keyed {"command": "a"} => turn.completed tool.started(t1.1)
        crash        =>
        claim        => run.claimed
        go           => run.recovered tool.started(t1.1 again 2)
        done t1.1 ok => tool.completed(t1.1) tool.started(t1.2)
    "#,
    );
}

#[test]
fn eight_calls_run_at_once() {
    check(
        plain(),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.prepared turn.started
        call a + b + c + d + e + f + g + h + i + j => turn.completed tool.started(t1.1) tool.started(t1.2) tool.started(t1.3) tool.started(t1.4) tool.started(t1.5) tool.started(t1.6) tool.started(t1.7) tool.started(t1.8)
        done t1.5 ok                               => tool.completed(t1.5) tool.started(t1.9)
    "#,
    );
}

#[test]
fn failed_and_invalid_calls_are_results() {
    check(
        plain(),
        r#"
        claim                         => run.claimed | running
        see                           => run.prepared turn.started
        call nonsense/bad + read/pure => turn.completed tool.failed(t1.1) tool.started(t1.2)
        fail t1.2 no such file        => tool.failed(t1.2) turn.started
        ? said                        => t1.1: ! there is no tool `nonsense` | t1.2: ! no such file
        call nonsense/bad             => turn.completed tool.failed(t2.1) turn.started
        ? said                        => t2.1: ! there is no tool `nonsense`
    "#,
    );
}

#[test]
fn calls_of_a_truncated_reply_are_not_run() {
    check(
        plain(),
        r#"
        claim                                        => run.claimed | running
        see                                          => run.prepared turn.started
        cut shell/once {"command": "rm"} + read/pure => turn.completed tool.failed(t1.1) tool.failed(t1.2) turn.started
        ? said                                       => t1.1: ! not run: the reply was truncated by the token limit | t1.2: ! not run: the reply was truncated by the token limit
        cut                                          => turn.completed run.failed(reply_cut_off) | failed
        ? outcome                                    => reply_cut_off: the final reply was cut off at the model's limit of 4096 tokens
    "#,
    );
}

#[test]
fn a_final_reply_that_is_cut_off_keeps_its_text_and_names_the_setting() {
    let test_run = check(
        plain(),
        r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        cut   => turn.completed run.failed(reply_cut_off) | failed
    "#,
    );
    let Some(RunOutcome::Failed(error)) = test_run.run.outcome() else {
        panic!("the run must fail");
    };
    assert_eq!(error.partial_text.as_deref(), Some("I was about to"));
    assert!(error.hint.contains("`max_output` for `[prices.\"scripted/poem\"]`"), "{}", error.hint);
    // The remaining budget allowed a shorter reply than the model.
    let test_run = check(
        with_money_cap(40_000),
        r#"
        claim     => run.claimed | running
        see       => run.prepared budget.warned(money) turn.started
        cut       => turn.completed run.failed(reply_cut_off) | failed
        ? outcome => reply_cut_off: the final reply was cut off after 2529 tokens, because the rest of the budget or of the context window allowed no more
    "#,
    );
    let Some(RunOutcome::Failed(error)) = test_run.run.outcome() else {
        panic!("the run must fail");
    };
    assert!(error.hint.starts_with("raise the budget"), "{}", error.hint);
}

#[test]
fn an_empty_reply_is_asked_for_once_more() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        say            => turn.completed turn.started(emptyreply)
        ? said         => [longhaul] Your reply was empty. Go on with the task. If it is done, say what you did.
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
        call read/pure => turn.completed tool.started(t2.1)
        done t2.1 ok   => tool.completed(t2.1) turn.started
        say            => turn.completed turn.started(emptyreply)
        say Done.      => turn.completed run.completed(Done.) | completed
    "#,
    );
    check(
        plain(),
        r#"
        claim     => run.claimed | running
        see       => run.prepared turn.started
        say       => turn.completed turn.started(emptyreply)
        say       => turn.completed run.failed(empty_reply) | failed
        ? outcome => empty_reply: the model replied twice without text or tool calls
    "#,
    );
}

#[test]
fn a_model_refusal_ends_the_run() {
    check(
        plain(),
        r#"
        claim     => run.claimed | running
        see       => run.prepared turn.started
        refuse    => turn.completed run.failed(refused) | failed
        ? outcome => refused: the model refused to answer: I won't.
    "#,
    );
    check(
        plain(),
        r#"
        claim                               => run.claimed | running
        see                                 => run.prepared turn.started
        refuse shell/once {"command": "rm"} => turn.completed run.failed(refused) | failed
    "#,
    );
}

#[test]
fn a_paused_turn_is_sent_back_unchanged() {
    check(
        plain(),
        r#"
        claim     => run.claimed | running
        see       => run.prepared turn.started
        hold      => turn.completed turn.started
        ? said    => model: One moment.
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn arguments_keep_their_bytes() {
    let test_run = check(
        plain(),
        r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        call write/pure {"zeta": 1, "alpha": [1.0, 2.50, 1e3], "path": "a/b\u00e9"} => turn.completed tool.started(t1.1)
    "#,
    );
    let longhaul_run::EngineStep::UseTools(tasks) =
        longhaul_run::next_engine_step(&test_run.run, test_run.now)
    else {
        panic!("expected a call to run");
    };
    let arguments = r#"{"zeta": 1, "alpha": [1.0, 2.50, 1e3], "path": "a/b\u00e9"}"#;
    assert_eq!(tasks[0].input.as_str(), arguments);
}

#[test]
fn a_reply_with_absurdly_many_calls_ends_the_run() {
    let calls = vec!["read/pure"; 1_025].join(" + ");
    check(
        plain(),
        &format!(
            r#"
        claim        => run.claimed | running
        see          => run.prepared turn.started
        call {calls} => turn.failed(invalid_request) run.failed(invalid_request) | failed
    "#
        ),
    );
}

#[test]
fn a_call_waits_for_another_run_with_its_key() {
    let test_run = check(
        plain(),
        r#"
        claim      => run.claimed | running
        see        => run.prepared turn.started
        key held k =>
        call send/once {"key": "k"} => turn.completed tool.key_taken(t1.1 held) run.waiting(key) | waiting key
        key free k =>
        claim      => run.claimed | running
        go         => tool.started(t1.1)
        done t1.1 x => tool.completed(t1.1) turn.started
        call send/once {"key": "k"} + send/once {"key": "other"} => turn.completed tool.key_taken(t2.1 done) tool.completed(t2.1) tool.started(t2.2)
    "#,
    );
    let states: Vec<_> = test_run.rows.keys.values().map(|taken| taken.state).collect();
    assert!(
        states.contains(&EffectKeyState::Done) && states.contains(&EffectKeyState::Held),
        "{states:?}"
    );
}

#[test]
fn a_run_that_waits_for_a_key_is_not_said_to_execute_calls() {
    let mut test_run = check(
        plain(),
        r#"
        claim      => run.claimed | running
        see        => run.prepared turn.started
        key held k =>
        call send/once {"key": "k"} => turn.completed tool.key_taken(t1.1 held) run.waiting(key) | waiting key
    "#,
    );
    let message = explain_run_state(&test_run.run).message;
    assert!(message.contains(", or of the run that retries run_"), "{message}");
    test_run.play("steer interrupt hurry");
    assert_eq!(explain_run_state(&test_run.run).message, message);
}

fn run_that_failed_at_an_unknown_call() -> TestRun {
    check(
        RunPolicy { in_doubt: Some(InDoubtPolicy::Fail), ..plain() },
        r#"
        claim         => run.claimed | running
        see           => run.prepared turn.started
        key unknown k =>
        call send/once {"key": "k"} => turn.completed tool.key_taken(t1.1 unknown) run.failed(in_doubt) | failed
    "#,
    )
}

#[test]
fn a_run_that_fails_because_of_another_call_in_doubt_names_that_call() {
    let test_run = run_that_failed_at_an_unknown_call();
    let Some(RunOutcome::Failed(error)) = test_run.run.outcome() else {
        panic!("the run must fail");
    };
    let message = &error.message;
    assert!(message.starts_with("send t1.1 was not started: the call "), "{message}");
    assert!(message.ends_with("has an unknown outcome"), "{message}");
}

#[test]
fn calls_of_one_reply_with_the_same_key_are_made_once() {
    check(
        plain(),
        r#"
        claim   => run.claimed | running
        see     => run.prepared turn.started
        call write/keyed {"key": "k"} + write/keyed {"key": "k"} => turn.completed tool.started(t1.1)
        done t1.1 x => tool.completed(t1.1) tool.key_taken(t1.2 done) tool.completed(t1.2) turn.started
    "#,
    );
}

#[test]
fn a_failed_call_frees_its_key_and_an_interrupted_one_does_not() {
    let settled = |line: &str| {
        let mut test_run = check(
            plain(),
            r#"
            claim => run.claimed | running
            see   => run.prepared turn.started
            call send/once {"key": "k"} => turn.completed tool.started(t1.1)
        "#,
        );
        test_run.play(line);
        test_run.rows.keys.values().next().map(|taken| taken.state)
    };
    assert_eq!(settled("fail t1.1"), None);
    assert_eq!(settled("done t1.1"), Some(EffectKeyState::Done));
    assert_eq!(settled("kill t1.1"), Some(EffectKeyState::Unknown));
    assert_eq!(settled("lose t1.1"), Some(EffectKeyState::Held), "a person is asked");
}

#[test]
fn a_person_decides_about_an_unknown_call_of_another_run() {
    let start = r#"
        claim         => run.claimed | running
        see           => run.prepared turn.started
        key unknown k =>
        call send/once {"key": "k"} => turn.completed tool.key_taken(t1.1 unknown) gate.raised(indoubt) run.waiting(question) | waiting question
    "#;
    for (line, state) in [
        ("yes", Some(EffectKeyState::Held)),
        ("no", None),
        ("answer It was sent.", Some(EffectKeyState::Done)),
    ] {
        let mut test_run = check(plain(), start);
        test_run.play(line);
        test_run.play("claim");
        test_run.play("go");
        let key = test_run.rows.keys.values().next();
        assert_eq!(key.map(|taken| taken.state), state, "{line}");
        assert!(key.is_none_or(|taken| taken.holder.run == test_run.run.id()), "{line}");
    }
}

#[test]
fn a_crash_leaves_the_key_with_the_call_in_doubt_until_the_run_ends() {
    let mut test_run = check(
        plain(),
        r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        call send/once {"key": "k"} => turn.completed tool.started(t1.1)
        crash =>
        claim => run.claimed
        go    => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
    "#,
    );
    let state = |test_run: &TestRun| test_run.rows.keys.values().next().map(|taken| taken.state);
    assert_eq!(state(&test_run), Some(EffectKeyState::Held));
    test_run.play("cancel");
    test_run.play("claim");
    test_run.play("go");
    assert_eq!(state(&test_run), Some(EffectKeyState::Unknown));
}

#[test]
fn a_decision_about_an_unknown_call_does_not_hold_for_its_next_attempt() {
    check(
        plain(),
        r#"
        claim         => run.claimed | running
        see           => run.prepared turn.started
        key unknown k =>
        call send/once {"key": "k"} => turn.completed tool.key_taken(t1.1 unknown) gate.raised(indoubt) run.waiting(question) | waiting question
        key held k    =>
        yes           => gate.answered | running
        claim         => run.claimed
        go            => tool.key_taken(t1.1 held) run.waiting(key) | waiting key
        key unknown k =>
        claim         => run.claimed | running
        go            => tool.key_taken(t1.1 unknown) gate.raised(indoubt) run.waiting(question) | waiting question
    "#,
    );
}

#[test]
fn the_retry_of_a_run_that_failed_at_an_unknown_call_asks_a_person() {
    let failed = run_that_failed_at_an_unknown_call();
    for (line, state) in [
        ("yes", Some(EffectKeyState::Held)),
        ("no", None),
        ("answer It was sent.", Some(EffectKeyState::Done)),
    ] {
        let mut retry = check_in(
            failed.retry(),
            r#"
            key unknown k =>
            claim => run.claimed | running
            go    => gate.raised(indoubt) run.waiting(question) | waiting question
        "#,
        );
        retry.play(line);
        retry.play("claim");
        retry.play("go");
        assert_eq!(retry.rows.keys.values().next().map(|taken| taken.state), state, "{line}");
    }
}

#[test]
fn a_repeated_call_that_fails_keeps_its_key() {
    let test_run = check(
        plain(),
        r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        call write/keyed {"key": "k"} => turn.completed tool.started(t1.1)
        crash =>
        claim => run.claimed
        go    => run.recovered tool.started(t1.1 again 2)
        fail t1.1 => tool.failed(t1.1) turn.started
    "#,
    );
    let states: Vec<_> = test_run.rows.keys.values().map(|taken| taken.state).collect();
    assert_eq!(states, [EffectKeyState::Unknown], "the first start may have had an effect");
}
