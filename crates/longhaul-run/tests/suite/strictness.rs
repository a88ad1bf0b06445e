//! Ambiguous rules and inputs: the stricter interpretation wins.
//!
//! Invariant: the spelling of a call never causes it to run twice or with fewer approvals.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{
    ApprovalRequirement, EscalationStep, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
};
use longhaul_core::time::Millis;
use longhaul_run::commands::current_gate_digest;

use super::harness::script::check;
use super::policies::{ask_rule, plain, with_caps, with_rule};

fn rule_about(match_glob: &str, verdict: GateRuleAction) -> GateRule {
    GateRule { match_glob: Some(match_glob.into()), action: verdict, ..ask_rule() }
}

fn rules(rules: Vec<GateRule>) -> RunPolicy {
    RunPolicy { rules, ..RunPolicy::default() }
}

#[test]
fn an_edited_call_is_not_repeated_after_a_crash() {
    for class in ["pure", "keyed"] {
        let script = r#"
        claim                             => run.claimed | running
        see                               => run.prepared turn.started
        call shell/CLASS {"command": "ls"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        edit {"command": "rm x"}          => gate.answered | running
        claim                             => run.claimed
        go                                => tool.started(t1.1)
        crash                             =>
        claim                             => run.claimed
        go                                => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
    "#;
        check(with_rule(ask_rule()), &script.replace("CLASS", class));
    }
}

#[test]
fn a_compound_command_needs_the_approvers_of_each_part() {
    let weak_rule = GateRule {
        on_timeout: GateTimeoutAction::Approve,
        ..rule_about("git *", GateRuleAction::Ask("Use git?".into()))
    };
    let strong_rule = GateRule {
        always: true,
        approvers: ApprovalRequirement { count: 2, not_submitter: true },
        ..rule_about("rm *", GateRuleAction::Ask("Remove?".into()))
    };
    check(
        rules(vec![weak_rule, strong_rule]),
        r#"
        claim                                         => run.claimed | running
        see                                           => run.prepared turn.started
        call shell/once {"command": "git log; rm x"}  => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run by cli:anna                           => !scope_not_offered
        yes by key:boss                               => !self_approval
        yes by cli:anna                               => gate.voted
        tick 90000                                    => gate.expired(reject) | running
        claim                                         => run.claimed
        go                                            => tool.failed(t1.1) turn.started
        call shell/once {"command": "git log; ls"}    => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes by key:boss                               => gate.answered | running
    "#,
    );
}

#[test]
fn an_opaque_command_needs_approval() {
    let echo = rule_about("echo *", GateRuleAction::Allow);
    let git = rule_about("git *", GateRuleAction::Ask("Use git?".into()));
    check(
        rules(vec![echo, git]),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.prepared turn.started
        call shell/once {"command": "git log"}     => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run                                    => rule.added gate.answered | running
        claim                                      => run.claimed
        go                                         => tool.started(t1.1)
        done t1.1 ok                               => tool.completed(t1.1) turn.started
        call shell/once {"command": "echo a"}      => turn.completed tool.started(t2.1)
        done t2.1 a                                => tool.completed(t2.1) turn.started
        call shell/once {"command": "echo $(rm)"}  => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
    "#,
    );
}

#[test]
fn an_opaque_command_is_not_covered_by_an_earlier_approval() {
    let git = rule_about("git *", GateRuleAction::Allow);
    let rest =
        GateRule { match_glob: None, ..rule_about("", GateRuleAction::Deny("only git".into())) };
    check(
        rules(vec![git, rest]),
        r#"
        claim                                         => run.claimed | running
        see                                           => run.prepared turn.started
        call shell/once {"command": "git log"}        => turn.completed tool.started(t1.1)
        done t1.1 ok                                  => tool.completed(t1.1) turn.started
        call shell/once {"command": "git log $(rm)"}  => turn.completed tool.failed(t2.1) turn.started
        ? said                                        => t2.1: ! the call was denied: only git (the call can't be inspected: write it shorter, without nested commands)
    "#,
    );
    let allow_all = GateRule { match_glob: None, ..rule_about("", GateRuleAction::Allow) };
    let rm = rule_about("rm *", GateRuleAction::Deny("use the trash".into()));
    for (policy, then) in [
        (vec![rm.clone(), allow_all.clone()], "tool.failed(t1.1) turn.started"),
        (vec![allow_all, rm], "tool.started(t1.1)"),
    ] {
        let script = r#"
        claim                                      => run.claimed | running
        see                                        => run.prepared turn.started
        call shell/once {"command": "echo $(rm)"}  => turn.completed THEN
    "#;
        check(rules(policy), &script.replace("THEN", then));
    }
}

#[test]
fn a_rule_that_is_too_long_to_be_compared_applies_unless_it_allows_the_call() {
    let (long_glob, long_text) = (format!("*{}b", "a".repeat(14_000)), "a".repeat(900_000));
    let allow = |glob: &str| rule_about(glob, GateRuleAction::Allow);
    let ask = |glob: &str| rule_about(glob, GateRuleAction::Ask("May it?".into()));
    let deny = |glob: &str| rule_about(glob, GateRuleAction::Deny("no".into()));
    let started = "tool.started(t1.1)";
    let asked = "gate.raised(approval) run.waiting(approval) | waiting approval";
    let denied = "tool.failed(t1.1) turn.started";
    for (policy, text, then) in [
        (vec![ask(&long_glob)], "ls", asked),
        (vec![deny(&long_glob)], "ls", denied),
        (vec![allow(&long_glob), ask("*")], "ls", asked),
        (vec![allow("*"), ask("rm *")], "ls", started),
        (vec![allow("*"), ask("rm *")], long_text.as_str(), asked),
        (vec![ask("*"), deny("rm *")], &long_text, denied),
        (vec![allow("*")], &long_text, started),
        (vec![ask(&long_glob)], &long_text, asked),
    ] {
        let script = r#"
        claim                                 => run.claimed | running
        see                                   => run.prepared turn.started
        call shell/once {"command": "TEXT"}   => turn.completed THEN
    "#;
        let mut script = script.replace("TEXT", text).replace("THEN", then);
        if then == asked && policy[0] == ask(&long_glob) {
            script.push_str("yes run => !scope_not_offered\n");
        }
        check(rules(policy), &script);
    }
}

#[test]
fn an_answer_to_an_in_doubt_gate_needs_the_digest_that_was_shown() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        call send/once => turn.completed tool.started(t1.1)
        crash          =>
        claim          => run.claimed
        go             => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        yes blind      => !digest_missing
        yes stale      => !digest_changed
        no Ask Bob.    => gate.answered | running
        claim          => run.claimed
        go             => tool.failed(t1.1) turn.started
        ? said         => t1.1: ! a person confirmed that it did not happen: Ask Bob.
    "#,
    );
}

#[test]
fn the_note_of_an_approval_reaches_the_model() {
    check(
        with_rule(ask_rule()),
        r#"
        claim                    => run.claimed | running
        see                      => run.prepared turn.started
        call shell/once          => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes note Only this once. => gate.answered | running
        claim                    => run.claimed
        go                       => tool.started(t1.1)
        done t1.1 ok             => tool.completed(t1.1) turn.started
        ? said                   => t1.1: A person approved this call with the note: Only this once. ¶ ok
    "#,
    );
}

#[test]
fn a_call_waits_for_the_question_before_it() {
    check(
        plain(),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        call ask_human/pure {"question": "Which?"} + write/keyed => turn.completed gate.raised(question) run.waiting(question) | waiting question
        answer This => gate.answered | running
        claim       => run.claimed
        go          => tool.completed(t1.1) tool.started(t1.2)
    "#,
    );
}

#[test]
fn an_exhausted_cap_is_named() {
    let tokens = with_caps(Budget { tokens: Some(3_000), ..Budget::default() });
    check(
        tokens,
        r#"
        claim     => run.claimed | running
        see       => run.prepared budget.warned(tokens) turn.started
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_message_that_answers_a_question_is_its_result() {
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call ask_human/pure {"question": "Which?"} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        steer follow_up     => steer.queued | running
        resteer after_batch The left one. => steer.changed
        claim               => run.claimed
        go                  => steer.delivered(as answer) gate.answered tool.completed(t1.1) turn.started
    "#,
    );
}

#[test]
fn two_too_deep_edits_have_different_digests() {
    let two = GateRule {
        approvers: ApprovalRequirement { count: 2, not_submitter: false },
        ..ask_rule()
    };
    let mut test_run = super::harness::TestRun::new(with_rule(two));
    for line in ["claim", "see", r#"call shell/once {"command": "ls"}"#] {
        test_run.play(line);
    }
    let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(200), "]".repeat(200));
    test_run.play(&format!("edit {} by cli:anna", deep("1")));
    let digest = current_gate_digest(&test_run.rows.gates[0]);
    test_run.play(&format!("edit {} by cli:bob", deep("2")));
    assert_ne!(digest, current_gate_digest(&test_run.rows.gates[0]));
}

#[test]
fn a_compound_command_has_the_shortest_timeout_and_the_reminders_of_each_part() {
    let hour = Millis::from_secs(3_600);
    let slow_rule = GateRule {
        timeout: Some(GateTimeout::Never),
        ..rule_about("git *", GateRuleAction::Ask("Use git?".into()))
    };
    let fast_rule = GateRule {
        timeout: Some(GateTimeout::After(Millis::from_secs(4 * 3_600))),
        remind: Some(hour),
        escalation: vec![EscalationStep { after: Millis::from_secs(5_400), to: "lead".into() }],
        ..rule_about("rm *", GateRuleAction::Ask("Remove?".into()))
    };
    check(
        rules(vec![slow_rule, fast_rule]),
        r#"
        claim                                        => run.claimed | running
        see                                          => run.prepared turn.started
        call shell/once {"command": "git log; rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 3600                                    => gate.reminded
        tick 1800                                    => gate.reminded(lead)
        tick 9000                                    => gate.reminded gate.reminded gate.expired(reject) | running
    "#,
    );
}
