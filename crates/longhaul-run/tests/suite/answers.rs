//! What the model learns of the answers to gates, and what the gates record of messages.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateDecision, GateRule, GateStatus, GateTimeoutAction,
};
use longhaul_core::time::Millis;

use super::harness::TestRun;
use super::harness::script::check;
use super::policies::{ask_rule, plain, result_gate, with_rule};

#[test]
fn a_run_that_stays_open_learns_how_its_result_was_changed() {
    let open = RunPolicy {
        keep_open: Some(Millis::from_secs(3_600)),
        ..result_gate(GateTimeoutAction::Reject)
    };
    check(
        open,
        r#"
        claim                        => run.claimed | running
        see                          => run.prepared turn.started
        say A poem.                  => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        edit {"text": "Two poems."}  => gate.answered | running
        claim                        => run.claimed
        go                           => run.waiting(message) | waiting message
        ? said                       => A person changed the result to: ¶ Two poems.
    "#,
    );
}

#[test]
fn a_rejection_with_data_alone_sends_the_result_back() {
    check(
        result_gate(GateTimeoutAction::Reject),
        r#"
        claim                  => run.claimed | running
        see                    => run.prepared turn.started
        say A poem.            => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        no data {"lines": 2}   => gate.answered | running
        claim                  => run.claimed
        go                     => turn.started
        ? said                 => {"lines": 2}
    "#,
    );
}

#[test]
fn the_notes_of_all_votes_reach_the_model() {
    let two = GateRule {
        approvers: ApprovalRequirement { count: 2, not_submitter: false },
        ..ask_rule()
    };
    check(
        with_rule(two),
        r#"
        claim                            => run.claimed | running
        see                              => run.prepared turn.started
        call shell/once {"command": "ls"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes note Only once. by cli:anna  => gate.voted
        yes note Be quick. by cli:bert   => gate.answered | running
        claim                            => run.claimed
        go                               => tool.started(t1.1)
        done t1.1 ok                     => tool.completed(t1.1) turn.started
        ? said                           => t1.1: A person approved this call with the note: Only once. ¶ Be quick. ¶ ok
    "#,
    );
}

#[test]
fn a_message_that_answers_a_question_closes_it_as_answered_by_its_writer() {
    let mut test_run = TestRun::new(plain());
    for line in [
        "claim",
        "see",
        r#"call ask_human/pure {"question": "Which?", "options": ["Red", "Blue"]}"#,
        "steer after_batch red",
        "claim",
        "go",
    ] {
        test_run.play(line);
    }
    let gate = &test_run.rows.gates[0];
    assert_eq!(gate.status, GateStatus::Answered);
    let answer = &gate.answers[0].answer;
    assert_eq!((&*answer.by, &answer.decision), ("cli:anna", &GateDecision::Answer("Red".into())));
}
