//! The gate at which people approve, edit or reject the result of a run.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::gate::{GateTimeout, GateTimeoutAction};
use longhaul_core::time::Millis;

use super::harness::script::check;
use super::policies::result_gate;

#[test]
fn a_result_can_need_two_approvers_without_a_timeout() {
    let mut policy = result_gate(GateTimeoutAction::Reject);
    if let Some(gate) = &mut policy.result_gate {
        gate.timeout = Some(GateTimeout::Never);
        gate.approvers.count = 2;
    }
    check(
        policy,
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        say A poem.     => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 100000000  =>
        yes by cli:anna => gate.voted
        yes by cli:bob  => gate.answered | running
        claim           => run.claimed
        go              => run.completed(A poem.) | completed
    "#,
    );
}

#[test]
fn a_result_gate_approves_or_rejects_the_output() {
    check(
        result_gate(GateTimeoutAction::Reject),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        say A poem.         => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        no Make it shorter. => gate.answered | running
        claim               => run.claimed
        go                  => turn.started
        ? said              => Make it shorter.
        say Poem.           => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        yes                 => gate.answered | running
        claim               => run.claimed
        go                  => run.completed(Poem.) | completed
        ? outcome           => {"text":"Poem."}
    "#,
    );
    check(
        result_gate(GateTimeoutAction::Reject),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        no          => gate.answered | running
        claim       => run.claimed
        go          => run.failed(rejected) | failed
        ? outcome   => rejected: cli:anna rejected the result
    "#,
    );
    check(
        result_gate(GateTimeoutAction::Approve),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 600    => gate.expired(approve) | running
        claim       => run.claimed
        go          => run.completed(A poem.) | completed
    "#,
    );
    check(
        result_gate(GateTimeoutAction::Pause),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 600    => gate.expired(pause) | running
        claim       => run.claimed
        go          => run.paused | paused
        resume      => run.resumed | running
        claim       => run.claimed
        go          => gate.raised(result) run.waiting(approval) | waiting approval
        tick 600    => gate.expired(pause) | running
    "#,
    );
    check(
        result_gate(GateTimeoutAction::Fail),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 600    => gate.expired(fail) | running
        claim       => run.claimed
        go          => run.failed(gate_expired) | failed
    "#,
    );
}

#[test]
fn an_edited_result_replaces_the_output() {
    for (edit, outcome) in [
        (r#""Roses.""#, r#"{"text":"Roses."}"#),
        (r#"{"text": "Roses."}"#, r#"{"text":"Roses."}"#),
        (r#"{"lines": 2}"#, r#"{"text":"{\"lines\": 2}","data":{"lines": 2}}"#),
    ] {
        let mut world = super::harness::TestRun::new(result_gate(GateTimeoutAction::Reject));
        for line in ["claim", "see", r#"say {"lines": 4}"#] {
            world.play(line);
        }
        world.play(&format!("edit {edit}"));
        world.play("claim");
        world.play("go");
        assert_eq!(world.show("outcome"), outcome, "{edit}");
    }
}

#[test]
fn the_answer_that_approves_a_result_is_part_of_the_output() {
    for (answer, outcome) in [
        (
            r#"yes data {"action": "create_pr"}"#,
            r#"{"text":"Poem.","answer":{"by":"cli:anna","decision":"approve","payload":{"action": "create_pr"}}}"#,
        ),
        (
            "yes note Fine. by cli:bob",
            r#"{"text":"Poem.","answer":{"by":"cli:bob","decision":"approve","note":"Fine."}}"#,
        ),
        // An edit can't claim that somebody else has answered.
        (
            r#"edit {"text": "Roses.", "answer": {"by": "cli:eve", "decision": "approve"}}"#,
            r#"{"text":"Roses."}"#,
        ),
    ] {
        let mut test_run = super::harness::TestRun::new(result_gate(GateTimeoutAction::Reject));
        for line in ["claim", "see", "say Poem.", answer, "claim", "go"] {
            test_run.play(line);
        }
        assert_eq!(test_run.show("outcome"), outcome, "{answer}");
    }
}

#[test]
fn a_run_that_stays_open_learns_the_answer_to_its_result() {
    let open = RunPolicy {
        keep_open: Some(Millis::from_secs(3_600)),
        ..result_gate(GateTimeoutAction::Reject)
    };
    check(
        open,
        r#"
        claim                            => run.claimed | running
        see                              => run.prepared turn.started
        say A poem.                      => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        yes data {"action": "create_pr"} => gate.answered | running
        claim                            => run.claimed
        go                               => run.waiting(message) | waiting message
        ? said                           => A person approved the result. ¶ {"action": "create_pr"}
    "#,
    );
}
