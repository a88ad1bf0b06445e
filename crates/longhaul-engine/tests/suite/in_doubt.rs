//! Calls whose outcome nobody knows: what the policy says is done, a tool that
//! can look looks, and nothing is repeated silently.

use longhaul_core::event::steer::Delivery;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{Decision, GateKind};
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

/// A house whose agent calls a `once` tool that never ends in time.
fn engine_with_stuck_call(
    deeds: &EffectLog,
    change: impl FnOnce(FakeTool) -> FakeTool,
) -> (TestEngine, Latch) {
    let door = Latch::new();
    let hand = FakeTool::new("send", Once, deeds).after_latch(&door).with_timeout(Millis(20));
    let house = engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([change(hand)])
        .start();
    (house, door)
}

#[tokio::test]
async fn the_model_reads_that_a_call_is_in_doubt() {
    let deeds = EffectLog::default();
    let (house, _door) =
        engine_with_stuck_call(&deeds, |hand| hand.with_in_doubt(InDoubtPolicy::Tell));
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
    let (text, is_error) = house.results().remove(0);
    assert!(
        is_error && text.contains("its outcome is unknown. It took longer than 20 ms"),
        "{text}"
    );
    assert_eq!(deeds.count("send begins"), 1);
}

#[tokio::test]
async fn a_call_in_doubt_can_fail_the_run() {
    let deeds = EffectLog::default();
    let (house, _door) =
        engine_with_stuck_call(&deeds, |hand| hand.with_in_doubt(InDoubtPolicy::Fail));
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "in_doubt");
    assert_eq!(house.model.requests().len(), 1, "the model is not asked again");
}

/// What the model reads, and how often the call was made, after this answer.
async fn settled_by(decision: Decision) -> (String, bool, usize) {
    let deeds = EffectLog::default();
    let (house, door) = engine_with_stuck_call(&deeds, |hand| hand);
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert_eq!(gate.spec.kind, GateKind::InDoubt);
    assert_eq!(deeds.count("send begins"), 1);
    door.open();
    let given = answer(&gate, decision);
    house.longhaul.answer(gate.spec.id, given).await.unwrap();
    house.ended(run).await;
    let (text, is_error) = house.results().remove(0);
    (text, is_error, deeds.count("send begins"))
}

#[tokio::test]
async fn a_person_settles_a_call_in_doubt() {
    let (text, is_error, made) = settled_by(Decision::Approve).await;
    assert_eq!((text.as_str(), is_error, made), (r#"{"text":"hi"}"#, false, 2));
    let (text, is_error, made) = settled_by(Decision::Reject).await;
    assert!(text.contains("it did not happen") && is_error && made == 1, "{text}");
    let (text, is_error, made) = settled_by(Decision::Answer("it was sent".into())).await;
    assert_eq!((text.as_str(), is_error, made), ("it was sent", false, 1));
}

#[tokio::test]
async fn a_tool_with_verify_settles_its_call_in_doubt() {
    for (finding, made, read) in [
        (VerifyOutcome::Happened(ToolOutput::text("sent at 9")), 1, "sent at 9"),
        (VerifyOutcome::NotHappened, 2, r#"{"text":"hi"}"#),
    ] {
        let deeds = EffectLog::default();
        let (house, door) =
            engine_with_stuck_call(&deeds, |hand| hand.with_verify_outcome(finding.clone()));
        let run = house.submit().await;
        house.until(run, "tool.in_doubt").await;
        door.open();
        let journal = house.ended(run).await;
        assert_eq!(count(&journal, "tool.verified"), 1, "{:?}", kinds(&journal));
        assert_eq!(house.results(), [(read.to_owned(), false)]);
        assert_eq!((deeds.count("send begins"), deeds.count("send looks")), (made, 1));
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_verify() {
    let deeds = EffectLog::default();
    let shut = Latch::new();
    let (house, _door) = engine_with_stuck_call(&deeds, |hand| {
        hand.with_verify_outcome(VerifyOutcome::Unknown).verify_after_latch(&shut)
    });
    let run = house.submit().await;
    shut.reached(1).await;
    house.longhaul.cancel(run, "cli:anna", "enough").await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
}

#[tokio::test]
async fn a_message_that_interrupted_a_call_does_not_interrupt_verify() {
    let (deeds, never) = (EffectLog::default(), Latch::new());
    let hand = FakeTool::new("send", Once, &deeds)
        .after_latch(&never)
        .with_verify_outcome(VerifyOutcome::Happened(ToolOutput::text("sent at 9")));
    let plan = engine_with([FakeReply::call("send", json!({}))]).tools([hand]);
    let house = plan.with_sim_clock().start();
    let run = house.submit().await;
    never.reached(1).await;
    let said = house.longhaul.steer(run, "stop", Delivery::Interrupt, "cli:anna");
    said.await.unwrap();
    let journal = house.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "tool.verified"), 1, "{:?}", kinds(&journal));
    assert_eq!(house.results(), [("sent at 9".to_owned(), false)]);
    assert_eq!(house.user_texts(), ["Do it.", "stop"]);
}
