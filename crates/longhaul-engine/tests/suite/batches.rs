//! Tests of batches: the order of their runs, what a failure stops, and that nothing starts early.

use std::sync::atomic::Ordering;

use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::RunId;
use longhaul_core::status::Status;
use longhaul_core::task::{EarliestStart, RunBatchMode};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_engine::Task;
use longhaul_testkit::latch::Latch;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, engine_with, kinds, outcome_text};

fn tasks(count: usize) -> Vec<Task> {
    (0..count).map(|number| Task::new("tester", format!("task {number}"))).collect()
}

async fn submit(engine: &TestEngine, mode: RunBatchMode) -> Vec<RunId> {
    let batch = engine.longhaul.submit_batch(tasks(3), mode).await.unwrap();
    batch.runs.iter().map(|run| run.id).collect()
}

#[tokio::test]
async fn the_runs_of_a_sequential_batch_go_one_after_another() {
    let latch = Latch::closed();
    let engine = engine_with([FakeReply::Text("ok").after_latch(&latch)]).start();
    let runs = submit(&engine, RunBatchMode::Sequential).await;
    latch.reached(1).await;
    // Neither a message nor a pause and a resume start a run before its turn.
    engine.longhaul.steer(runs[1], "hurry", SteerDelivery::AfterBatch, "cli:anna").await.unwrap();
    engine.until(runs[1], "run.waiting").await;
    engine.longhaul.pause_run(runs[2], "cli:anna").await.unwrap();
    engine.longhaul.resume_run(runs[2], None, "cli:anna").await.unwrap();
    engine.until(runs[2], "run.waiting").await;
    let explanation = engine.longhaul.explain_run(runs[2]).await.unwrap();
    assert_eq!(explanation.message, "The run waits for the run before it in its batch.");
    assert_eq!(latch.arrivals(), 1);
    latch.open();
    let mut last_end = Timestamp::default();
    for run in &runs {
        let journal = engine.ended(*run).await;
        assert_eq!(outcome_text(&journal), "ok", "{:?}", kinds(&journal));
        let prepared = journal.iter().find(|entry| entry.event.kind() == "run.prepared");
        assert!(prepared.unwrap().at >= last_end, "the run started before its turn");
        last_end = journal.last().unwrap().at;
    }
    let first = engine.longhaul.get_run(runs[0]).await.unwrap();
    assert_eq!((first.status, first.reason), (Status::Completed, None));
    let batch = engine.longhaul.batch(first.batch.unwrap()).await.unwrap();
    assert_eq!(batch.runs[0].id, runs[0]);
}

#[tokio::test]
async fn a_failure_cancels_the_rest_of_a_sequential_batch() {
    let engine = engine_with([FakeReply::Fail(FailureClass::Auth)]).start();
    let runs = submit(&engine, RunBatchMode::Sequential).await;
    engine.ended(runs[0]).await;
    for run in &runs[1..] {
        let journal = engine.ended(*run).await;
        assert_eq!(kinds(&journal), ["run.created", "run.cancel_requested", "run.cancelled"]);
        let view = engine.longhaul.get_run(*run).await.unwrap();
        assert_eq!((view.status, view.reason.as_deref()), (Status::Cancelled, Some("batch")));
        let message = view.error.unwrap().message;
        assert!(message.contains("the run before it in batch_"), "{message}");
    }
    // In a parallel batch no run depends on another.
    let runs = submit(&engine, RunBatchMode::Parallel).await;
    for run in &runs {
        engine.ended(*run).await;
        assert_eq!(engine.longhaul.run_row(*run).await.unwrap().status, Status::Failed);
    }
}

#[tokio::test]
async fn a_batch_is_submitted_once_per_key_and_only_as_a_whole() {
    let engine = engine_with([]).build();
    let keyed = |count| {
        let mut tasks = tasks(count);
        tasks[0].idempotency_key = Some("k".to_owned());
        tasks
    };
    let first = engine.longhaul.submit_batch(keyed(2), RunBatchMode::Sequential).await.unwrap();
    let repeated = engine.longhaul.submit_batch(keyed(2), RunBatchMode::Sequential).await.unwrap();
    assert_eq!(first.id, repeated.id);
    let ids = |batch: &longhaul_api::task::BatchView| {
        batch.runs.iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&first), ids(&repeated));
    for (tasks, mode) in [(keyed(2), RunBatchMode::Parallel), (keyed(3), RunBatchMode::Sequential)]
    {
        let error = engine.longhaul.submit_batch(tasks, mode).await.unwrap_err();
        assert_eq!(error.code(), "idempotency_key_reused");
    }
    let mut late = tasks(2);
    late[1].start = EarliestStart::At(Timestamp::default().plus(Millis::from_secs(1)));
    for (tasks, code) in [
        (late, "invalid_task"),
        (Vec::new(), "invalid_task"),
        (tasks(1_001), "invalid_task"),
        (vec![Task::new("tester", "x"), Task::new("nobody", "x")], "agent_not_found"),
    ] {
        let error =
            engine.longhaul.submit_batch(tasks, RunBatchMode::Sequential).await.unwrap_err();
        assert_eq!(error.code(), code);
    }
    let batch = engine.longhaul.batch(first.id).await.unwrap();
    assert_eq!((ids(&batch), batch.mode), (ids(&first), RunBatchMode::Sequential));
}

#[tokio::test]
async fn a_cancel_reason_that_names_the_batch_is_not_a_cancel_by_the_batch() {
    let engine = engine_with([]).build();
    let batch = engine.longhaul.submit_batch(tasks(2), RunBatchMode::Sequential).await.unwrap();
    let run = batch.runs[1].id;
    let reason = format!("stop {}", batch.id);
    engine.longhaul.cancel_run(run, "cli:anna", &reason).await.unwrap();
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((view.status, view.reason), (Status::Cancelled, None));
}

#[tokio::test]
async fn a_batch_reads_the_workers_once() {
    let engine = engine_with([]).build();
    let batch = engine.longhaul.submit_batch(tasks(3), RunBatchMode::Parallel).await.unwrap();
    engine.longhaul.batch(batch.id).await.unwrap();
    assert_eq!(engine.store.worker_reads.load(Ordering::SeqCst), 1);
}
