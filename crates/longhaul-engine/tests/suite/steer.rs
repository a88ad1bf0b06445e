//! Tests of messages to a running run: when they are delivered, what they interrupt, and that none
//! is lost.

use longhaul_api::steer::SteerState;
use longhaul_core::event::Event;
use longhaul_core::event::steer::SteerDelivery::{
    self, AfterBatch, BeforeNextTool, FollowUp, Interrupt,
};
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::GateRuleAction;
use serde_json::json;

use crate::suite::gates::rule;
use crate::suite::harness::model::{FakeReply, results, user_texts};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

async fn send_steer(engine: &TestEngine, run: RunId, text: &str, delivery: SteerDelivery) {
    let result = engine.longhaul.steer(run, text, delivery, "cli:anna").await;
    result.unwrap();
}

/// Two calls that run one after another, the first behind a latch.
fn two_calls(effects: &EffectLog, latch: &Latch) -> TestEngine {
    let tools = [
        FakeTool::new("first", Once, effects).after_latch(latch),
        FakeTool::new("second", Once, effects),
    ];
    let calls = vec![("first", json!({})), ("second", json!({}))];
    engine_with([FakeReply::Calls(calls)]).tools(tools).start()
}

#[tokio::test]
async fn a_message_is_delivered_after_the_calls_or_instead_of_pending_ones() {
    for (delivery, call_count) in [(AfterBatch, 1), (BeforeNextTool, 0)] {
        let (effects, latch) = (EffectLog::default(), Latch::closed());
        let engine = two_calls(&effects, &latch);
        let run = engine.submit().await;
        latch.reached(1).await;
        send_steer(&engine, run, "use blue", delivery).await;
        latch.open();
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(effects.count("second begins"), call_count, "{delivery:?}");
        assert_eq!(effects.count("first ends"), 1, "the running call is not interrupted");
        assert_eq!(engine.user_texts(), ["Do it.", "use blue"]);
        let results = engine.results();
        assert_eq!(results[1].1, call_count == 0);
        assert!(
            call_count == 1 || results[1].0.contains("a person sent a message before it started")
        );
        let steers = engine.longhaul.list_steers(run).await.unwrap();
        assert_eq!((steers[0].status, steers[0].between), (SteerState::Delivered, Some([1, 2])));
    }
}

#[tokio::test]
async fn an_interrupt_stops_the_model_and_keeps_its_text() {
    let latch = Latch::closed();
    let reply = FakeReply::Text("never said").after_latch(&latch);
    let reply = FakeReply::StreamThen(
        "I was about to ",
        Box::new(FakeReply::StreamThen("buy", Box::new(reply))),
    );
    let engine = engine_with([reply, FakeReply::Text("sorry")]).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    send_steer(&engine, run, "stop that", Interrupt).await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "sorry");
    let is_kept = journal.iter().any(|entry| {
        matches!(&entry.event, Event::TurnInterrupted(interrupted)
            if &*interrupted.text == "I was about to buy" && interrupted.usage.estimated)
    });
    assert!(is_kept, "{:?}", kinds(&journal));
    assert_eq!(engine.user_texts().last().unwrap(), "stop that");
    let requests = engine.model.requests();
    let messages = format!("{:?}", requests[1].messages);
    assert!(messages.contains("I was about to buy"), "{messages}");
}

#[tokio::test]
async fn an_interrupt_before_any_text_leaves_no_empty_message() {
    let latch = Latch::closed();
    let engine = engine_with([FakeReply::Text("never said").after_latch(&latch)]).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    send_steer(&engine, run, "wait", Interrupt).await;
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "turn.interrupted"), 1);
    assert_eq!(user_texts(&engine.model.requests()[1]), ["Do it.", "wait"]);
}

#[tokio::test]
async fn an_interrupt_stops_a_pure_call() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let tools = [
        FakeTool::new("look", Pure, &effects).after_latch(&latch),
        FakeTool::new("send", Once, &effects),
    ];
    let calls = vec![("look", json!({})), ("send", json!({}))];
    let engine = engine_with([FakeReply::Calls(calls)]).tools(tools).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    send_steer(&engine, run, "not that", Interrupt).await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.interrupted"), 1, "{:?}", kinds(&journal));
    assert_eq!(effects.all(), ["look begins {}"], "a call that has not started never starts");
    assert_eq!(engine.results()[0].0, "the call was stopped: a message interrupted it");
    assert_eq!(engine.user_texts().last().unwrap(), "not that");
}

#[tokio::test]
async fn an_interrupt_lets_a_call_end_that_must_not_be_repeated() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let engine = two_calls(&effects, &latch);
    let run = engine.submit().await;
    latch.reached(1).await;
    send_steer(&engine, run, "not that", Interrupt).await;
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "tool.completed"), 1, "{:?}", kinds(&journal));
    assert_eq!(effects.all(), ["first begins {}", "first ends {}"]);
}

#[tokio::test]
async fn an_interrupt_withdraws_a_gate_and_another_message_does_not() {
    let effects = EffectLog::default();
    let engine = engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([FakeTool::new("send", Once, &effects)])
        .agent(|agent| agent.rules = vec![rule(None, GateRuleAction::Ask("May it?".into()))])
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    send_steer(&engine, run, "by the way", AfterBatch).await;
    assert_eq!(engine.gate(run).await.spec.id, gate.spec.id, "the run still waits");
    send_steer(&engine, run, "leave it", Interrupt).await;
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "gate.withdrawn"), 1);
    assert_eq!(engine.results(), [("withdrawn: a person sent a message".to_owned(), true)]);
    assert_eq!(engine.user_texts(), ["Do it.", "by the way", "leave it"]);
}

#[tokio::test]
async fn a_message_is_the_answer_to_a_question_and_ends_a_wait() {
    for (tool, input, result, expected) in [
        ("ask_human", json!({ "question": "Which?" }), "blue", &["Do it."][..]),
        ("report_blocked", json!({ "reason": "no key" }), "blue", &["Do it."][..]),
        (
            "wait",
            json!({ "for": "2h" }),
            "the wait ended early: a person sent a message",
            &["Do it.", "blue"][..],
        ),
    ] {
        let engine = engine_with([FakeReply::call(tool, input)]).start();
        let run = engine.submit().await;
        let last_event = if tool == "report_blocked" { "run.blocked" } else { "run.waiting" };
        engine.until(run, last_event).await;
        send_steer(&engine, run, "blue", AfterBatch).await;
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(engine.results(), [(result.to_owned(), false)], "{tool}");
        assert_eq!(engine.user_texts(), expected, "{tool}");
    }
}

#[tokio::test]
async fn a_follow_up_waits_until_the_run_would_stop() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let tool = FakeTool::new("act", Pure, &effects).after_latch(&latch);
    let replies =
        [FakeReply::call("act", json!({})), FakeReply::Text("first"), FakeReply::Text("second")];
    let engine = engine_with(replies).tools([tool]).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    send_steer(&engine, run, "and then?", FollowUp).await;
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "second");
    let requests = engine.model.requests();
    assert_eq!(user_texts(&requests[1]), ["Do it."]);
    assert_eq!(user_texts(&requests[2]), ["Do it.", "and then?"]);
    assert_eq!(results(&requests[1]).len(), 1);
}

#[tokio::test]
async fn messages_are_limited_and_rejected_after_the_end() {
    let latch = Latch::closed();
    let engine = engine_with([FakeReply::Text("done").after_latch(&latch)]).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let steer = |text: String| engine.longhaul.steer(run, text, AfterBatch, "cli:anna");
    for n in 0..64 {
        steer(format!("message {n}")).await.unwrap();
    }
    assert_eq!(steer("one more".into()).await.unwrap_err().code(), "steers_full");
    assert_eq!(steer("  ".into()).await.unwrap_err().code(), "empty");
    assert_eq!(steer("x".repeat(65 * 1024)).await.unwrap_err().code(), "too_long");
    latch.open();
    engine.ended(run).await;
    assert_eq!(engine.user_texts().len(), 65, "all messages were delivered");
    assert_eq!(steer("late".into()).await.unwrap_err().code(), "run_ended");
}

#[tokio::test]
async fn a_message_can_be_withdrawn_until_it_is_delivered() {
    let latch = Latch::closed();
    let engine = engine_with([FakeReply::Text("done").after_latch(&latch)]).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let steer = engine.longhaul.steer(run, "oops", AfterBatch, "cli:anna").await.unwrap().id;
    engine.longhaul.withdraw_steer(run, steer, "cli:anna").await.unwrap();
    let error = engine.longhaul.withdraw_steer(run, steer, "cli:anna").await.unwrap_err();
    assert_eq!(error.code(), "steer_settled");
    latch.open();
    engine.ended(run).await;
    assert_eq!(engine.user_texts(), ["Do it."]);
}
