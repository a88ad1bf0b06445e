//! Tests of the `lane_busy` policies: what happens with a task whose lane is busy, and that no task
//! is lost.

use futures_util::future::join_all;
use longhaul_core::event::Event;
use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::policy::LaneBusyPolicy;
use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_engine::Task;
use longhaul_engine::handle::SubmitOutcome;
use longhaul_testkit::latch::Latch;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, TestEngineBuilder, engine_with, outcome_text};

/// An engine whose agent has one lane and this policy. Its model waits at the latch.
fn engine_with_policy(policy: LaneBusyPolicy, latch: &Latch) -> TestEngineBuilder {
    engine_with([FakeReply::Text("first reply").after_latch(latch)]).agent(|agent| {
        agent.lane = Some("lane".into());
        agent.lane_busy = policy;
        agent.context = vec!["shop".into()];
    })
}

fn task(input: &str) -> Task {
    Task::new("tester", input)
}

fn keyed(input: &str, key: &str) -> Task {
    Task { idempotency_key: Some(key.to_owned()), ..task(input) }
}

async fn submit(engine: &TestEngine, task: Task) -> SubmitOutcome {
    engine.longhaul.submit_task(task).await.unwrap()
}

/// Submits a task and returns the id of its new run.
async fn create(engine: &TestEngine, task: Task) -> RunId {
    match submit(engine, task).await {
        SubmitOutcome::Created(runs) => runs[0],
        other @ (SubmitOutcome::Existing(_) | SubmitOutcome::Added(_)) => {
            panic!("no new run: {other:?}")
        }
    }
}

async fn all_runs(engine: &TestEngine) -> Vec<RunId> {
    let filter = RunFilter { limit: 1_000, ..RunFilter::default() };
    let runs = engine.longhaul.list_brief_runs(filter).await.unwrap();
    runs.iter().map(|run| run.id).collect()
}

#[tokio::test]
async fn a_task_goes_to_the_run_in_progress_as_a_message() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Steer, &latch).start();
    let first = create(&engine, task("one")).await;
    latch.reached(1).await;
    assert_eq!(submit(&engine, keyed("two", "k")).await, SubmitOutcome::Added(first));
    let view = engine.longhaul.submit_and_view_run(task("three")).await.unwrap();
    assert_eq!((view.id, view.added), (first, true));
    // A repeated submit adds no second message, also after the run has ended.
    let existing = SubmitOutcome::Existing(vec![first]);
    assert_eq!(submit(&engine, keyed("two", "k")).await, existing);
    let error = engine.longhaul.submit_task(keyed("other", "k")).await.unwrap_err();
    assert_eq!(error.code(), "idempotency_key_reused");
    // A message has no context, so this task waits for the lane.
    let mut with_context = task("four");
    with_context.context.insert("shop".into(), RawJson::from_serialize(&7));
    let waiting = create(&engine, with_context).await;
    latch.open();
    assert_eq!(outcome_text(&engine.ended(first).await), "done");
    assert_eq!(outcome_text(&engine.ended(waiting).await), "first reply");
    let texts = engine.model.requests().into_iter().find(|request| request.turn == 2);
    let texts = crate::suite::harness::model::user_texts(&texts.unwrap());
    assert_eq!(texts, ["one", "two", "three"]);
    assert_eq!(submit(&engine, keyed("two", "k")).await, existing);
    create(&engine, task("five")).await;
}

#[tokio::test]
async fn tasks_are_collected_in_the_run_that_waits() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Collect, &latch).with_sim_clock().start();
    let first = create(&engine, task("one")).await;
    latch.reached(1).await;
    let second = create(&engine, task("two")).await;
    for input in ["three", "four"] {
        assert_eq!(submit(&engine, keyed(input, input)).await, SubmitOutcome::Added(second));
    }
    let existing = SubmitOutcome::Existing(vec![second]);
    assert_eq!(submit(&engine, keyed("three", "three")).await, existing);
    latch.open();
    engine.ended(first).await;
    // The waiting run starts a second after the last message, and collects until then.
    let view = engine.longhaul.get_run(second).await.unwrap();
    assert_eq!((view.status, view.reason.as_deref()), (Status::Pending, Some("collect")));
    assert_eq!(submit(&engine, task("five")).await, SubmitOutcome::Added(second));
    engine.advance_until(second, "run.completed").await;
    assert_eq!(engine.user_texts(), ["two", "three", "four", "five"]);
    assert_eq!(all_runs(&engine).await, [second, first]);
    create(&engine, task("six")).await;
}

#[tokio::test]
async fn the_newest_task_cancels_the_runs_before_it() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Interrupt, &latch).start();
    let first = create(&engine, task("one")).await;
    latch.reached(1).await;
    // Tasks that are submitted together wait, whatever the policy.
    let waiting = engine.longhaul.submit_all(vec![task("two"), task("three")]).await.unwrap();
    let newest = create(&engine, keyed("four", "k")).await;
    for run in [first].iter().chain(waiting.run_ids()) {
        let journal = engine.ended(*run).await;
        let Event::RunCancelled(cancelled) = &journal.last().unwrap().event else {
            panic!("{run} is not cancelled");
        };
        let why = format!("the newer {newest} interrupted it");
        assert!(cancelled.reason.contains(&why), "{}", cancelled.reason);
    }
    assert_eq!(
        submit(&engine, keyed("four", "k")).await,
        SubmitOutcome::Existing(vec![newest]),
        "a repeated submit interrupts nothing"
    );
    latch.open();
    assert_eq!(outcome_text(&engine.ended(newest).await), "first reply");
}

#[tokio::test]
async fn a_task_is_refused_while_the_lane_is_busy() {
    let latch = Latch::closed();
    let engine = engine_with_policy(LaneBusyPolicy::Reject, &latch).start();
    let first = create(&engine, keyed("one", "k")).await;
    let refused = async |task| engine.longhaul.submit_task(task).await.unwrap_err();
    let error = refused(task("two")).await;
    assert_eq!(error.code(), "lane_busy");
    assert!(error.to_string().contains(&first.to_string()), "{error}");
    let existing = SubmitOutcome::Existing(vec![first]);
    assert_eq!(submit(&engine, keyed("one", "k")).await, existing);
    latch.open();
    engine.ended(first).await;
    let lane = LaneKey::new("lane").unwrap();
    engine.longhaul.pause_lane(&lane).await.unwrap();
    create(&engine, task("three")).await;
    assert_eq!(refused(task("four")).await.code(), "lane_busy", "a paused lane is busy too");
}

/// Many tasks are submitted at once while runs of the lane end. Each of them becomes the input of a
/// run or a delivered message, exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_task_is_lost_or_doubled_in_a_race() {
    for policy in [LaneBusyPolicy::Enqueue, LaneBusyPolicy::Steer, LaneBusyPolicy::Collect] {
        let latch = Latch::closed();
        latch.open();
        let engine = engine_with_policy(policy, &latch).start();
        let inputs: Vec<String> = (0..60).map(|number| format!("task {number}")).collect();
        join_all(inputs.iter().map(|input| submit(&engine, keyed(input, input)))).await;
        // A second attempt of each request changes nothing.
        join_all(inputs.iter().map(|input| submit(&engine, keyed(input, input)))).await;
        let mut found = Vec::new();
        for run in all_runs(&engine).await {
            for entry in engine.ended(run).await {
                assert_ne!(entry.event.kind(), "steer.dropped", "{policy:?}");
                if let Event::RunCreated(created) = &entry.event {
                    found.push(created.task.input.to_value());
                }
                if let Event::SteerQueued(message) = &entry.event {
                    found.push(message.text.clone().into());
                }
            }
        }
        let mut found: Vec<String> =
            found.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        found.sort();
        let mut expected = inputs.clone();
        expected.sort();
        assert_eq!(found, expected, "{policy:?}");
    }
}
