//! Gates: asked together, answered once, frozen by a digest, over in time.
//!
//! Never: a yes that means more than what was shown.

use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, Verdict};

use super::policies::{asks, asks_until, result_gate, ruled};
use super::world::script::check;

#[test]
fn gates_are_raised_together_and_hold_what_follows() {
    check(
        ruled(asks()),
        r#"
        claim        => run.claimed | running
        see          => run.perceived turn.started
        call read/pure + shell/once {"command": "a"} + read/pure + shell/once {"command": "b"} => turn.completed gate.raised(approval) gate.raised(approval) tool.started(t1.1)
        done t1.1 ok => tool.completed(t1.1) run.waiting(approval) | waiting approval
        yes @2       => gate.answered | running
        claim        => run.claimed
        go           => run.waiting(approval) | waiting approval
        yes @1       => gate.answered | running
        claim        => run.claimed
        go           => tool.started(t1.2)
        done t1.2 ok => tool.completed(t1.2) tool.started(t1.3)
        done t1.3 ok => tool.completed(t1.3) tool.started(t1.4)
        done t1.4 ok => tool.completed(t1.4) turn.started
    "#,
    );
}

#[test]
fn a_yes_names_what_was_shown() {
    check(
        ruled(asks()),
        r#"
        claim                               => run.claimed | running
        see                                 => run.perceived turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes blind                           => !digest_missing
        yes stale                           => !digest_changed
        answer maybe                        => !wrong_decision
        no stale                            => !digest_changed
        yes                                 => gate.answered | running
        yes @1                              => !already_answered
        no @1                               => !already_answered
    "#,
    );
}

#[test]
fn an_edit_is_what_runs_and_the_model_reads_it() {
    check(
        ruled(asks()),
        r#"
        claim                               => run.claimed | running
        see                                 => run.perceived turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        edit {"command": "ls"}              => gate.answered | running
        claim                               => run.claimed
        go                                  => tool.started(t1.1)
        ? step                              => make t1.1 shell {"command": "ls"}
        done t1.1 x                         => tool.completed(t1.1) turn.started
        ? said                              => t1.1: A person changed this call to {"command": "ls"} / x
    "#,
    );
}

#[test]
fn a_no_is_the_result() {
    check(
        ruled(asks()),
        r#"
        claim                        => run.claimed | running
        see                          => run.perceived turn.started
        call shell/once + shell/once => turn.completed gate.raised(approval) gate.raised(approval) run.waiting(approval) | waiting approval
        no                           => gate.answered | running
        no Use the trash.            => gate.answered
        claim                        => run.claimed
        go                           => tool.failed(t1.1) tool.failed(t1.2) turn.started
        ? said                       => t1.1: ! a person rejected this call | t1.2: ! a person rejected this call: Use the trash.
    "#,
    );
}

#[test]
fn for_this_run_is_remembered_until_it_is_revoked() {
    check(
        ruled(asks()),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        no run          => !scope_not_offered
        yes run         => rule.added gate.answered | running
        claim           => run.claimed
        go              => tool.started(t1.1)
        done t1.1 ok    => tool.completed(t1.1) turn.started
        call shell/once => turn.completed tool.started(t2.1)
        revoke          => rule.revoked
        done t2.1 ok    => tool.completed(t2.1) turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
    "#,
    );
    let always = GateRule {
        always: true,
        ..asks()
    };
    check(
        ruled(always),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run         => !scope_not_offered
        yes             => gate.answered | running
    "#,
    );
}

#[test]
fn denied_is_denied() {
    let deny = GateRule {
        subject: Some("rm *".into()),
        verdict: Verdict::Deny("use the trash".into()),
        ..asks()
    };
    check(
        ruled(deny),
        r#"
        claim       => run.claimed | running
        see         => run.perceived turn.started
        call shell/once {"command": "rm x"} + shell/once {"command": "ls"} => turn.completed tool.failed(t1.1) tool.started(t1.2)
        done t1.2 x => tool.completed(t1.2) turn.started
        ? said      => t1.1: ! denied: use the trash | t1.2: x
    "#,
    );
}

#[test]
fn several_must_agree_and_an_edit_counts_anew() {
    let two = GateRule {
        approvers: Approvers {
            count: 2,
            not_submitter: true,
        },
        ..asks()
    };
    check(
        ruled(two.clone()),
        r#"
        claim                               => run.claimed | running
        see                                 => run.perceived turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes by key:boss                     => !own_run
        yes by cli:anna                     => gate.voted
        yes by cli:anna                     => !voted_before
        edit {"command": "ls"} by cli:bob   => gate.voted
        yes by cli:bob                      => !voted_before
        yes stale by cli:anna               => !digest_changed
        yes by cli:anna                     => gate.answered | running
        claim                               => run.claimed
        go                                  => tool.started(t1.1)
        ? step                              => make t1.1 shell {"command": "ls"}
    "#,
    );
    check(
        ruled(two.clone()),
        r#"
        claim               => run.claimed | running
        see                 => run.perceived turn.started
        call shell/once     => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run by cli:anna => gate.voted
        yes by cli:bob      => gate.answered | running
    "#,
    );
    check(
        ruled(two),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes by cli:anna => gate.voted
        no by key:boss  => gate.answered | running
    "#,
    );
}

#[test]
fn silence_means_what_the_rule_says() {
    check(
        asks_until(OnTimeout::Reject),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 600        => gate.expired(reject) | running
        yes @1          => !gate_expired
        claim           => run.claimed
        go              => tool.failed(t1.1) turn.started
        ? said          => t1.1: ! nobody answered in time
    "#,
    );
    check(
        asks_until(OnTimeout::Approve),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 600        => gate.expired(approve) | running
        claim           => run.claimed
        go              => tool.started(t1.1)
    "#,
    );
    check(
        asks_until(OnTimeout::Fail),
        r#"
        claim                        => run.claimed | running
        see                          => run.perceived turn.started
        call shell/once + shell/once => turn.completed gate.raised(approval) gate.raised(approval) run.waiting(approval) | waiting approval
        fire                         => gate.expired(fail) | running
        claim                        => run.claimed
        go                           => gate.withdrawn run.failed(gate_expired) | failed
        ? outcome                    => gate_expired: nobody answered in time: May it?
        tick 600                     =>
    "#,
    );
    check(
        asks_until(OnTimeout::Pause),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 600        => gate.expired(pause) | running
        claim           => run.claimed
        go              => run.paused | paused
        resume          => run.resumed | running
        claim           => run.claimed
        go              => gate.raised(approval) run.waiting(approval) | waiting approval
        yes             => gate.answered | running
        claim           => run.claimed
        go              => tool.started(t1.1)
    "#,
    );
}

#[test]
fn people_are_reminded_and_the_run_sleeps_on() {
    let reminds = GateRule {
        remind: Some(longhaul_core::time::Millis::from_secs(60)),
        ..asks()
    };
    check(
        ruled(reminds),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 60         => gate.reminded
        yes             => gate.answered | running
        tick 90000      =>
    "#,
    );
}

#[test]
fn a_result_is_good_or_not() {
    check(
        result_gate(OnTimeout::Reject),
        r#"
        claim               => run.claimed | running
        see                 => run.perceived turn.started
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
        result_gate(OnTimeout::Reject),
        r#"
        claim       => run.claimed | running
        see         => run.perceived turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        no          => gate.answered | running
        claim       => run.claimed
        go          => run.failed(rejected) | failed
        ? outcome   => rejected: cli:anna rejected the result
    "#,
    );
    check(
        result_gate(OnTimeout::Approve),
        r#"
        claim       => run.claimed | running
        see         => run.perceived turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 600    => gate.expired(approve) | running
        claim       => run.claimed
        go          => run.completed(A poem.) | completed
    "#,
    );
    check(
        result_gate(OnTimeout::Pause),
        r#"
        claim       => run.claimed | running
        see         => run.perceived turn.started
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
        result_gate(OnTimeout::Fail),
        r#"
        claim       => run.claimed | running
        see         => run.perceived turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 600    => gate.expired(fail) | running
        claim       => run.claimed
        go          => run.failed(gate_expired) | failed
    "#,
    );
}

#[test]
fn an_edited_result_is_a_whole_one() {
    for (edit, outcome) in [
        (r#""Roses.""#, r#"{"text":"Roses."}"#),
        (r#"{"text": "Roses."}"#, r#"{"text":"Roses."}"#),
        (
            r#"{"lines": 2}"#,
            r#"{"text":"{\"lines\": 2}","data":{"lines": 2}}"#,
        ),
    ] {
        let mut world = super::world::World::new(result_gate(OnTimeout::Reject));
        for line in ["claim", "see", r#"say {"lines": 4}"#] {
            world.play(line);
        }
        world.play(&format!("edit {edit}"));
        world.play("claim");
        world.play("go");
        assert_eq!(world.shown("outcome"), outcome, "{edit}");
    }
}
