//! Chains: the run of the next step is created in the append that ends the run before it, results
//! are approved automatically, and a retried step has the same position in the chain.

use longhaul_core::chain::{
    AUTO_APPROVE_DELAY, Chain, ChainRepeat, ChainRepeatEndCondition, ChainStep, ChainStepCondition,
    PositionInChain, StepVerdict,
};
use longhaul_core::id::{AgentName, RunId};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::gate::{AutoApproval, GateTimeoutAction};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::status::RunOutput;

use super::harness::TestRun;
use super::harness::script::check_in;
use super::policies::{plain, result_gate};

fn step(agent: &str, condition: ChainStepCondition) -> ChainStep {
    ChainStep {
        name: agent.to_owned(),
        agent: AgentName::new(agent).unwrap(),
        definition: Hash::digest(agent.as_bytes()),
        policy: plain(),
        condition,
        repeat: None,
    }
}

pub(super) fn run_in_chain(steps: Vec<ChainStep>, policy: RunPolicy) -> TestRun {
    TestRun::with_task(|task| {
        task.policy = policy;
        let chain = Chain { name: Some("pair".to_owned()), steps };
        task.chain = Some(Box::new(PositionInChain::first(chain, task.root)));
    })
}

pub(super) fn pair(condition: ChainStepCondition) -> Vec<ChainStep> {
    vec![step("writer", ChainStepCondition::Always), step("critic", condition)]
}

#[test]
fn the_next_step_is_created_in_the_append_that_ends_the_run() {
    let run = check_in(
        run_in_chain(pair(ChainStepCondition::Always), plain()),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed chain.step_started run.completed(A poem.) | completed
    "#,
    );
    assert_eq!(run.rows.children.len(), 1);
    let run = check_in(
        run_in_chain(pair(ChainStepCondition::OnIssuesFound), plain()),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed run.completed(A poem.) | completed
    "#,
    );
    assert!(run.rows.children.is_empty());
}

#[test]
fn a_step_that_does_not_complete_ends_the_chain() {
    let run = check_in(
        run_in_chain(pair(ChainStepCondition::Always), plain()),
        r#"
        claim  => run.claimed | running
        cancel => run.cancel_requested
        see    => run.cancelled | cancelled
    "#,
    );
    assert!(run.rows.children.is_empty());
}

#[test]
fn a_result_is_approved_automatically_unless_a_person_answers_first() {
    let policy = || {
        let mut policy = result_gate(GateTimeoutAction::Reject);
        let by = "chain:pair".to_owned();
        let auto = Some(AutoApproval { after: AUTO_APPROVE_DELAY, by });
        policy.result_gate.as_mut().unwrap().auto_approve = auto;
        policy
    };
    let steps = || pair(ChainStepCondition::Always);
    check_in(
        run_in_chain(steps(), policy()),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 2      =>
        tick 1      => gate.answered | running
        claim       => run.claimed
        go          => chain.step_started run.completed(A poem.) | completed
    "#,
    );
    check_in(
        run_in_chain(steps(), policy()),
        r#"
        claim       => run.claimed | running
        see         => run.prepared turn.started
        say A poem. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        no          => gate.answered | running
        claim       => run.claimed
        tick 5      =>
        go          => run.failed(rejected) | failed
    "#,
    );
    // A person who has rejected a result decides about the next one, too.
    let run = check_in(
        run_in_chain(steps(), policy()),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        say A poem.    => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        no Longer.     => gate.answered | running
        claim          => run.claimed
        go             => turn.started
        say Two poems. => turn.completed gate.raised(result) run.waiting(approval) | waiting approval
        tick 5         =>
        yes            => gate.answered | running
        claim          => run.claimed
        go             => chain.step_started run.completed(Two poems.) | completed
    "#,
    );
    let auto_approvals = run.rows.gates.iter().map(|gate| gate.spec.auto_approve.is_some());
    assert_eq!(auto_approvals.collect::<Vec<_>>(), [true, false]);
}

fn output(data: &str) -> RunOutput {
    let data = (!data.is_empty()).then(|| RawJson::parse(data).unwrap());
    RunOutput { data, ..RunOutput::default() }
}

/// Returns the steps that run when each completed step has one of these outputs, in order.
fn walk(steps: Vec<ChainStep>, outputs: &[&str]) -> Vec<usize> {
    let first = RunId::from_bits(1);
    let mut position = PositionInChain::first(Chain { name: None, steps }, first);
    let mut step_order = vec![0];
    for (number, data) in (1..).zip(outputs) {
        match position.position_of_next_run(RunId::from_bits(number), &output(data)) {
            Some(next) => position = next,
            None => break,
        }
        assert_eq!(position.completed.len(), step_order.len());
        step_order.push(position.step);
    }
    step_order
}

#[test]
fn a_chain_goes_back_until_its_condition_holds_or_the_maximum_is_reached() {
    const ISSUES: &str = r#"{"issues_found": true}"#;
    const FINE: &str = r#"{"issues_found": false}"#;
    let steps = |max, until| {
        let repeat = Some(ChainRepeat { from: 0, until, max });
        vec![
            step("review", ChainStepCondition::Always),
            ChainStep { repeat, ..step("fix", ChainStepCondition::OnIssuesFound) },
            step("report", ChainStepCondition::Always),
        ]
    };
    let no_issues = |max| steps(max, ChainRepeatEndCondition::NoIssues);
    assert_eq!(walk(no_issues(3), &[ISSUES, "", FINE, ""]), [0, 1, 0, 2]);
    assert_eq!(walk(no_issues(1), &[ISSUES, "", ISSUES, "", ""]), [0, 1, 0, 1, 2]);
    // The fix itself says that nothing is left.
    assert_eq!(walk(no_issues(3), &[ISSUES, FINE, ""]), [0, 1, 2]);
    let success = steps(2, ChainRepeatEndCondition::Success);
    let failed = r#"{"success": false}"#;
    assert_eq!(walk(success, &[ISSUES, failed, ISSUES, "", ""]), [0, 1, 0, 1, 2]);
    assert_eq!(StepVerdict::from_step_output(&output(r#"{"success": 1}"#)), StepVerdict::default());
}

#[test]
fn a_retried_step_has_the_same_position() {
    let mut run = TestRun::with_task(|task| {
        let steps = pair(ChainStepCondition::Always);
        let chain = Chain { name: None, steps };
        let first = PositionInChain::first(chain, RunId::from_bits(7));
        let position = first.position_of_next_run(RunId::from_bits(7), &output("")).unwrap();
        (task.root, task.parent) = (RunId::from_bits(7), Some(RunId::from_bits(7)));
        task.chain = Some(Box::new(position));
    });
    run = check_in(
        run,
        r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        err invalid_request => turn.failed(invalid_request) run.failed(invalid_request) | failed
    "#,
    );
    let retried = run.retry();
    let (id, task) = (retried.run.id(), retried.run.task().clone());
    assert_eq!((task.root, task.parent), (id, None));
    assert_eq!(
        task.retry_of.unwrap().first_run_of_task(),
        RunId::from_bits(7),
        "the budget of the chain"
    );
    assert_eq!(task.chain.as_ref().unwrap().step, 1);
}
