//! Where two readings are possible the stricter one holds.
//!
//! Never: a call that is done twice, or by fewer people, because of how it was written.

use longhaul_core::policy::Policy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, Verdict};
use longhaul_run::outside::standing_digest;

use super::policies::{asks, capped, plain, ruled};
use super::world::script::check;

fn about(subject: &str, verdict: Verdict) -> GateRule {
    GateRule {
        subject: Some(subject.into()),
        verdict,
        ..asks()
    }
}

fn rules(rules: Vec<GateRule>) -> Policy {
    Policy {
        rules,
        ..Policy::default()
    }
}

#[test]
fn what_a_person_wrote_is_not_repeated_as_what_the_model_wrote_would_be() {
    for class in ["pure", "keyed"] {
        let script = r#"
        claim                             => run.claimed | running
        see                               => run.perceived turn.started
        call shell/CLASS {"command": "ls"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        edit {"command": "rm x"}          => gate.answered | running
        claim                             => run.claimed
        go                                => tool.started(t1.1)
        crash                             =>
        claim                             => run.claimed
        go                                => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
    "#;
        check(ruled(asks()), &script.replace("CLASS", class));
    }
}

#[test]
fn a_command_of_two_parts_needs_whoever_either_part_needs() {
    let weak = GateRule {
        on_timeout: OnTimeout::Approve,
        ..about("git *", Verdict::Ask("Use git?".into()))
    };
    let strong = GateRule {
        always: true,
        approvers: Approvers {
            count: 2,
            not_submitter: true,
        },
        ..about("rm *", Verdict::Ask("Remove?".into()))
    };
    check(
        rules(vec![weak, strong]),
        r#"
        claim                                         => run.claimed | running
        see                                           => run.perceived turn.started
        call shell/once {"command": "git log; rm x"}  => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run by cli:anna                           => !scope_not_offered
        yes by key:boss                               => !own_run
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
fn a_command_that_cannot_be_read_is_asked_about() {
    let echo = about("echo *", Verdict::Allow);
    let git = about("git *", Verdict::Ask("Use git?".into()));
    check(
        rules(vec![echo, git]),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.perceived turn.started
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
fn a_command_that_cannot_be_read_passes_no_rule_that_let_others_pass() {
    let git = about("git *", Verdict::Allow);
    let rest = GateRule {
        subject: None,
        ..about("", Verdict::Deny("only git".into()))
    };
    check(
        rules(vec![git, rest]),
        r#"
        claim                                         => run.claimed | running
        see                                           => run.perceived turn.started
        call shell/once {"command": "git log"}        => turn.completed tool.started(t1.1)
        done t1.1 ok                                  => tool.completed(t1.1) turn.started
        call shell/once {"command": "git log $(rm)"}  => turn.completed tool.failed(t2.1) turn.started
        ? said                                        => t2.1: ! denied: only git (this line hides what it runs: write it plainly)
    "#,
    );
    let every = GateRule {
        subject: None,
        ..about("", Verdict::Allow)
    };
    let rm = about("rm *", Verdict::Deny("use the trash".into()));
    for (policy, then) in [
        (
            vec![rm.clone(), every.clone()],
            "tool.failed(t1.1) turn.started",
        ),
        (vec![every, rm], "tool.started(t1.1)"),
    ] {
        let script = r#"
        claim                                      => run.claimed | running
        see                                        => run.perceived turn.started
        call shell/once {"command": "echo $(rm)"}  => turn.completed THEN
    "#;
        check(rules(policy), &script.replace("THEN", then));
    }
}

#[test]
fn a_second_start_is_approved_for_what_was_shown() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.perceived turn.started
        call send/once => turn.completed tool.started(t1.1)
        crash          =>
        claim          => run.claimed
        go             => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        yes blind      => !digest_missing
        yes stale      => !digest_changed
        no Ask Bob.    => gate.answered | running
        claim          => run.claimed
        go             => tool.failed(t1.1) turn.started
        ? said         => t1.1: ! a person says: it did not happen: Ask Bob.
    "#,
    );
}

#[test]
fn what_is_said_with_a_yes_is_read() {
    check(
        ruled(asks()),
        r#"
        claim                    => run.claimed | running
        see                      => run.perceived turn.started
        call shell/once          => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes note Only this once. => gate.answered | running
        claim                    => run.claimed
        go                       => tool.started(t1.1)
        done t1.1 ok             => tool.completed(t1.1) turn.started
        ? said                   => t1.1: A person allowed this call and said: Only this once. / ok
    "#,
    );
}

#[test]
fn a_call_waits_for_the_question_before_it() {
    check(
        plain(),
        r#"
        claim       => run.claimed | running
        see         => run.perceived turn.started
        call ask_human/pure {"question": "Which?"} + write/keyed => turn.completed gate.raised(question) run.waiting(question) | waiting question
        answer This => gate.answered | running
        claim       => run.claimed
        go          => tool.completed(t1.1) tool.started(t1.2)
    "#,
    );
}

#[test]
fn the_cap_that_is_short_is_the_one_that_is_named() {
    let tokens = capped(Budget {
        tokens: Some(3_000),
        ..Budget::default()
    });
    check(
        tokens,
        r#"
        claim     => run.claimed | running
        see       => run.perceived budget.warned(tokens) turn.started
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_message_that_becomes_an_answer_answers() {
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.perceived turn.started
        call ask_human/pure {"question": "Which?"} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        steer follow_up     => steer.queued | running
        resteer after_batch The left one. => steer.changed
        claim               => run.claimed
        go                  => steer.delivered(as answer) gate.withdrawn tool.completed(t1.1) turn.started
    "#,
    );
}

#[test]
fn two_edits_that_are_too_deep_to_read_are_still_two() {
    let two = GateRule {
        approvers: Approvers {
            count: 2,
            not_submitter: false,
        },
        ..asks()
    };
    let mut world = super::world::World::new(ruled(two));
    for line in ["claim", "see", r#"call shell/once {"command": "ls"}"#] {
        world.play(line);
    }
    let deep = |inside: &str| format!("{}{inside}{}", "[".repeat(200), "]".repeat(200));
    world.play(&format!("edit {} by cli:anna", deep("1")));
    let shown = standing_digest(&world.rows.gates[0]);
    world.play(&format!("edit {} by cli:bob", deep("2")));
    assert_ne!(shown, standing_digest(&world.rows.gates[0]));
}
