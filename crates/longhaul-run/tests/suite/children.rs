//! Child runs: how calls start them, how their ends reach the run, and what happens with them when
//! the run ends first.

use super::harness::TestRun;
use super::harness::children::child_id;
use super::harness::script::{check, check_in};
use super::policies::{ask_rule, plain, with_caps, with_rule};
use longhaul_core::change::TimerKind;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{GateRule, GateRuleAction};
use longhaul_core::policy::{ChildCancelPolicy, RunPolicy};
use longhaul_core::time::Millis;
use longhaul_run::{CHILD_DEPTH_MAX, CHILDREN_MAX};

const START: &str = r#"
    claim                                            => run.claimed | running
    see                                              => run.prepared turn.started
"#;

fn check_after_start(policy: RunPolicy, script: &str) -> TestRun {
    check(policy, &format!("{START}{script}"))
}

#[test]
fn the_result_of_a_child_is_the_result_of_its_call() {
    check_after_start(
        plain(),
        r#"
        call run_agent/pure {"agent": "reader", "input": "a"} => turn.completed
        ? step                => start t1.1
        spawn t1.1            => child.started(t1.1) run.waiting(child) | waiting child
        ? why                 => The run waits for CHILD1 to end.
        crash                 => !not driven
        child 1 It says B.    => child.ended | running
        child 1 Again.        => child.ended
        claim                 => run.claimed
        go                    => tool.completed(t1.1) turn.started
        ? said                => t1.1: It says B.
        say Done.             => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn children_of_one_turn_run_at_the_same_time() {
    check_after_start(
        plain(),
        r#"
        call run_agent/pure + run_agent/pure + read/pure + run_agent/pure => turn.completed tool.started(t1.3)
        ? step                => start t1.1 t1.2 t1.4
        spawn t1.1 t1.2 t1.4  => child.started(t1.1) child.started(t1.2) child.started(t1.4)
        child 3 Third.        => child.ended
        done t1.3 ok          => tool.completed(t1.3) tool.completed(t1.4) run.waiting(child) | waiting child
        child 2 !no key       => child.ended | running
        claim                 => run.claimed
        go                    => tool.failed(t1.2) run.waiting(child) | waiting child
        child 1 cancelled     => child.ended | running
        claim                 => run.claimed
        go                    => tool.failed(t1.1) turn.started
        ? said                => t1.1: ! the child run CHILD1 was cancelled by cli:anna | t1.2: ! the child run CHILD2 failed (auth): no key | t1.3: ok | t1.4: Third.
    "#,
    );
}

#[test]
fn a_child_that_cannot_start_is_an_error_for_the_model() {
    check_after_start(
        plain(),
        r#"
        call run_agent/pure     => turn.completed
        unspawn there is no agent `x` => tool.failed(t1.1) turn.started
        ? said                  => t1.1: ! no child run was started: there is no agent `x`
    "#,
    );
    let deep = TestRun::with_task(|task| task.depth = CHILD_DEPTH_MAX);
    check_in(
        deep,
        &format!(
            "{START}
        call run_agent/pure => turn.completed
        spawn t1.1          => tool.failed(t1.1) turn.started
        ? said              => t1.1: ! no child run was started: this run is 5 levels below the first run, which is the maximum; do the work yourself
    "
        ),
    );
}

#[test]
fn the_number_of_open_children_is_bounded() {
    let calls = vec!["run_agent/pure"; CHILDREN_MAX + 1].join(" + ");
    let ids: Vec<String> = (1..=CHILDREN_MAX + 1).map(|index| format!("t1.{index}")).collect();
    let mut run = check_after_start(plain(), "");
    run.play(&format!("call {calls}"));
    run.play(&format!("spawn {}", ids.join(" ")));
    assert_eq!(run.run.control().children.len(), CHILDREN_MAX);
    assert_eq!(run.rows.children.len(), CHILDREN_MAX);
}

#[test]
fn a_message_or_a_cancel_comes_before_the_start_of_a_child() {
    for (line, expected) in [
        (
            "steer before_next_tool Stop.",
            "tool.failed(t1.1) steer.delivered(after turn 1) turn.started",
        ),
        ("cancel", "run.cancelled"),
    ] {
        let mut run = check_after_start(plain(), "call run_agent/pure => turn.completed");
        run.play(line);
        assert_eq!(run.play("spawn t1.1"), expected, "{line}");
        assert!(run.rows.children.is_empty());
    }
}

#[test]
fn rules_decide_about_children() {
    let policy = |action| with_rule(GateRule { tool: "run_agent".into(), action, ..ask_rule() });
    check_after_start(
        policy(GateRuleAction::Ask("Start it?".into())),
        r#"
        call run_agent/pure => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes                 => gate.answered | running
        claim               => run.claimed
        go                  =>
        ? step              => start t1.1
        spawn t1.1          => child.started(t1.1) run.waiting(child) | waiting child
    "#,
    );
    // A child that starts because of a remembered approval is a use of it.
    check_after_start(
        policy(GateRuleAction::Ask("Start it?".into())),
        r#"
        call run_agent/pure => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes agent           => rule.added(agent) gate.answered | running
        claim               => run.claimed
        spawn t1.1 background => child.started(t1.1) tool.completed(t1.1) turn.started
        call run_agent/pure => turn.completed
        spawn t2.1          => rule.used(agent t2.1) child.started(t2.1) run.waiting(child) | waiting child
    "#,
    );
    check_after_start(
        policy(GateRuleAction::Deny("alone".into())),
        "call run_agent/pure => turn.completed tool.failed(t1.1) turn.started",
    );
}

#[test]
fn a_run_goes_on_while_a_child_works_in_the_background() {
    check_after_start(
        plain(),
        r#"
        call run_agent/pure   => turn.completed
        spawn t1.1 background => child.started(t1.1) tool.completed(t1.1) turn.started
        ? said                => t1.1: started the child run CHILD1 of agent `reader`; you are told when it ends, and `wait` waits for it
        say Done.             => turn.completed run.waiting(child) | waiting child
        child 1 It says B.    => child.ended | running
        claim                 => run.claimed
        go                    => turn.started(signal)
        ? said                => [longhaul] The child run CHILD1 of agent `reader` ended: It says B.
        say B.                => turn.completed run.completed(B.) | completed
    "#,
    );
}

#[test]
fn a_run_can_wait_for_a_child_that_it_started_before() {
    check_after_start(
        plain(),
        r#"
        call run_agent/pure                    => turn.completed
        spawn t1.1 background                  => child.started(t1.1) tool.completed(t1.1) turn.started
        call wait/pure {"child": "CHILD1"} + wait/pure {"child": "CHILD2"} + wait/pure {"child": "CHILD1"} => turn.completed tool.started(t2.1) tool.failed(t2.2) tool.failed(t2.3) run.waiting(child) | waiting child
        child 1 It says B.                     => child.ended | running
        claim                                  => run.claimed
        go                                     => tool.completed(t2.1) turn.started
        ? said                                 => t2.1: It says B. | t2.2: ! CHILD2 is not an open child run of this run: it was never started, or its result has been reported | t2.3: ! another call of this turn waits for CHILD1
        call wait/pure {"child": "CHILD1"}     => turn.completed tool.failed(t3.1) turn.started
    "#,
    );
}

#[test]
fn children_end_with_their_parent_unless_its_policy_keeps_them() {
    let check = |on_cancel, script: &str, expected: &[TimerKind]| {
        let policy = RunPolicy { children_on_cancel: on_cancel, ..plain() };
        let script = format!(
            "call run_agent/pure + run_agent/pure => turn.completed
             spawn t1.1 t1.2 => child.started(t1.1) child.started(t1.2) run.waiting(child) | waiting child
             child 1 Read. => child.ended | running
             {script}"
        );
        let run = check_after_start(policy, &script);
        let id = run.run.id();
        let kinds: Vec<_> = run.rows.sent.iter().map(|(_, kind)| kind.clone()).collect();
        assert_eq!(kinds, expected);
        assert!(run.rows.sent.iter().all(|(to, _)| *to == child_id(2)), "{id}");
    };
    let parent = TestRun::new(plain()).run.id();
    let cancelled = [TimerKind::ParentEnded(parent)];
    let close = "close enough => run.cancel_requested run.cancelled | cancelled";
    check(ChildCancelPolicy::Cancel, close, &cancelled);
    check(ChildCancelPolicy::Keep, close, &[]);
}

#[test]
fn the_parent_gets_an_event_for_every_ended_child() {
    for script in [
        "say Done. => turn.completed run.completed(Done.) | completed",
        "err auth => turn.failed(auth) run.failed(auth) | failed",
        "cancel => run.cancel_requested\n err stopped => turn.failed(stopped) run.cancelled | cancelled",
    ] {
        let parent = child_id(9);
        let child = TestRun::with_task(|task| {
            task.parent = Some(parent);
            task.policy = plain();
        });
        let id = child.run.id();
        let ended = check_in(child, &format!("{START}{script}"));
        assert_eq!(ended.rows.sent, [(parent, TimerKind::ChildEnded(id))]);
    }
}

#[test]
fn finish_waits_for_the_results_of_children() {
    check_after_start(
        plain(),
        r#"
        call run_agent/pure             => turn.completed
        spawn t1.1 background           => child.started(t1.1) tool.completed(t1.1) turn.started
        call finish/pure {"output": 1}  => turn.completed tool.failed(t2.1) turn.started
        ? said                          => t2.1: ! child runs of this run are open, and their results would be lost: `wait` for each of them or cancel it, then finish
        child 1 It says B.              => child.ended
        call finish/pure {"output": 2}  => turn.completed tool.completed(t3.1) turn.started(signal)
        call finish/pure {"output": 3}  => turn.completed tool.completed(t4.1) run.completed(3) | completed
    "#,
    );
}

#[test]
fn no_child_starts_when_the_active_time_is_used_up() {
    let time = Budget { active: Some(Millis(400)), ..Budget::default() };
    check_after_start(
        with_caps(time),
        r#"
        call run_agent/pure => turn.completed budget.reached(activetime) run.waiting(budget) | waiting budget
        raise active 60     => budget.raised | running
        claim               => run.claimed
        ? step              => start t1.1
    "#,
    );
}

#[test]
fn an_interrupting_message_ends_the_wait_for_a_child() {
    check_after_start(
        plain(),
        r#"
        call run_agent/pure => turn.completed
        spawn t1.1          => child.started(t1.1) run.waiting(child) | waiting child
        steer after_batch Hello. => steer.queued | running
        claim               => run.claimed
        go                  => run.waiting(child) | waiting child
        steer interrupt Stop. => steer.queued | running
        claim               => run.claimed
        go                  => tool.completed(t1.1) steer.delivered(after turn 1) steer.delivered(after turn 1) turn.started
        child 1 It says B.  => child.ended
        say Done.           => turn.completed turn.started(signal)
        ? said              => [longhaul] The child run CHILD1 of agent `reader` ended: It says B.
    "#,
    );
}

#[test]
fn a_retry_gets_a_message_about_the_children_that_the_failed_run_has_left() {
    let failed = check_after_start(
        plain(),
        r#"
        call run_agent/pure   => turn.completed
        spawn t1.1 background => child.started(t1.1) tool.completed(t1.1) turn.started
        err invalid_request   => turn.failed(invalid_request) run.failed(invalid_request) | failed
    "#,
    );
    check_in(
        failed.retry(),
        r#"
        claim  => run.claimed | running
        go     => turn.started(signal)
        ? said => [longhaul] The child run CHILD1 of agent `reader` belongs to the failed run before this retry: you are not told when it ends. Start another one if you need its result.
    "#,
    );
}
