//! Tests of cancel and pause. After an acknowledged cancel nothing starts, and running calls end or
//! are in doubt. A pause waits for running calls and starts nothing.

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::steer::SteerDelivery::AfterBatch;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass::{self, Once, Pure};
use longhaul_core::policy::gate::GateDecision;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

async fn cancel(engine: &TestEngine, run: RunId) {
    let result = engine.longhaul.cancel_run(run, "cli:anna", "enough").await;
    result.unwrap();
}

/// Checks that no event after the request starts something.
fn assert_nothing_starts_after(journal: &[JournalEntry], kind: &str) {
    let position = journal.iter().position(|entry| entry.event.kind() == kind);
    let after = &journal[position.expect("the request is in the journal")..];
    for start in ["turn.started", "tool.started", "gate.raised"] {
        assert_eq!(count(after, start), 0, "{:?}", kinds(journal));
    }
}

/// Builds an engine whose model waits at a latch.
fn engine_in_model_call(latch: &Latch) -> TestEngine {
    let reply = FakeReply::call("act", json!({})).after_latch(latch);
    let tool = FakeTool::new("act", Once, &EffectLog::default());
    engine_with([reply]).tools([tool]).start()
}

/// Builds an engine with a tool of this class that waits at a latch, and another call after it.
fn engine_in_tool_call(class: EffectClass, latch: &Latch, effects: &EffectLog) -> TestEngine {
    let tools = [
        FakeTool::new("act", class, effects).after_latch(latch),
        FakeTool::new("later", Once, effects),
    ];
    let calls = vec![("act", json!({})), ("later", json!({}))];
    engine_with([FakeReply::Calls(calls)]).tools(tools).start()
}

#[tokio::test]
async fn a_cancel_stops_the_model_call() {
    let latch = Latch::closed();
    let engine = engine_in_model_call(&latch);
    let run = engine.submit().await;
    latch.reached(1).await;
    cancel(&engine, run).await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_nothing_starts_after(&journal, "run.cancel_requested");
    assert_eq!(count(&journal, "turn.failed"), 1, "{:?}", kinds(&journal));
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert!(view.error.unwrap().message.contains("enough"));
}

#[tokio::test]
async fn a_cancel_stops_a_pure_call_and_awaits_a_once_call() {
    for (class, kind) in [(Pure, "tool.interrupted"), (Once, "tool.completed")] {
        let (latch, effects) = (Latch::closed(), EffectLog::default());
        let engine = engine_in_tool_call(class, &latch, &effects);
        let run = engine.submit().await;
        latch.reached(1).await;
        cancel(&engine, run).await;
        if class == Once {
            latch.open();
        }
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "run.cancelled");
        assert_nothing_starts_after(&journal, "run.cancel_requested");
        assert_eq!(count(&journal, kind), 1, "{:?}", kinds(&journal));
        assert_eq!(effects.count("later"), 0);
        assert_eq!(engine.model.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_once_call_that_outlasts_the_grace_is_in_doubt() {
    let (latch, effects) = (Latch::closed(), EffectLog::default());
    let tool = FakeTool::new("act", Once, &effects).after_latch(&latch);
    let builder = engine_with([FakeReply::call("act", json!({}))]).tools([tool]);
    let engine = builder.with_sim_clock().start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let started = engine.longhaul.store_time().await.unwrap();
    cancel(&engine, run).await;
    let journal = engine.advance_until(run, "run.cancelled").await;
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
    let elapsed = journal.last().unwrap().at.duration_since(started);
    assert!((10_000..15_000).contains(&elapsed.0), "{elapsed:?}");
}

#[tokio::test]
async fn an_undriven_run_is_cancelled_by_the_caller() {
    // Pending: there is no worker.
    let engine = engine_with([]).build();
    let run = engine.submit().await;
    cancel(&engine, run).await;
    let journal = engine.ended(run).await;
    assert_eq!(kinds(&journal), ["run.created", "run.cancel_requested", "run.cancelled"]);

    // Parked, with an open gate and a waiting message.
    let engine = engine_with([FakeReply::call("wait", json!({ "signal": "go" }))]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    engine.longhaul.steer(run, "hm", AfterBatch, "cli:anna").await.unwrap();
    engine.gate(run).await;
    cancel(&engine, run).await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_eq!(count(&journal, "gate.withdrawn"), 1);
    assert_eq!(count(&journal, "steer.dropped"), 1);
    let late = answer(&gate, GateDecision::Complete);
    let error = engine.longhaul.answer_gate(gate.spec.id, late).await.unwrap_err();
    assert_eq!(error.code(), "run_ended");
    // An ended run cannot be changed.
    for error in [
        engine.longhaul.cancel_run(run, "cli:anna", "again").await,
        engine.longhaul.close_run(run, "cli:anna").await,
        engine.longhaul.pause_run(run, "cli:anna").await,
        engine.longhaul.resume_run(run, None, "cli:anna").await,
    ] {
        assert_eq!(error.unwrap_err().code(), "run_ended");
    }
}

#[tokio::test]
async fn a_second_cancel_changes_nothing() {
    let (latch, effects) = (Latch::closed(), EffectLog::default());
    let engine = engine_in_tool_call(Once, &latch, &effects);
    let run = engine.submit().await;
    latch.reached(1).await;
    cancel(&engine, run).await;
    cancel(&engine, run).await;
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_eq!(effects.all(), ["act begins {}", "act ends {}"]);
    assert_eq!(count(&journal, "run.cancelled"), 1);
}

#[tokio::test]
async fn a_pause_waits_for_running_calls_and_a_resume_continues() {
    // During a model request: the reply is stored, and its calls wait.
    let latch = Latch::closed();
    let engine = engine_in_model_call(&latch);
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.longhaul.pause_run(run, "cli:anna").await.unwrap();
    latch.open();
    let entries = engine.until(run, "run.paused").await;
    assert_eq!(count(&entries, "turn.completed"), 1, "{:?}", kinds(&entries));
    assert_nothing_starts_after(&entries, "run.pause_requested");
    assert_eq!(engine.longhaul.get_run(run).await.unwrap().status, Status::Paused);
    let error = engine.longhaul.pause_run(run, "cli:anna").await.unwrap_err();
    assert_eq!(error.code(), "already_in_state");
    engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "done");

    // During a call: the call ends, and the next one does not start.
    for class in [Pure, Once] {
        let (latch, effects) = (Latch::closed(), EffectLog::default());
        let engine = engine_in_tool_call(class, &latch, &effects);
        let run = engine.submit().await;
        latch.reached(1).await;
        engine.longhaul.pause_run(run, "cli:anna").await.unwrap();
        latch.open();
        let entries = engine.until(run, "run.paused").await;
        assert_eq!(effects.all(), ["act begins {}", "act ends {}"], "{:?}", kinds(&entries));
        engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap();
        assert_eq!(outcome_text(&engine.ended(run).await), "done");
        assert_eq!(effects.count("later ends"), 1);
    }
}

#[tokio::test]
async fn messages_to_a_paused_run_are_queued() {
    let engine =
        engine_with([FakeReply::call("ask_human", json!({ "question": "Which?" }))]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    engine.longhaul.pause_run(run, "cli:anna").await.unwrap();
    let gate_answer = answer(&gate, GateDecision::Answer("blue".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    engine.longhaul.steer(run, "and green", AfterBatch, "cli:anna").await.unwrap();
    assert_eq!(engine.longhaul.get_run(run).await.unwrap().status, Status::Paused);
    engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "run.claimed"), 2, "{:?}", kinds(&journal));
    assert_eq!(engine.results(), [("blue".to_owned(), false)]);
    assert_eq!(engine.user_texts(), ["Do it.", "and green"]);
}

#[tokio::test]
async fn an_undriven_run_can_be_paused_and_then_cancelled() {
    let mut engine = engine_with([]).build();
    let (first, second) = (engine.submit().await, engine.submit().await);
    for run in [first, second] {
        engine.longhaul.pause_run(run, "cli:anna").await.unwrap();
    }
    engine.spawn_worker(|_| {});
    let third = engine.submit().await;
    engine.ended(third).await;
    assert_eq!(engine.longhaul.get_run(first).await.unwrap().status, Status::Paused);
    cancel(&engine, second).await;
    assert_eq!(outcome_text(&engine.ended(second).await), "run.cancelled");
    engine.longhaul.resume_run(first, None, "cli:anna").await.unwrap();
    assert_eq!(outcome_text(&engine.ended(first).await), "done");
}

#[tokio::test]
async fn a_resume_of_a_run_that_nobody_paused_changes_nothing() {
    // Pending, and then during a model request.
    let latch = Latch::closed();
    let mut engine = engine_with([FakeReply::Text("done").after_latch(&latch)]).build();
    let run = engine.submit().await;
    let error = engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap_err();
    assert_eq!(error.code(), "not_paused");
    engine.spawn_worker(|_| {});
    latch.reached(1).await;
    let error = engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "nobody has paused the run, so there is nothing to resume. The run is calling the model, turn 1."
    );
    // A pause that has not taken effect yet is withdrawn.
    engine.longhaul.pause_run(run, "cli:anna").await.unwrap();
    engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap();
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!((count(&journal, "run.resumed"), count(&journal, "run.paused")), (1, 0));

    // At a gate, which a resume does not answer.
    let engine = engine_with([FakeReply::call("wait", json!({ "signal": "go" }))]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap();
    engine.longhaul.answer_gate(gate.spec.id, answer(&gate, GateDecision::Complete)).await.unwrap();
    assert_eq!(count(&engine.ended(run).await, "run.resumed"), 0);
}

#[tokio::test]
async fn one_of_two_closes_completes_an_open_run() {
    let engine = engine_with([FakeReply::Text("done")])
        .agent(|agent| agent.keep_open = Some(Millis::from_secs(3_600)))
        .start();
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    let close = |by: &'static str| engine.longhaul.close_run(run, by);
    let (one, other) = tokio::join!(close("cli:anna"), close("cli:bob"));
    let refusals: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(refusals[0].code(), "run_ended");
    let journal = engine.ended(run).await;
    assert_eq!((outcome_text(&journal), count(&journal, "run.completed")), ("done".into(), 1));
}
