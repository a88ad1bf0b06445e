//! Tests of calls with unknown outcome: the policy decides, a tool that can verify is asked, and
//! nothing is repeated silently.

use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{GateDecision, GateKind};
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

/// Builds an engine whose agent calls a `once` tool that always times out.
fn engine_with_stuck_call(
    effects: &EffectLog,
    change: impl FnOnce(FakeTool) -> FakeTool,
) -> (TestEngine, Latch) {
    let latch = Latch::closed();
    let tool = FakeTool::new("send", Once, effects).after_latch(&latch).with_timeout(Millis(20));
    let engine = engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([change(tool)])
        .start();
    (engine, latch)
}

#[tokio::test]
async fn the_model_reads_that_a_call_is_in_doubt() {
    let effects = EffectLog::default();
    let (engine, _latch) =
        engine_with_stuck_call(&effects, |tool| tool.with_in_doubt(InDoubtPolicy::Tell));
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
    let (text, is_error) = engine.results().remove(0);
    assert!(
        is_error && text.contains("its outcome is unknown. The call timed out after 20ms"),
        "{text}"
    );
    assert_eq!(effects.count("send begins"), 1);
}

#[tokio::test]
async fn a_call_in_doubt_can_fail_the_run() {
    let effects = EffectLog::default();
    let (engine, _latch) =
        engine_with_stuck_call(&effects, |tool| tool.with_in_doubt(InDoubtPolicy::Fail));
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "in_doubt");
    assert_eq!(engine.model.requests().len(), 1, "the model is not asked again");
}

/// Returns what the model reads, whether it is an error, and how often the call was made, after
/// this answer.
async fn settled_by(decision: GateDecision) -> (String, bool, usize) {
    let effects = EffectLog::default();
    let (engine, latch) = engine_with_stuck_call(&effects, |tool| tool);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(gate.spec.kind, GateKind::InDoubt);
    assert_eq!(effects.count("send begins"), 1);
    latch.open();
    let gate_answer = answer(&gate, decision);
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    engine.ended(run).await;
    let (text, is_error) = engine.results().remove(0);
    (text, is_error, effects.count("send begins"))
}

#[tokio::test]
async fn a_person_settles_a_call_in_doubt() {
    let (text, is_error, call_count) = settled_by(GateDecision::Approve).await;
    assert_eq!((text.as_str(), is_error, call_count), (r#"{"text":"hi"}"#, false, 2));
    let (text, is_error, call_count) = settled_by(GateDecision::Reject).await;
    assert!(text.contains("it did not happen") && is_error && call_count == 1, "{text}");
    let (text, is_error, call_count) = settled_by(GateDecision::Answer("it was sent".into())).await;
    assert_eq!((text.as_str(), is_error, call_count), ("it was sent", false, 1));
}

#[tokio::test]
async fn a_tool_with_verify_settles_its_call_in_doubt() {
    for (finding, call_count, text) in [
        (VerifyOutcome::Happened(ToolOutput::text("sent at 9")), 1, "sent at 9"),
        (VerifyOutcome::NotHappened, 2, r#"{"text":"hi"}"#),
    ] {
        let effects = EffectLog::default();
        let (engine, latch) =
            engine_with_stuck_call(&effects, |tool| tool.with_verify_outcome(finding.clone()));
        let run = engine.submit().await;
        engine.until(run, "tool.in_doubt").await;
        latch.open();
        let journal = engine.ended(run).await;
        assert_eq!(count(&journal, "tool.verified"), 1, "{:?}", kinds(&journal));
        assert_eq!(engine.results(), [(text.to_owned(), false)]);
        assert_eq!((effects.count("send begins"), effects.count("send looks")), (call_count, 1));
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_verify() {
    let effects = EffectLog::default();
    let verify_latch = Latch::closed();
    let (engine, _latch) = engine_with_stuck_call(&effects, |tool| {
        tool.with_verify_outcome(VerifyOutcome::Unknown).verify_after_latch(&verify_latch)
    });
    let run = engine.submit().await;
    verify_latch.reached(1).await;
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
}

#[tokio::test]
async fn a_message_that_interrupted_a_call_does_not_interrupt_verify() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let tool = FakeTool::new("send", Once, &effects)
        .after_latch(&latch)
        .with_verify_outcome(VerifyOutcome::Happened(ToolOutput::text("sent at 9")));
    let builder = engine_with([FakeReply::call("send", json!({}))]).tools([tool]);
    let engine = builder.with_sim_clock().start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let send = engine.longhaul.steer(run, "stop", SteerDelivery::Interrupt, "cli:anna");
    send.await.unwrap();
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "tool.verified"), 1, "{:?}", kinds(&journal));
    assert_eq!(engine.results(), [("sent at 9".to_owned(), false)]);
    assert_eq!(engine.user_texts(), ["Do it.", "stop"]);
}
