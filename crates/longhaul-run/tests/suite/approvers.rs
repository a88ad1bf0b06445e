//! Who may approve what: a call in doubt is repeated only with the approvals of its rule, nobody
//! approves work that they added, and a retry asks again.

use longhaul_core::chain::ChainStepCondition;
use longhaul_core::change::RowChange;
use longhaul_core::id::AgentName;
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::gate::{ApprovalRequirement, GateRule, GateTimeoutAction};
use longhaul_run::{DecisionContext, decide};

use super::chains::{pair, run_in_chain};
use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::{ask_rule, ask_rule_with_timeout, plain, result_gate, with_rule};

const TWO_OTHERS: ApprovalRequirement = ApprovalRequirement { count: 2, not_submitter: true };
const ONE_OTHER: ApprovalRequirement = ApprovalRequirement { count: 1, not_submitter: true };

fn with_approvers(approvers: ApprovalRequirement) -> RunPolicy {
    with_rule(GateRule { approvers, ..ask_rule() })
}

/// Plays the lines in a run of `key:anna` without comparing their outcomes.
fn played(policy: RunPolicy, lines: &[&str]) -> TestRun {
    let mut test_run = TestRun::with_task(|task| {
        task.policy = policy;
        task.submitter = Some("key:anna".into());
    });
    for line in lines {
        test_run.play(line);
    }
    test_run
}

#[test]
fn a_call_in_doubt_is_repeated_only_with_the_approvals_of_its_rule() {
    let begin = r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call shell/once     => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run by cli:anna => gate.voted
        yes run by cli:bob  => rule.added gate.answered | running
        claim               => run.claimed
        go                  => tool.started(t1.1)
        crash               =>
        claim               => run.claimed
        go                  => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        yes by key:boss     => !self_approval
    "#;
    let end = r#"
        yes run by cli:anna => !scope_not_offered
        yes by cli:anna     => gate.voted
        yes by cli:anna     => !already_voted
        yes by key:boss     => !self_approval
        yes by cli:bob      => gate.answered | running
        claim               => run.claimed
        go                  => tool.started(t1.1 again 2)
    "#;
    check(with_approvers(TWO_OTHERS), &format!("{begin}{end}"));
    // What does not repeat the call is the word of one person.
    for (line, result) in [
        ("answer paid by key:boss", "tool.completed(t1.1)"),
        ("complete by key:boss", "tool.completed(t1.1)"),
        ("no by key:boss", "tool.failed(t1.1)"),
    ] {
        let end = format!(
            "{line} => gate.answered | running
             claim  => run.claimed
             go     => {result} turn.started"
        );
        check(with_approvers(TWO_OTHERS), &format!("{begin}{end}"));
    }
}

#[test]
fn a_call_in_doubt_without_a_rule_is_repeated_by_one_person() {
    check(
        with_approvers(TWO_OTHERS),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call send/once  => turn.completed tool.started(t1.1)
        crash           =>
        claim           => run.claimed
        go              => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        yes by key:boss => gate.answered | running
    "#,
    );
}

#[test]
fn nobody_approves_after_a_message_to_the_run() {
    let begin = r#"
        claim                   => run.claimed | running
        see                     => run.prepared turn.started
        call read/pure          => turn.completed tool.started(t1.1)
    "#;
    let end = r#"
        done t1.1 ok            => tool.completed(t1.1) steer.delivered(after turn 1) turn.started
        call shell/once         => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes by key:boss         => !self_approval
        yes by cli:anna         => !self_approval
        edit {"a": 1} by cli:anna => !self_approval
        yes by cli:bob          => gate.answered | running
    "#;
    let steer = "steer after_batch Pay me. => steer.queued";
    check(with_approvers(ONE_OTHER), &format!("{begin}{steer}{end}"));
    // The answer to a gate that a program raised is a message, too.
    let signal = "signal the build           => gate.raised(signal)
                  complete data \"Pay me.\" => gate.answered";
    let end_of_signal =
        end.replace("steer.delivered(after turn 1) turn.started", "turn.started(signal)");
    check(with_approvers(ONE_OTHER), &format!("{begin}{signal}{end_of_signal}"));
    // Without the rule, it does not matter.
    let end = end.replace("yes by key:boss         => !self_approval\n", "");
    let end = end.replace("yes by cli:anna         => !self_approval\n", "");
    let end = end.replace("edit {\"a\": 1} by cli:anna => !self_approval\n", "");
    check(with_rule(ask_rule()), &format!("{begin}{steer}{}", end.replace("cli:bob", "cli:anna")));
}

#[test]
fn an_approval_for_the_run_ends_when_its_giver_sends_a_message() {
    for (approvers, votes, is_asked) in [
        (ONE_OTHER, &["yes run by cli:anna"][..], true),
        (ONE_OTHER, &["yes run by cli:bob"], false),
        (TWO_OTHERS, &["yes run by cli:anna", "yes run by cli:bob"], true),
        (TWO_OTHERS, &["yes run by cli:cleo", "yes run by cli:bob"], false),
        (ApprovalRequirement { count: 1, not_submitter: false }, &["yes run by cli:anna"], false),
    ] {
        let mut test_run = played(with_approvers(approvers), &["claim", "see", "call shell/once"]);
        for line in votes {
            test_run.play(line);
        }
        for line in ["claim", "go", "steer after_batch Pay me.", "done t1.1 ok"] {
            test_run.play(line);
        }
        let outcome = test_run.play("call shell/once");
        assert_eq!(outcome.contains("gate.raised"), is_asked, "{votes:?}: {outcome}");
        assert_eq!(outcome.contains("rule.used"), !is_asked, "{votes:?}: {outcome}");
    }
}

#[test]
fn a_retry_asks_again_for_a_call_that_has_not_started() {
    let policy = || {
        let mut policy = ask_rule_with_timeout(GateTimeoutAction::Fail);
        policy.rules[0].approvers = ONE_OTHER;
        policy
    };
    // The second call is approved, but waits for the first one.
    let begin = ["claim", "see", "call shell/once + shell/once", "yes @2 by key:boss"];
    let failed = played(policy(), &[&begin[..], &["tick 601", "claim", "go"]].concat());
    assert_eq!(failed.run.status().as_str(), "failed");
    check_in(
        failed.retry(),
        r#"
        claim              => run.claimed | running
        go                 => gate.raised(approval) gate.raised(approval) run.waiting(approval) | waiting approval
        yes @2 by key:boss => !self_approval
        yes @2 by key:anna => !self_approval
        yes @1 by cli:bob  => gate.answered | running
        yes @2 by cli:bob  => gate.answered
        claim              => run.claimed
        go                 => tool.started(t1.1)
    "#,
    );
    // The first call is in doubt, and a person has allowed to repeat it.
    let begin = ["claim", "see", "call shell/once + shell/once", "yes @1 by key:boss"];
    let middle = ["claim", "go", "crash", "claim", "go", "yes @3 by key:boss"];
    let end = ["tick 601", "claim", "go"];
    let failed = played(policy(), &[&begin[..], &middle, &end].concat());
    assert_eq!(failed.run.status().as_str(), "failed", "{:?}", failed.run.control());
    check_in(
        failed.retry(),
        r#"
        claim              => run.claimed | running
        go                 => gate.raised(approval) gate.raised(indoubt) run.waiting(approval) | waiting approval
        yes @2 by key:boss => !self_approval
        yes @2 by cli:bob  => gate.answered | running
    "#,
    );
}

#[test]
fn the_submitters_of_a_failed_run_may_not_approve_the_result_of_its_retry() {
    let mut policy = result_gate(GateTimeoutAction::Fail);
    policy.result_gate.as_mut().unwrap().approvers = ONE_OTHER;
    let failed = played(policy, &["claim", "see", "say Done", "no by cli:bob", "claim", "go"]);
    check_in(
        failed.retry(),
        r#"
        claim           => run.claimed | running
        go              => gate.raised(result) run.waiting(approval) | waiting approval
        yes by key:boss => !self_approval
        yes by key:anna => !self_approval
        yes by cli:bob  => gate.answered | running
    "#,
    );
}

#[test]
fn the_next_step_of_a_chain_has_the_submitters_of_this_one() {
    let mut test_run = run_in_chain(pair(ChainStepCondition::Always), plain());
    for line in ["steer after_batch Hurry.", "claim", "see"] {
        test_run.play(line);
    }
    let reply = test_run.input("say", "A poem.").unwrap();
    let batch = test_run.decide_only(reply, None).unwrap();
    let mut steps = batch.changes.iter().filter_map(|change| match change {
        RowChange::CreateStep(new) => Some(&new.task),
        _ => None,
    });
    let task = steps.next().unwrap();
    assert_eq!(task.agent, AgentName::new("critic").unwrap());
    assert_eq!(task.submitter.as_deref(), Some("key:boss"));
    assert_eq!(task.earlier_submitters, ["cli:anna"]);
}

#[test]
fn a_vote_of_a_revoked_key_does_not_count() {
    let mut test_run = played(with_approvers(TWO_OTHERS), &["claim", "see", "call shell/once"]);
    test_run.play("yes by key:bob");
    let outcome = |test_run: &mut TestRun, by: &str, revoked_votes: Vec<usize>| {
        let input = test_run.input("yes", &format!("by {by}")).unwrap();
        let ctx = DecisionContext { revoked_votes, ..DecisionContext::new(test_run.now) };
        match decide(&test_run.run, input, ctx) {
            Ok(batch) => batch.events[0].kind(),
            Err(rejection) => rejection.code(),
        }
    };
    assert_eq!(outcome(&mut test_run, "key:cleo", vec![]), "gate.answered");
    assert_eq!(outcome(&mut test_run, "key:cleo", vec![0]), "gate.voted");
    // A new key with the same name votes for itself.
    assert_eq!(outcome(&mut test_run, "key:bob", vec![]), "already_voted");
    assert_eq!(outcome(&mut test_run, "key:bob", vec![0]), "gate.voted");
    // Others can approve what a revoked key has written.
    test_run.play(r#"edit {"command": "ls"} by key:dora"#);
    assert_eq!(outcome(&mut test_run, "key:cleo", vec![]), "gate.answered");
    assert_eq!(outcome(&mut test_run, "key:cleo", vec![1]), "gate.voted");
}
