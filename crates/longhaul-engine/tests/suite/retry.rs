//! Tests of retrying failed runs.

use longhaul_core::failure::FailureClass;
use longhaul_core::id::{LaneKey, RunId, ThreadKey};
use longhaul_core::status::Status;
use longhaul_engine::Task;
use longhaul_engine::handle::SubmitOutcome;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, engine_with, kinds, outcome_text};

async fn retry(engine: &TestEngine, run: RunId) -> SubmitOutcome {
    engine.longhaul.retry(run, "cli:anna").await.unwrap()
}

async fn failed_run(engine: &TestEngine, task: Task) -> RunId {
    let run = engine.longhaul.submit(task).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "auth");
    run
}

#[tokio::test]
async fn a_failed_run_is_retried_once_with_its_agent_version() {
    let mut engine = engine_with([FakeReply::Fail(FailureClass::Auth)]).build();
    engine.spawn_worker(|_| {});
    let mut task = Task::new("tester", "Do it.");
    task.lane = Some(LaneKey::new("a").unwrap());
    task.thread = Some(ThreadKey::new("t").unwrap());
    task.idempotency_key = Some("k".to_owned());
    let failed = failed_run(&engine, task.clone()).await;
    let journal = engine.ended(failed).await;
    engine.model.set_replies(vec![FakeReply::Text("Done.")]);
    let mut changed = (*engine.longhaul.get_agent("tester").unwrap()).clone();
    changed.prompt = "You are changed.".into();
    engine.longhaul.register(changed);
    let SubmitOutcome::Created(created) = retry(&engine, failed).await else {
        panic!("the run was not created");
    };
    assert_eq!(outcome_text(&engine.ended(created[0]).await), "Done.");
    let [old, new] = [failed, created[0]].map(|run| engine.longhaul.get_run(run));
    let (old, new) = (old.await.unwrap(), new.await.unwrap());
    assert_eq!((new.retry_of, old.retry_of), (Some(failed), None));
    assert_eq!((old.attempt, new.attempt), (1, 2));
    assert_eq!(new.agent_version, old.agent_version);
    assert_eq!((&new.lane, &new.thread, &new.input), (&old.lane, &old.thread, &old.input));
    assert_eq!((old.status, new.status), (Status::Failed, Status::Completed));
    // Nothing follows the end of the failed run.
    assert_eq!(kinds(&engine.ended(failed).await), kinds(&journal));
    assert_eq!(retry(&engine, failed).await, SubmitOutcome::Existing(created));
    // The idempotency key still belongs to the first run.
    assert_eq!(engine.longhaul.submit(task).await.unwrap(), failed);
}

#[tokio::test]
async fn attempts_are_counted_over_several_retries() {
    let mut engine = engine_with([FakeReply::Fail(FailureClass::Auth)]).build();
    engine.spawn_worker(|_| {});
    let mut run = failed_run(&engine, Task::new("tester", "x")).await;
    for attempt in 2..4 {
        run = retry(&engine, run).await.run_ids()[0];
        assert_eq!(outcome_text(&engine.ended(run).await), "auth");
        assert_eq!(engine.longhaul.get_run(run).await.unwrap().attempt, attempt);
    }
}

#[tokio::test]
async fn only_a_failed_run_can_be_retried() {
    let mut engine = engine_with([FakeReply::Text("Done.")]).build();
    let pending = engine.submit().await;
    let cancelled = engine.submit().await;
    engine.longhaul.cancel_run(cancelled, "cli:anna", "").await.unwrap();
    let refusal = async |run| engine.longhaul.retry(run, "cli:anna").await.unwrap_err();
    for (run, status) in [(pending, "pending"), (cancelled, "cancelled")] {
        let error = refusal(run).await;
        assert_eq!(error.code(), "not_failed");
        assert!(error.to_string().ends_with(&format!("is {status}")), "{error}");
    }
    let unknown = RunId::from_bits(1);
    assert_eq!(refusal(unknown).await.code(), "no_run");
    engine.spawn_worker(|_| {});
    engine.ended(pending).await;
    let error = engine.longhaul.retry(pending, "cli:anna").await.unwrap_err();
    assert!(error.to_string().ends_with("is completed"), "{error}");
}

#[tokio::test]
async fn a_retry_joins_the_end_of_its_lane() {
    let mut engine = engine_with([FakeReply::Fail(FailureClass::Auth)]).build();
    let stop = engine.spawn_worker(|_| {});
    let task = || Task { lane: Some(LaneKey::new("a").unwrap()), ..Task::new("tester", "x") };
    let failed = failed_run(&engine, task()).await;
    stop.request_drain();
    engine.worker_stopped().await;
    let before = engine.longhaul.submit(task()).await.unwrap();
    let retried = retry(&engine, failed).await.run_ids()[0];
    let status = async |run| {
        let row = engine.longhaul.run_row(run).await.unwrap();
        (row.status, row.reason)
    };
    assert_eq!(status(before).await, (Status::Pending, Some("worker".to_owned())));
    assert_eq!(status(retried).await, (Status::Pending, Some("lane".to_owned())));
}
