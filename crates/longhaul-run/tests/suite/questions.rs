//! Questions of the agent: options and forms are checked, also if a message answers them.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::gate::{GATE_TIMEOUT, GateTimeout};
use longhaul_core::time::Millis;

use super::harness::TestRun;
use super::harness::script::check;
use super::policies::plain;

#[test]
fn questions_reports_and_signals_wait_as_long_as_the_policy_says() {
    let hour = Millis::from_secs(3_600);
    for (question_timeout, expected) in [
        (None, Some(GATE_TIMEOUT)),
        (Some(GateTimeout::Never), None),
        (Some(GateTimeout::After(hour)), Some(hour)),
    ] {
        for call in [
            r#"ask_human/pure {"question": "Which?"}"#,
            r#"report_blocked/pure {"reason": "no key"}"#,
            r#"wait/pure {"signal": "deploy"}"#,
        ] {
            let mut test_run = TestRun::new(RunPolicy { question_timeout, ..plain() });
            for line in ["claim", "see", &format!("call {call}")] {
                test_run.play(line);
            }
            let timeouts: Vec<_> =
                test_run.run.control().people.gates.iter().map(|gate| gate.timeout).collect();
            assert_eq!(timeouts, [expected], "{call}");
        }
    }
}

#[test]
fn a_question_takes_only_its_options() {
    check(
        plain(),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call ask_human/pure {"question": "Which?", "options": ["Red", "Blue"]} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        answer green    => !invalid_answer
        answer red blue => !invalid_answer
        answer  blue    => gate.answered | running
        claim           => run.claimed
        go              => tool.completed(t1.1) turn.started
        ? said          => t1.1: Blue
    "#,
    );
}

#[test]
fn a_form_is_checked_and_completed_with_defaults() {
    check(
        plain(),
        r#"
        claim                            => run.claimed | running
        see                              => run.prepared turn.started
        call ask_human/pure {"question": "Where?", "schema": {"properties": {"city": {"type": "string"}, "people": {"type": "integer", "default": 2}}, "required": ["city"]}} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        answer Bern                      => !invalid_answer
        answer {"people": 3}             => !invalid_answer
        answer {"city": "Bern", "x": 1}  => !invalid_answer
        answer {"city": "Bern"}          => gate.answered | running
        claim                            => run.claimed
        go                               => tool.completed(t1.1) turn.started
        ? said                           => t1.1: {"city":"Bern","people":2}
    "#,
    );
}

#[test]
fn a_form_that_can_not_be_shown_is_an_error_for_the_model() {
    for (input, problem) in [
        (
            r#"{"question": "?", "schema": {"properties": {"a": {"type": "array"}}}}"#,
            "nested values",
        ),
        (r#"{"question": "?", "schema": {}}"#, "needs `properties`"),
        (
            r#"{"question": "?", "options": ["a"], "schema": {"properties": {"a": {"type": "string"}}}}"#,
            "set `options` or `schema`, not both",
        ),
    ] {
        let mut test_run = super::harness::TestRun::new(plain());
        for line in ["claim", "see"] {
            test_run.play(line);
        }
        let events = test_run.play(&format!("call ask_human/pure {input}"));
        assert_eq!(events, "turn.completed tool.failed(t1.1) turn.started");
        let result = test_run.show("said");
        assert!(result.contains(problem), "{result}");
    }
}

#[test]
fn a_message_answers_a_question_only_if_it_is_valid() {
    check(
        plain(),
        r#"
        claim                   => run.claimed | running
        see                     => run.prepared turn.started
        call ask_human/pure {"question": "Which?", "options": ["Red", "Blue"]} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        steer after_batch Wait. => steer.queued | running
        claim                   => run.claimed
        go                      => run.waiting(question) | waiting question
        steer after_batch red   => steer.queued | running
        claim                   => run.claimed
        go                      => steer.delivered(as answer) gate.answered tool.completed(t1.1) steer.delivered(after turn 1) turn.started
        ? said                  => Wait.
    "#,
    );
    check(
        plain(),
        r#"
        claim                   => run.claimed | running
        see                     => run.prepared turn.started
        call ask_human/pure {"question": "Which?", "options": ["Red", "Blue"]} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        steer interrupt Stop.   => steer.queued | running
        claim                   => run.claimed
        go                      => gate.withdrawn tool.failed(t1.1) steer.delivered(after turn 1) turn.started
        ? said                  => Stop.
    "#,
    );
}
