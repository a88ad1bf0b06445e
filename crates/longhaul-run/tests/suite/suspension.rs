//! Tool calls that their tools suspend: questions of tools, and results that come later.

use longhaul_core::policy::effect_key::EffectKeyState;
use longhaul_core::policy::{ParkedLanePolicy, RunPolicy};
use longhaul_core::port::tool::{ToolQuestionAnswer, ToolResumption};
use longhaul_core::raw::RawJson;
use longhaul_run::next::{ToolCallAction, ToolCallTask};
use longhaul_run::{EngineStep, next_engine_step};

use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::plain;

const STARTED: &str = r#"
    claim                => run.claimed | running
    see                  => run.prepared turn.started
    call pay/once {}     => turn.completed tool.started(t1.1)
"#;

fn next_calls(test_run: &TestRun) -> Vec<ToolCallTask> {
    match next_engine_step(&test_run.run, test_run.now) {
        EngineStep::UseTools(tasks) => tasks,
        step => panic!("no calls: {step:?}"),
    }
}

fn resumption(test_run: &TestRun) -> ToolResumption {
    next_calls(test_run).remove(0).resumption.expect("the call is continued")
}

#[test]
fn the_question_of_a_tool_is_a_gate_and_the_call_is_continued_with_the_answer() {
    let test_run = check(
        plain(),
        &format!(
            r#"{STARTED}
        ask t1.1             => tool.input_required(t1.1) gate.raised(question) run.waiting(question) | waiting question
        ? gates              => The MCP server `billing` asks, in its own words: Who are you?
        tick 500000          =>
        answer me            => !invalid_answer
        answer {{"name": "Ada"}} => gate.answered | running
        claim                => run.claimed
        go                   => tool.resumed(t1.1)
    "#
        ),
    );
    let expected = ToolResumption {
        state: RawJson::parse(r#"{"request":"7"}"#).unwrap(),
        answer: Some(ToolQuestionAnswer::Answered(RawJson::parse(r#"{"name":"Ada"}"#).unwrap())),
    };
    assert_eq!(resumption(&test_run), expected);
    check_in(
        test_run,
        r#"
        done t1.1 paid       => tool.completed(t1.1) turn.started
        ? said               => t1.1: paid
    "#,
    );
}

#[test]
fn a_tool_learns_that_a_person_declined_or_did_not_answer() {
    for (line, outcome, answer) in [
        ("no", "gate.answered | running", ToolQuestionAnswer::Declined),
        ("tick 700000", "gate.expired(reject) | running", ToolQuestionAnswer::Unanswered),
    ] {
        let test_run = check(
            plain(),
            &format!(
                r#"{STARTED}
            ask t1.1 => tool.input_required(t1.1) gate.raised(question) run.waiting(question) | waiting question
            {line}   => {outcome}
            claim    => run.claimed
            go       => tool.resumed(t1.1)
        "#
            ),
        );
        assert_eq!(resumption(&test_run).answer, Some(answer));
    }
}

#[test]
fn a_message_to_the_model_is_no_answer_to_a_tool() {
    check(
        plain(),
        &format!(
            r#"{STARTED}
        ask t1.1             => tool.input_required(t1.1) gate.raised(question) run.waiting(question) | waiting question
        steer after_batch {{"name": "Ada"}} => steer.queued | running
        claim                => run.claimed
        go                   => run.waiting(question) | waiting question
        steer interrupt Stop => steer.queued | running
        claim                => run.claimed
        go                   => gate.withdrawn tool.failed(t1.1) steer.delivered(after turn 1) steer.delivered(after turn 1) turn.started
    "#
        ),
    );
}

#[test]
fn a_tool_asks_a_limited_number_of_questions() {
    let mut test_run = check(plain(), STARTED);
    for _ in 0..8 {
        assert!(test_run.play("ask t1.1").starts_with("tool.input_required(t1.1) gate.raised"));
        for line in [r#"answer {"name": "Ada"}"#, "claim", "go"] {
            test_run.play(line);
        }
    }
    check_in(
        test_run,
        r#"
        ask t1.1 => tool.failed(t1.1) turn.started
        ? said   => t1.1: ! stopped: the tool asked more than 8 questions without a result
    "#,
    );
}

#[test]
fn a_crash_while_the_answer_is_sent_leaves_the_call_in_doubt() {
    check(
        plain(),
        &format!(
            r#"{STARTED}
        ask t1.1 => tool.input_required(t1.1) gate.raised(question) run.waiting(question) | waiting question
        answer {{"name": "Ada"}} => gate.answered | running
        claim    => run.claimed
        go       => tool.resumed(t1.1)
        crash    =>
        claim    => run.claimed
        go       => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        yes      => gate.answered | running
        claim    => run.claimed
        go       => tool.resumed(t1.1 again 2)
        done t1.1 paid => tool.completed(t1.1) turn.started
    "#
        ),
    );
}

#[test]
fn a_pending_call_is_asked_about_by_a_timer() {
    let test_run = check(
        plain(),
        &format!(
            r#"{STARTED}
        pend t1.1 30   => tool.pending(t1.1) run.waiting(tool) | waiting tool
        ? why          => The run waits for the result of `pay` (page 1 of 2), which is asked for again at 2026-01-01T00:00:30.000000Z.
        tick 29        =>
        tick 1         => timer.fired | running
        claim          => run.claimed
        go             => tool.resumed(t1.1)
        pend t1.1 0    => tool.pending(t1.1) run.waiting(tool) | waiting tool
        tick 1         => timer.fired | running
        claim          => run.claimed
        go             => tool.resumed(t1.1)
    "#
        ),
    );
    let expected =
        ToolResumption { state: RawJson::parse(r#"{"task":"7"}"#).unwrap(), answer: None };
    assert_eq!(resumption(&test_run), expected);
    check_in(
        test_run,
        r#"
        crash          =>
        claim          => run.claimed
        go             => run.recovered tool.resumed(t1.1 again 2)
        done t1.1 paid => tool.completed(t1.1) turn.started
        ? said         => t1.1: paid
    "#,
    );
}

#[test]
fn a_pending_call_fails_after_the_time_that_its_tool_allows() {
    let test_run = check(
        plain(),
        &format!(
            r#"{STARTED}
        pend t1.1 30 10   => tool.pending(t1.1) run.waiting(tool) | waiting tool
        tick 10           => timer.fired | running
        claim             => run.claimed
        go                => tool.resumed(t1.1)
        pend t1.1 30 10   => tool.pending(t1.1)
        crash             =>
        claim             => run.claimed
        go                => run.recovered
    "#
        ),
    );
    // The tool is told first.
    assert_eq!(next_calls(&test_run)[0].action, ToolCallAction::Cancel);
    check_in(
        test_run,
        r#"
        kill t1.1 told    => tool.failed(t1.1) turn.started
        ? said            => t1.1: ! stopped: the tool has no result after 10s, which is the time that it allows; told
    "#,
    );
}

#[test]
fn a_run_that_gives_up_a_pending_call_cancels_it_at_the_tool() {
    for suspend in ["pend t1.1 30", "ask t1.1 task"] {
        let mut test_run = check(plain(), STARTED);
        test_run.play(suspend);
        let test_run = check_in(
            test_run,
            r#"
            close enough  => !invalid_state
            cancel enough => run.cancel_requested | running
            claim         => run.claimed
            go            =>
        "#,
        );
        let calls = next_calls(&test_run);
        assert_eq!(calls[0].action, ToolCallAction::Cancel);
        let mut test_run = check_in(test_run, "kill t1.2 => !call_not_running");
        assert!(test_run.play("kill t1.1").ends_with("tool.interrupted(t1.1) run.cancelled"));
    }
}

#[test]
fn a_message_that_interrupts_cancels_a_pending_call() {
    check(
        plain(),
        &format!(
            r#"{STARTED}
        pend t1.1 30           => tool.pending(t1.1) run.waiting(tool) | waiting tool
        steer after_batch Hm.  => steer.queued | running
        claim                  => run.claimed
        go                     => run.waiting(tool) | waiting tool
        steer interrupt Stop.  => steer.queued | running
        claim                  => run.claimed
        go                     =>
        kill t1.1 stopped      => tool.interrupted(t1.1) steer.delivered(after turn 1) steer.delivered(after turn 1) turn.started
    "#
        ),
    );
}

#[test]
fn a_poll_that_a_cancel_interrupts_does_not_end_the_call_before_the_tool_is_cancelled() {
    let test_run = check(
        plain(),
        &format!(
            r#"{STARTED}
        pend t1.1 30  => tool.pending(t1.1) run.waiting(tool) | waiting tool
        tick 30       => timer.fired | running
        claim         => run.claimed
        go            => tool.resumed(t1.1)
        cancel enough => run.cancel_requested
        kill t1.1     => tool.pending(t1.1)
    "#
        ),
    );
    assert_eq!(next_calls(&test_run)[0].action, ToolCallAction::Cancel);
    check_in(test_run, "kill t1.1 => tool.interrupted(t1.1) run.cancelled | cancelled");
}

#[test]
fn a_poll_is_postponed_while_the_server_is_not_available() {
    let mut test_run = check(plain(), STARTED);
    test_run.play("pend t1.1 30");
    for _ in 0..8 {
        for line in ["fire", "claim"] {
            test_run.play(line);
        }
        let events = test_run.play("missing the server is down");
        assert_eq!(events, "tool.pending(t1.1) run.waiting(tool)");
    }
    check_in(
        test_run,
        r#"
        fire                       => timer.fired | running
        claim                      => run.claimed
        missing the server is down => gate.raised(blocked) run.blocked | blocked blocked
        answer It is back.         => gate.answered | running
        claim                      => run.claimed
        go                         => tool.resumed(t1.1)
        done t1.1 paid             => tool.completed(t1.1) turn.started
    "#,
    );
}

#[test]
fn a_retry_replays_a_poll_that_the_failed_run_postponed() {
    let mut test_run = check(plain(), STARTED);
    for line in
        ["pend t1.1 30", "fire", "claim", "missing the server is down", "fire", "claim", "go"]
    {
        test_run.play(line);
    }
    for line in ["done t1.1 paid", "err invalid_request", "err invalid_request"] {
        test_run.play(line);
    }
    assert_eq!(test_run.status_line(), "failed");
    check_in(
        test_run.retry(),
        r#"
        claim    => run.claimed | running
        go       => turn.started
        say Done => turn.completed run.completed(Done) | completed
    "#,
    );
}

#[test]
fn a_suspended_call_keeps_its_effect_key_until_the_call_ends() {
    let key_state =
        |test_run: &TestRun| test_run.rows.keys.values().next().map(|taken| taken.state);
    for (line, state) in [
        ("done t1.1 paid", Some(EffectKeyState::Done)),
        ("fail t1.1", None),
        ("kill t1.1", Some(EffectKeyState::Unknown)),
    ] {
        let mut test_run = check(
            plain(),
            r#"
            claim    => run.claimed | running
            see      => run.prepared turn.started
            call pay/once {"key": "k"} => turn.completed tool.started(t1.1)
            ask t1.1 => tool.input_required(t1.1) gate.raised(question) run.waiting(question) | waiting question
        "#,
        );
        assert_eq!(key_state(&test_run), Some(EffectKeyState::Held));
        for line in [r#"answer {"name": "Ada"}"#, "claim", "go"] {
            test_run.play(line);
        }
        assert_eq!(key_state(&test_run), Some(EffectKeyState::Held));
        test_run.play(line);
        assert_eq!(key_state(&test_run), state, "{line}");
    }
}

#[test]
fn a_parked_run_keeps_its_lane_while_a_call_holds_an_effect_key() {
    for (call, has_released_lane) in [("pay/once", true), (r#"pay/once {"key": "k"}"#, false)] {
        let mut test_run = check(
            RunPolicy { lane_on_park: ParkedLanePolicy::Release, ..plain() },
            r#"
            claim => run.claimed | running
            see   => run.prepared turn.started
        "#,
        );
        test_run.play(&format!("call {call}"));
        test_run.play("ask t1.1");
        assert_eq!(test_run.status_line(), "waiting question");
        assert_eq!(test_run.rows.has_released_lane, has_released_lane, "{call}");
    }
}

#[test]
fn a_suspended_call_that_the_runtime_gives_up_does_not_free_its_effect_key() {
    let mut test_run = check(
        plain(),
        r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        call pay/once {"key": "k"} => turn.completed tool.started(t1.1)
    "#,
    );
    for _ in 0..8 {
        for line in ["ask t1.1", r#"answer {"name": "Ada"}"#, "claim", "go"] {
            test_run.play(line);
        }
    }
    assert_eq!(test_run.play("ask t1.1"), "tool.interrupted(t1.1) turn.started");
    let key = test_run.rows.keys.values().next();
    assert_eq!(key.map(|taken| taken.state), Some(EffectKeyState::Unknown));
}
