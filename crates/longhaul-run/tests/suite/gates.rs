//! Gates: raised together, answered once, bound to a digest, and closed by a timeout.
//!
//! Invariant: an approval covers only what was shown.

use longhaul_core::event::Event;
use longhaul_core::policy::gate::{
    ApprovalRequirement, EscalationStep, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
};
use longhaul_core::time::Millis;
use longhaul_run::commands::current_gate_digest;

use super::harness::script::check;
use super::policies::{ask_rule, ask_rule_with_timeout, result_gate, with_rule};

#[test]
fn gates_are_raised_together_and_hold_later_calls() {
    check(
        with_rule(ask_rule()),
        r#"
        claim        => run.claimed | running
        see          => run.prepared turn.started
        call read/pure + shell/once {"command": "a"} + read/pure + shell/once {"command": "b"} => turn.completed gate.raised(approval) gate.raised(approval) tool.started(t1.1)
        done t1.1 ok => tool.completed(t1.1) run.waiting(approval) | waiting approval
        ? command    => longhaul approve GATE && longhaul approve GATE
        yes @2       => gate.answered | running
        claim        => run.claimed
        go           => run.waiting(approval) | waiting approval
        ? command    => longhaul approve RUN
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
fn an_approval_needs_the_current_digest() {
    check(
        with_rule(ask_rule()),
        r#"
        claim                               => run.claimed | running
        see                                 => run.prepared turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes blind                           => !digest_missing
        yes stale                           => !digest_changed
        answer maybe                        => !invalid_decision
        no stale                            => !digest_changed
        yes                                 => gate.answered | running
        yes @1                              => !already_answered
        no @1                               => !already_answered
    "#,
    );
}

#[test]
fn an_edit_replaces_the_input_and_is_shown_to_the_model() {
    check(
        with_rule(ask_rule()),
        r#"
        claim                               => run.claimed | running
        see                                 => run.prepared turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        edit {"command": "ls"}              => gate.answered | running
        claim                               => run.claimed
        go                                  => tool.started(t1.1)
        ? step                              => run t1.1 shell {"command": "ls"}
        done t1.1 x                         => tool.completed(t1.1) turn.started
        ? said                              => t1.1: A person changed this call to {"command": "ls"} ¶ x
    "#,
    );
}

#[test]
fn a_rejection_is_the_result_of_the_call() {
    check(
        with_rule(ask_rule()),
        r#"
        claim                        => run.claimed | running
        see                          => run.prepared turn.started
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
fn an_approval_for_the_run_lasts_until_it_is_revoked() {
    check(
        with_rule(ask_rule()),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        no run          => !scope_not_offered
        yes run         => rule.added gate.answered | running
        claim           => run.claimed
        go              => tool.started(t1.1)
        done t1.1 ok    => tool.completed(t1.1) turn.started
        call shell/once => turn.completed rule.used(run t2.1) tool.started(t2.1)
        revoke          => rule.revoked
        done t2.1 ok    => tool.completed(t2.1) turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
    "#,
    );
    let always = GateRule { always: true, ..ask_rule() };
    check(
        with_rule(always),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run         => !scope_not_offered
        yes             => gate.answered | running
    "#,
    );
}

#[test]
fn an_approval_for_the_agent_or_project_lasts_until_it_is_revoked() {
    for scope in ["agent", "project"] {
        let script = r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once + shell/once => turn.completed gate.raised(approval) gate.raised(approval) run.waiting(approval) | waiting approval
        no SCOPE        => !scope_not_offered
        yes SCOPE       => rule.added(SCOPE) gate.answered | running
        yes SCOPE       => gate.answered
        claim           => run.claimed
        go              => tool.started(t1.1)
        done t1.1 ok    => tool.completed(t1.1) tool.started(t1.2)
        done t1.2 ok    => tool.completed(t1.2) turn.started
        call shell/once + notes/once => turn.completed rule.used(SCOPE t2.1) tool.started(t2.1)
        crash           =>
        claim           => run.claimed
        go              => run.recovered tool.in_doubt(t2.1) gate.raised(indoubt) run.waiting(question) | waiting question
        complete        => gate.answered | running
        claim           => run.claimed
        go              => tool.completed(t2.1) tool.started(t2.2)
        revoke          => -
        done t2.2 ok    => tool.completed(t2.2) turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        "#;
        let test_run = check(with_rule(ask_rule()), &script.replace("SCOPE", scope));
        assert_eq!(test_run.rows.rules.len(), 1, "{:?}", test_run.rows.rules);
        assert_eq!(test_run.rows.rules[0].used, 1, "only calls that nobody was asked about");
    }
}

#[test]
fn a_wide_scope_is_offered_only_if_one_person_may_decide() {
    let approvers = |count, not_submitter| ApprovalRequirement { count, not_submitter };
    for (rule, offered) in [
        (ask_rule(), "once run agent project"),
        (GateRule { always: true, ..ask_rule() }, "once"),
        (GateRule { approvers: approvers(2, false), ..ask_rule() }, "once run"),
        (GateRule { approvers: approvers(1, true), ..ask_rule() }, "once run"),
    ] {
        let mut test_run = check(
            with_rule(rule),
            "claim           => run.claimed | running
             see             => run.prepared turn.started
             call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval",
        );
        let scopes = test_run.rows.gates[0].spec.scopes();
        let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        assert_eq!(scopes.join(" "), offered);
        for scope in ["run", "agent", "project"].iter().filter(|scope| !scopes.contains(scope)) {
            assert_eq!(test_run.play(&format!("yes {scope}")), "!scope_not_offered");
        }
    }
}

#[test]
fn the_narrowest_scope_of_all_votes_counts() {
    let two = ApprovalRequirement { count: 2, not_submitter: false };
    check(
        with_rule(GateRule { approvers: two, ..ask_rule() }),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call shell/once + shell/once => turn.completed gate.raised(approval) gate.raised(approval) run.waiting(approval) | waiting approval
        yes run             => gate.voted
        yes by cli:bob      => gate.answered | running
        yes run             => gate.voted
        yes run by cli:bob  => rule.added gate.answered
    "#,
    );
}

#[test]
fn a_denied_call_is_not_run() {
    let deny = GateRule {
        match_glob: Some("rm *".into()),
        action: GateRuleAction::Deny("use the trash".into()),
        ..ask_rule()
    };
    check(
        with_rule(deny),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        call shell/once {"command": "rm x"} + shell/once {"command": "ls"} => turn.completed tool.failed(t1.1) tool.started(t1.2)
        done t1.2 x => tool.completed(t1.2) turn.started
        ? said      => t1.1: ! the call was denied: use the trash | t1.2: x
    "#,
    );
}

#[test]
fn several_approvers_must_agree_and_an_edit_resets_the_votes() {
    let two =
        GateRule { approvers: ApprovalRequirement { count: 2, not_submitter: true }, ..ask_rule() };
    check(
        with_rule(two.clone()),
        r#"
        claim                               => run.claimed | running
        see                                 => run.prepared turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes by key:boss                     => !self_approval
        yes by cli:anna                     => gate.voted
        yes by cli:anna                     => !already_voted
        edit {"command": "ls"} by cli:bob   => gate.voted
        yes by cli:bob                      => !already_voted
        yes stale by cli:anna               => !digest_changed
        yes by cli:anna                     => gate.answered | running
        claim                               => run.claimed
        go                                  => tool.started(t1.1)
        ? step                              => run t1.1 shell {"command": "ls"}
    "#,
    );
    check(
        with_rule(two.clone()),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call shell/once     => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes run by cli:anna => gate.voted
        yes by cli:bob      => gate.answered | running
    "#,
    );
    check(
        with_rule(two),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes by cli:anna => gate.voted
        no by key:boss  => gate.answered | running
    "#,
    );
}

#[test]
fn an_expired_gate_follows_on_timeout() {
    check(
        ask_rule_with_timeout(GateTimeoutAction::Reject),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 600        => gate.expired(reject) | running
        yes @1          => !gate_expired
        claim           => run.claimed
        go              => tool.failed(t1.1) turn.started
        ? said          => t1.1: ! nobody answered before the deadline
    "#,
    );
    check(
        ask_rule_with_timeout(GateTimeoutAction::Approve),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 600        => gate.expired(approve) | running
        claim           => run.claimed
        go              => tool.started(t1.1)
    "#,
    );
    check(
        ask_rule_with_timeout(GateTimeoutAction::Fail),
        r#"
        claim                        => run.claimed | running
        see                          => run.prepared turn.started
        call shell/once + shell/once => turn.completed gate.raised(approval) gate.raised(approval) run.waiting(approval) | waiting approval
        fire                         => gate.expired(fail) | running
        claim                        => run.claimed
        go                           => gate.withdrawn run.failed(gate_expired) | failed
        ? outcome                    => gate_expired: nobody answered before the deadline: May it?
        tick 600                     =>
    "#,
    );
    check(
        ask_rule_with_timeout(GateTimeoutAction::Pause),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
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
fn an_edit_among_the_votes_is_approved_by_a_timeout() {
    let two_by_timeout = |on_timeout| GateRule {
        approvers: ApprovalRequirement { count: 2, not_submitter: false },
        timeout: Some(GateTimeout::After(Millis::from_secs(600))),
        on_timeout,
        ..ask_rule()
    };
    check(
        with_rule(two_by_timeout(GateTimeoutAction::Approve)),
        r#"
        claim                               => run.claimed | running
        see                                 => run.prepared turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        edit {"command": "ls"} by cli:bob   => gate.voted
        edit {"command": "ls -l"} by cli:jo => gate.voted
        tick 600                            => gate.expired(approve) | running
        claim                               => run.claimed
        go                                  => tool.started(t1.1)
        ? step                              => run t1.1 shell {"command": "ls -l"}
        done t1.1 x                         => tool.completed(t1.1) turn.started
        ? said                              => t1.1: A person changed this call to {"command": "ls -l"} ¶ x
    "#,
    );
    check(
        with_rule(two_by_timeout(GateTimeoutAction::Reject)),
        r#"
        claim                               => run.claimed | running
        see                                 => run.prepared turn.started
        call shell/once {"command": "rm x"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        edit {"command": "ls"} by cli:bob   => gate.voted
        tick 600                            => gate.expired(reject) | running
        claim                               => run.claimed
        go                                  => tool.failed(t1.1) turn.started
        ? said                              => t1.1: ! nobody answered before the deadline
    "#,
    );
}

#[test]
fn reminders_repeat_and_escalate_without_waking_the_run() {
    let step = |hours: u64, to: &str| EscalationStep {
        after: Millis::from_secs(hours * 3_600),
        to: to.to_owned(),
    };
    let reminds = GateRule {
        remind: Some(Millis::from_secs(5 * 3_600)),
        escalation: vec![step(6, "lead"), step(30, "boss")],
        ..ask_rule()
    };
    check(
        with_rule(reminds.clone()),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 18000      => gate.reminded
        tick 3600       => gate.reminded(lead)
        tick 14400      => gate.reminded
        tick 18000      => gate.reminded
        yes             => gate.answered | running
        tick 90000      =>
    "#,
    );
    let endless = GateRule { timeout: Some(GateTimeout::Never), ..reminds };
    check(
        with_rule(endless),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        tick 18000      => gate.reminded
        tick 90000      => gate.reminded(lead) gate.reminded gate.reminded gate.reminded gate.reminded gate.reminded(boss) gate.reminded
        yes             => gate.answered | running
    "#,
    );
}

#[test]
fn a_gate_without_a_timeout_stays_open() {
    let endless = GateRule { timeout: Some(GateTimeout::Never), ..ask_rule() };
    check(
        with_rule(endless),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        ? timers        => []
        tick 100000000  =>
        yes             => gate.answered | running
    "#,
    );
}

#[test]
fn note_payload_and_result_are_paragraphs_for_the_model() {
    check(
        with_rule(ask_rule()),
        r#"
        claim                              => run.claimed | running
        see                                => run.prepared turn.started
        call shell/once + shell/once       => turn.completed gate.raised(approval) gate.raised(approval) run.waiting(approval) | waiting approval
        yes note Be kind. data {"dry": 1}  => gate.answered | running
        no Not now. data {"until": "May"}  => gate.answered
        claim                              => run.claimed
        go                                 => tool.failed(t1.2) tool.started(t1.1)
        done t1.1 ok                       => tool.completed(t1.1) turn.started
        ? said                             => t1.1: A person approved this call with the note: Be kind. ¶ A person approved this call with the data: {"dry": 1} ¶ ok | t1.2: ! a person rejected this call: Not now. ¶ {"until": "May"}
    "#,
    );
    check(
        result_gate(GateTimeoutAction::Reject),
        r#"
        claim                                   => run.claimed | running
        see                                     => run.prepared turn.started
        say A poem.                             => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        no Make it shorter. data {"lines": 2}   => gate.answered | running
        claim                                   => run.claimed
        go                                      => turn.started
        ? said                                  => Make it shorter. ¶ {"lines": 2}
    "#,
    );
}

#[test]
fn the_digest_covers_the_facts_that_a_gate_shows() {
    let raised_gate = |call: &str| {
        let mut test_run = super::harness::TestRun::new(with_rule(ask_rule()));
        for line in ["claim", "see", call] {
            test_run.play(line);
        }
        test_run.rows.gates.remove(0).spec
    };
    let calls = [
        r#"call shell/once {"command": "rm x"}"#,
        r#"call shell/once~backup {"command": "rm x"}"#,
        r#"call shell/once~none {"command": "rm x"}"#,
    ];
    let [plain, backup, none] = calls.map(raised_gate);
    assert_eq!(plain.facts, None);
    assert_eq!(backup.facts.as_ref().unwrap().undo.as_deref(), Some("backup"));
    assert_eq!((plain.id, plain.input), (backup.id, backup.input.clone()));
    assert!(plain.digest != backup.digest && backup.digest != none.digest);
    assert_eq!(raised_gate(calls[1]), backup);
}

#[test]
fn an_edit_is_journaled_with_its_diff_and_digest() {
    let mut test_run = super::harness::TestRun::new(with_rule(ask_rule()));
    for line in [
        "claim",
        "see",
        r#"call shell/once {"command": "rm x", "quiet": true}"#,
        r#"edit {"command": "ls", "quiet": true}"#,
    ] {
        test_run.play(line);
    }
    let answered = test_run.entries.iter().find_map(|entry| match &entry.event {
        Event::GateAnswered(data) => data.edit.clone(),
        _ => None,
    });
    let edit = answered.unwrap();
    let diff = serde_json::to_string(&edit.diff).unwrap();
    assert_eq!(diff, r#"[{"path":"/command","before":"rm x","after":"ls"}]"#);
    assert_eq!(edit.digest, current_gate_digest(&test_run.rows.gates[0]));
    assert_ne!(edit.digest, test_run.rows.gates[0].spec.digest);
}
