//! Tests of results that are graded against a rubric: rounds, verdicts, graders that fail, crashes,
//! budgets and cancels.

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::RunId;
use longhaul_core::status::Status;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::GradingConfig;
use longhaul_run::CHILD_DEPTH_MAX;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, TestEngineBuilder, count, engine_with, outcome_text};

fn satisfied() -> FakeReply {
    FakeReply::Text(r#"{"satisfied": true, "note": "Good."}"#)
}

fn not_satisfied() -> FakeReply {
    FakeReply::Text(r#"{"satisfied": false, "note": "Too short."}"#)
}

fn graded(agent: &mut Agent) {
    let grader = Some("scripted/grader".to_owned());
    agent.outcome = Some(GradingConfig { rubric: "At least B.".into(), grader, max_rounds: 2 });
}

/// Returns an engine whose agent says `A`, then `B`, and is graded.
fn builder() -> TestEngineBuilder {
    engine_with([FakeReply::Text("A"), FakeReply::Text("B")]).agent(graded)
}

/// Starts an engine whose grading runs give these replies, one list for each round.
fn engine<const ROUNDS: usize>(rounds: [FakeReply; ROUNDS]) -> TestEngine {
    let engine = builder().start();
    engine.model.set_replies_of("scripted/grader", vec![FakeReply::in_turn(rounds)]);
    engine
}

fn error(journal: &[JournalEntry]) -> (String, String, Option<String>) {
    let Some(Event::RunFailed(failed)) = journal.last().map(|entry| &entry.event) else {
        panic!("the run has not failed");
    };
    let error = failed.error.clone();
    (error.code, error.message, error.partial_text)
}

async fn verdicts(engine: &TestEngine, run: RunId) -> Vec<(u32, &'static str, String)> {
    let verdicts = engine.longhaul.get_run(run).await.unwrap().verdicts;
    verdicts.into_iter().map(|view| (view.round, view.verdict.as_str(), view.note)).collect()
}

#[tokio::test]
async fn a_run_ends_when_its_grader_is_satisfied() {
    let engine = engine([not_satisfied(), satisfied()]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "B");
    assert_eq!((count(&journal, "outcome.graded"), count(&journal, "run.claimed")), (2, 3));
    let expected =
        [(1, "not_satisfied", "Too short.".to_owned()), (2, "satisfied", "Good.".to_owned())];
    assert_eq!(verdicts(&engine, run).await, expected);
    let requests = engine.model.requests();
    let request = requests.iter().rev().find(|request| request.run == run).unwrap();
    let texts = crate::suite::harness::model::user_texts(request);
    assert!(texts.last().unwrap().contains("Note of the grader:\n\nToo short."), "{texts:?}");
    // The grader has a conversation of its own, without tools other than `finish`.
    let grading: Vec<_> =
        requests.iter().filter(|request| request.model == "scripted/grader").collect();
    let input: serde_json::Value =
        serde_json::from_str(&crate::suite::harness::model::user_texts(grading[1])[0]).unwrap();
    assert_eq!(input["rubric"], "At least B.");
    assert_eq!(input["result"], "B");
    assert!(input["task"].is_string(), "{input}");
    assert_eq!(grading[1].messages.len(), 1);
    let rows = engine.descendants(run).await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.parent == Some(run) && row.status == Status::Completed));
}

#[tokio::test]
async fn a_result_that_is_never_accepted_fails_the_run() {
    let engine = engine([not_satisfied(), not_satisfied(), satisfied()]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    let (code, message, kept) = error(&journal);
    assert_eq!((code.as_str(), kept.as_deref()), ("outcome_not_met", Some("B")));
    assert!(message.ends_with("round 2 of 2; the last note: Too short."), "{message}");
    let retry = engine.longhaul.retry(run, "cli:anna").await.unwrap();
    let journal = engine.ended(retry.run_ids()[0]).await;
    assert_eq!(outcome_text(&journal), "A", "the retry continues with another reply");
}

#[tokio::test]
async fn a_grader_without_a_verdict_is_never_an_acceptance() {
    for (reply, reason) in [
        (FakeReply::Text("It is fine, satisfied: true."), "failed (output_invalid)"),
        (FakeReply::Text(r#"{"satisfied": "true", "note": "x"}"#), "failed (output_invalid)"),
        (FakeReply::Fail(FailureClass::Refused), "failed (refused)"),
        (FakeReply::call("finish", json!({ "output": "yes" })), "failed (output_invalid)"),
    ] {
        let engine = builder().start();
        engine.model.set_replies_of("scripted/grader", vec![reply.clone(); 12]);
        let run = engine.submit().await;
        let (code, message, kept) = error(&engine.ended(run).await);
        assert_eq!((code.as_str(), kept.as_deref()), ("grader_failed", Some("A")), "{reply:?}");
        assert!(message.contains(reason), "{reply:?}: {message}");
        engine.model.set_replies_of("scripted/grader", vec![satisfied()]);
        let retry = engine.longhaul.retry(run, "cli:anna").await.unwrap();
        assert_eq!(outcome_text(&engine.ended(retry.run_ids()[0]).await), "A", "the same result");
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_grading_run() {
    let engine = builder().start();
    let latch = Latch::closed();
    engine.model.set_replies_of("scripted/grader", vec![satisfied().after_latch(&latch)]);
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    let grading = engine.descendants(run).await[0].id;
    let message = engine.longhaul.explain_run(run).await.unwrap().message;
    assert!(message.contains("which grades its result (round 1 of 2)"), "{message}");
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    engine.ended(grading).await;
    let view = engine.longhaul.get_run(grading).await.unwrap();
    assert_eq!(view.status, Status::Cancelled);
    latch.open();
}

#[tokio::test]
async fn a_run_at_the_maximum_depth_is_graded_and_its_model_does_not_see_the_grader() {
    let start =
        |agent: &str| FakeReply::call("run_agent", json!({ "agent": agent, "input": "Go." }));
    let engine = engine_with([start("tester")]).agent(graded);
    let engine = engine.agent(|agent| agent.tools.push("run_agent".to_owned())).start();
    engine.model.set_replies_of("scripted/grader", vec![satisfied()]);
    let run = engine.submit().await;
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
    let rows = engine.descendants(run).await;
    let graders = rows.iter().filter(|row| row.agent.as_str() == "outcome:grader").count();
    assert_eq!(graders, CHILD_DEPTH_MAX as usize + 1, "one for each level");
}

#[tokio::test]
async fn an_agent_does_not_reach_its_grading_run() {
    let status = FakeReply::call("child_status", json!({}));
    let engine = engine_with([FakeReply::Text("A"), status, FakeReply::Text("B")]).agent(graded);
    let engine = engine.agent(|agent| agent.tools.push("run_agent".to_owned())).start();
    let rounds = FakeReply::in_turn([not_satisfied(), satisfied()]);
    engine.model.set_replies_of("scripted/grader", vec![rounds]);
    let run = engine.submit().await;
    engine.ended(run).await;
    let requests = engine.model.requests();
    let request = requests.iter().rev().find(|request| request.run == run).unwrap();
    let results = crate::suite::harness::model::results(request);
    assert_eq!(results[0].0, "this run has started no child runs");
}
