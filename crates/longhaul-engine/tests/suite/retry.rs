//! Tests of retrying failed runs.

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{LaneKey, RunId, ThreadKey};
use longhaul_core::policy::LaneBusyPolicy;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{GateDecision, GateKind};
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use longhaul_engine::handle::SubmitOutcome;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};

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
    assert_eq!(refusal(unknown).await.code(), "run_not_found");
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

/// Waits for the end of a run, which must fail with this code, and replies to its retry with these
/// replies.
async fn retry_after(
    engine: &TestEngine,
    run: RunId,
    code: &str,
    replies: Vec<FakeReply>,
) -> RunId {
    assert_eq!(outcome_text(&engine.ended(run).await), code);
    engine.model.set_replies(replies);
    retry(engine, run).await.run_ids()[0]
}

#[tokio::test]
async fn a_completed_effect_is_not_repeated_and_its_result_is_kept() {
    let effects = EffectLog::default();
    let long = "y".repeat(40_000);
    let output = long.clone();
    let send = FakeTool::new("send", EffectClass::Once, &effects).with_action(move |_, _| {
        let output = output.clone();
        async move { Ok(ToolOutput::text(output)) }.boxed()
    });
    let begin = [FakeReply::call("send", json!({})), FakeReply::Fail(FailureClass::InvalidRequest)];
    let engine = engine_with(begin).tools([send]).start();
    let failed = engine.submit().await;
    let read = FakeReply::call("read_output", json!({ "call": "t1.1", "offset": 39_000 }));
    let second = vec![FakeReply::Fail(FailureClass::InvalidRequest)];
    let retried = retry_after(&engine, failed, "invalid_request", second).await;
    let third = retry_after(&engine, retried, "invalid_request", vec![read]).await;
    let journal = engine.ended(third).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(effects.count("send begins"), 1, "{:?}", effects.all());
    assert_eq!(count(&journal, "run.forked"), 2);
    // The full text of the result is a blob that the runs share.
    assert!(engine.results()[0].0.starts_with("yyy"), "{:?}", engine.results());
    let view = engine.longhaul.get_run(third).await.unwrap();
    assert_eq!((view.attempt, view.retry_of, view.turns), (3, Some(retried), 2));
    assert_eq!(view.tools_called, ["send", "read_output"]);
}

#[tokio::test]
async fn a_call_in_doubt_of_the_failed_run_is_asked_about() {
    let effects = EffectLog::default();
    let latch = Latch::closed();
    let send = FakeTool::new("send", EffectClass::Once, &effects)
        .after_latch(&latch)
        .with_timeout(Millis(20))
        .with_in_doubt(InDoubtPolicy::Fail);
    let engine = engine_with([FakeReply::call("send", json!({}))]).tools([send]).start();
    let failed = engine.submit().await;
    let retried = retry_after(&engine, failed, "in_doubt", Vec::new()).await;
    let gate = engine.gate(retried).await;
    assert_eq!(gate.spec.kind, GateKind::InDoubt);
    let gate_answer = answer(&gate, GateDecision::Answer("it was sent".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(retried).await), "done");
    assert_eq!(engine.results(), [("it was sent".to_owned(), false)]);
    assert_eq!(effects.count("send begins"), 1);
}

#[tokio::test]
async fn a_retry_does_not_reset_the_budget() {
    let begin = [
        FakeReply::call("report_progress", json!({ "message": "half" })),
        FakeReply::Fail(FailureClass::InvalidRequest),
    ];
    let engine = engine_with(begin).agent(|agent| agent.budget.caps.tokens = Some(200_000)).start();
    let failed = engine.submit().await;
    let retried = retry_after(&engine, failed, "invalid_request", Vec::new()).await;
    engine.ended(retried).await;
    let account = async |run| engine.store.budget_account(run).await.unwrap().unwrap();
    assert_eq!(account(retried).await, account(failed).await);
    assert_eq!(account(failed).await.spent.tokens, 30, "one turn of each run");
    let view = engine.longhaul.get_run(retried).await.unwrap();
    assert_eq!((view.turns, view.usage.input_tokens), (1, 10), "its own turn");
}

#[tokio::test]
async fn tasks_that_were_added_to_a_failed_run_are_kept() {
    let latch = Latch::closed();
    for policy in [LaneBusyPolicy::Steer, LaneBusyPolicy::Collect] {
        let auth = FakeReply::Fail(FailureClass::Auth);
        let engine = engine_with([auth.after_latch(&latch)])
            .agent(|agent| {
                agent.lane = Some("lane".into());
                agent.lane_busy = policy;
            })
            .build();
        let failed = engine.longhaul.submit(Task::new("tester", "one")).await.unwrap();
        let added = engine.longhaul.submit_task(Task::new("tester", "two")).await.unwrap();
        assert_eq!(added, SubmitOutcome::Added(failed));
        let mut engine = engine;
        engine.spawn_worker(|_| {});
        latch.open();
        let retried = retry_after(&engine, failed, "auth", Vec::new()).await;
        assert_eq!(outcome_text(&engine.ended(retried).await), "done", "{policy:?}");
        assert_eq!(engine.user_texts(), ["one", "two"], "{policy:?}");
    }
}
