//! Chains: the rows of their runs name the newest run and its status.

use longhaul_core::chain::{Chain, ChainRow, ChainStep, ChainStepCondition, PositionInChain};
use longhaul_core::change::{LaneEntryPolicy, NewRun, RowChange, RunSchedulingUpdate};
use longhaul_core::id::RunId;
use longhaul_core::policy::RunPolicy;
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_core::task::{RetriedRun, RunBatchMode, RunBatchPosition};

use crate::conformance::store::batches::{BatchExt as _, end_batch, events_batch};
use crate::conformance::store::fixture::{StoreFixture, agent, lane_key};

/// Returns the position of a run in a chain of two steps.
pub(crate) fn position(step: usize, first_run: RunId) -> Box<PositionInChain> {
    let step_of = |name: &str| ChainStep {
        name: name.to_owned(),
        agent: agent(name),
        definition: Hash::digest(name.as_bytes()),
        policy: RunPolicy::default(),
        condition: ChainStepCondition::Always,
        repeat: None,
    };
    let chain = Chain { name: Some("pair".to_owned()), steps: vec![step_of("a"), step_of("b")] };
    Box::new(PositionInChain { step, ..PositionInChain::first(chain, first_run) })
}

/// All runs of a chain name its newest run and its status. A run that interrupts the lane of the
/// chain cancels the newest run, and a batch lists only the first one.
pub async fn the_runs_of_a_chain_name_the_newest_one(fixture: StoreFixture) {
    let batch =
        RunBatchPosition { id: fixture.ids.batch(), mode: RunBatchMode::Parallel, next: None };
    let mut first = fixture.new_run(|task| {
        task.lane = Some(lane_key("a"));
        task.batch = Some(batch);
    });
    first.task.chain = Some(position(0, first.id));
    let root = first.id;
    fixture.open_runs(vec![first]).await;
    let row = |step, current, current_status| {
        Some(ChainRow { name: Some("pair".to_owned()), step, steps: 2, current, current_status })
    };
    assert_eq!(fixture.row(root).await.chain, row(0, root, Status::Pending));
    let worker = fixture.worker().await;
    let mut claimed_run = fixture.claim_one(worker).await;
    let next = fixture.new_run(|task| {
        (task.root, task.parent) = (root, Some(root));
        task.lane = Some(lane_key("a"));
        task.batch = Some(batch);
        task.chain = Some(position(1, root));
    });
    let second = next.id;
    let end_keeping_lane = RowChange::UpdateScheduling(RunSchedulingUpdate::End {
        status: Status::Completed,
        code: None,
        releases_lane: false,
    });
    let end = events_batch(end_batch().events).with_change(end_keeping_lane);
    claimed_run.append_ok(end.with_change(RowChange::CreateStep(Box::new(next)))).await;
    assert_eq!(fixture.row(root).await.chain, row(0, second, Status::Pending));
    let mut claimed_run = fixture.claim_one(worker).await;
    assert_eq!(claimed_run.run, second);
    claimed_run.park("child").await;
    for (run, step) in [(root, 0), (second, 1)] {
        assert_eq!(fixture.row(run).await.chain, row(step, second, Status::Waiting));
    }
    assert_eq!(fixture.open(|_| {}).await, fixture.claim_one(worker).await.run);
    let runs = fixture.harness.records.runs_of_batch(batch.id).await.expect("runs");
    assert_eq!(runs, [root]);
    let newer = fixture.new_run(|task| task.lane = Some(lane_key("a")));
    let newer = NewRun { lane_entry: LaneEntryPolicy::Interrupt, ..newer };
    fixture.open_runs(vec![newer]).await;
    let timers = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(timers.iter().map(|timer| timer.run).collect::<Vec<_>>(), [second]);
    fixture.assert_consistent().await;
}

/// The retry of a failed step and the steps after it are the newest runs of the chain, also for the
/// runs of the tree that failed.
pub async fn a_retry_is_the_newest_run_of_its_chain(fixture: StoreFixture) {
    let mut first = fixture.new_run(|_| {});
    first.task.chain = Some(position(0, first.id));
    let failed = first.id;
    fixture.open_runs(vec![first]).await;
    let worker = fixture.worker().await;
    fixture.claim_one(worker).await.end().await;
    let retried = RetriedRun { run: failed, attempts: 1, first: Some(failed) };
    let retry = fixture.new_run(|task| {
        task.lane = Some(lane_key("a"));
        task.retry_of = Some(retried);
        task.chain = Some(position(0, failed));
    });
    let retry_id = retry.id;
    fixture.open_runs(vec![retry]).await;
    let current = async |run| {
        let chain = fixture.row(run).await.chain.expect("a run of a chain");
        (chain.step, chain.current, chain.current_status)
    };
    assert_eq!(current(failed).await, (0, retry_id, Status::Pending));
    let mut claimed_run = fixture.claim_one(worker).await;
    let next = fixture.new_run(|task| {
        (task.root, task.parent) = (retry_id, Some(retry_id));
        task.lane = Some(lane_key("a"));
        task.chain = Some(position(1, failed));
    });
    let second = next.id;
    let end_keeping_lane = RowChange::UpdateScheduling(RunSchedulingUpdate::End {
        status: Status::Completed,
        code: None,
        releases_lane: false,
    });
    let end = events_batch(end_batch().events).with_change(end_keeping_lane);
    claimed_run.append_ok(end.with_change(RowChange::CreateStep(Box::new(next)))).await;
    for (run, step) in [(failed, 0), (retry_id, 0), (second, 1)] {
        assert_eq!(current(run).await, (step, second, Status::Pending));
    }
    let newer = fixture.new_run(|task| task.lane = Some(lane_key("a")));
    let newer = NewRun { lane_entry: LaneEntryPolicy::Interrupt, ..newer };
    fixture.open_runs(vec![newer]).await;
    let timers = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(timers.iter().map(|timer| timer.run).collect::<Vec<_>>(), [second]);
    fixture.assert_consistent().await;
}
