//! Messages to a run in flight: when they are read, what they cut off, and
//! that none of them disappears.

use longhaul_api::steer::SteerState;
use longhaul_core::event::Event;
use longhaul_core::event::steer::Delivery::{
    self, AfterBatch, BeforeNextTool, FollowUp, Interrupt,
};
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::RuleAction;
use serde_json::json;

use crate::suite::gates::rule;
use crate::suite::harness::model::{FakeReply, results, user_texts};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

async fn send_steer(house: &TestEngine, run: RunId, text: &str, delivery: Delivery) {
    let said = house.longhaul.steer(run, text, delivery, "cli:anna").await;
    said.unwrap();
}

/// Two calls that stand alone, the first behind a door.
fn two_calls(deeds: &EffectLog, door: &Latch) -> TestEngine {
    let hands = [
        FakeTool::new("first", Once, deeds).after_latch(door),
        FakeTool::new("second", Once, deeds),
    ];
    let calls = vec![("first", json!({})), ("second", json!({}))];
    engine_with([FakeReply::Calls(calls)]).tools(hands).start()
}

#[tokio::test]
async fn a_message_is_delivered_after_the_calls_or_instead_of_pending_ones() {
    for (delivery, made) in [(AfterBatch, 1), (BeforeNextTool, 0)] {
        let (deeds, door) = (EffectLog::default(), Latch::new());
        let house = two_calls(&deeds, &door);
        let run = house.submit().await;
        door.reached(1).await;
        send_steer(&house, run, "use blue", delivery).await;
        door.open();
        let journal = house.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(deeds.count("second begins"), made, "{delivery:?}");
        assert_eq!(deeds.count("first ends"), 1, "what runs is left to end");
        assert_eq!(house.user_texts(), ["Do it.", "use blue"]);
        let results = house.results();
        assert_eq!(results[1].1, made == 0);
        assert!(made == 1 || results[1].0.contains("a person wrote before it began"));
        let steers = house.longhaul.steers(run).await.unwrap();
        assert_eq!((steers[0].status, steers[0].between), (SteerState::Delivered, Some([1, 2])));
    }
}

#[tokio::test]
async fn an_interrupt_stops_the_model_and_keeps_its_text() {
    let door = Latch::new();
    let line = FakeReply::Text("never said").after_latch(&door);
    let line = FakeReply::StreamThen(
        "I was about to ",
        Box::new(FakeReply::StreamThen("buy", Box::new(line))),
    );
    let house = engine_with([line, FakeReply::Text("sorry")]).start();
    let run = house.submit().await;
    door.reached(1).await;
    send_steer(&house, run, "stop that", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "sorry");
    let kept = journal.iter().any(|entry| {
        matches!(&entry.event, Event::TurnInterrupted(cut)
            if &*cut.text == "I was about to buy" && cut.usage.estimated)
    });
    assert!(kept, "{:?}", kinds(&journal));
    assert_eq!(house.user_texts().last().unwrap(), "stop that");
    let asked = house.model.requests();
    let words = format!("{:?}", asked[1].messages);
    assert!(words.contains("I was about to buy"), "{words}");
}

#[tokio::test]
async fn an_interrupt_before_any_text_leaves_no_empty_message() {
    let door = Latch::new();
    let house = engine_with([FakeReply::Text("never said").after_latch(&door)]).start();
    let run = house.submit().await;
    door.reached(1).await;
    send_steer(&house, run, "wait", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "turn.interrupted"), 1);
    assert_eq!(user_texts(&house.model.requests()[1]), ["Do it.", "wait"]);
}

#[tokio::test]
async fn an_interrupt_stops_a_pure_call() {
    let (deeds, never) = (EffectLog::default(), Latch::new());
    let hands = [
        FakeTool::new("look", Pure, &deeds).after_latch(&never),
        FakeTool::new("send", Once, &deeds),
    ];
    let calls = vec![("look", json!({})), ("send", json!({}))];
    let house = engine_with([FakeReply::Calls(calls)]).tools(hands).start();
    let run = house.submit().await;
    never.reached(1).await;
    send_steer(&house, run, "not that", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.interrupted"), 1, "{:?}", kinds(&journal));
    assert_eq!(deeds.all(), ["look begins {}"], "what had not begun never does");
    assert_eq!(house.results()[0].0, "stopped: a person wrote");
    assert_eq!(house.user_texts().last().unwrap(), "not that");
}

#[tokio::test]
async fn an_interrupt_lets_a_call_end_that_must_not_be_repeated() {
    let (deeds, door) = (EffectLog::default(), Latch::new());
    let house = two_calls(&deeds, &door);
    let run = house.submit().await;
    door.reached(1).await;
    send_steer(&house, run, "not that", Interrupt).await;
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "tool.completed"), 1, "{:?}", kinds(&journal));
    assert_eq!(deeds.all(), ["first begins {}", "first ends {}"]);
}

#[tokio::test]
async fn an_interrupt_withdraws_a_gate_and_another_message_does_not() {
    let deeds = EffectLog::default();
    let house = engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([FakeTool::new("send", Once, &deeds)])
        .agent(|agent| agent.rules = vec![rule(None, RuleAction::Ask("May it?".into()))])
        .start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    send_steer(&house, run, "by the way", AfterBatch).await;
    assert_eq!(house.gate(run).await.spec.id, gate.spec.id, "it still waits");
    send_steer(&house, run, "leave it", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "gate.withdrawn"), 1);
    assert_eq!(house.results(), [("withdrawn: a person wrote".to_owned(), true)]);
    assert_eq!(house.user_texts(), ["Do it.", "by the way", "leave it"]);
}

#[tokio::test]
async fn a_message_is_the_answer_to_a_question_and_ends_a_wait() {
    for (tool, input, result, heard) in [
        ("ask_human", json!({ "question": "Which?" }), "blue", &["Do it."][..]),
        ("report_blocked", json!({ "reason": "no key" }), "blue", &["Do it."][..]),
        (
            "wait",
            json!({ "for": "2h" }),
            "the wait ended early: a person wrote",
            &["Do it.", "blue"][..],
        ),
    ] {
        let house = engine_with([FakeReply::call(tool, input)]).start();
        let run = house.submit().await;
        let rests = if tool == "report_blocked" { "run.blocked" } else { "run.waiting" };
        house.until(run, rests).await;
        send_steer(&house, run, "blue", AfterBatch).await;
        let journal = house.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(house.results(), [(result.to_owned(), false)], "{tool}");
        assert_eq!(house.user_texts(), heard, "{tool}");
    }
}

#[tokio::test]
async fn a_follow_up_waits_until_the_run_would_stop() {
    let (deeds, door) = (EffectLog::default(), Latch::new());
    let hand = FakeTool::new("act", Pure, &deeds).after_latch(&door);
    let lines =
        [FakeReply::call("act", json!({})), FakeReply::Text("first"), FakeReply::Text("second")];
    let house = engine_with(lines).tools([hand]).start();
    let run = house.submit().await;
    door.reached(1).await;
    send_steer(&house, run, "and then?", FollowUp).await;
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "second");
    let asked = house.model.requests();
    assert_eq!(user_texts(&asked[1]), ["Do it."]);
    assert_eq!(user_texts(&asked[2]), ["Do it.", "and then?"]);
    assert_eq!(results(&asked[1]).len(), 1);
}

#[tokio::test]
async fn messages_are_limited_and_rejected_after_the_end() {
    let door = Latch::new();
    let house = engine_with([FakeReply::Text("done").after_latch(&door)]).start();
    let run = house.submit().await;
    door.reached(1).await;
    let steer = |text: String| house.longhaul.steer(run, text, AfterBatch, "cli:anna");
    for n in 0..64 {
        steer(format!("message {n}")).await.unwrap();
    }
    assert_eq!(steer("one more".into()).await.unwrap_err().code(), "steers_full");
    assert_eq!(steer("  ".into()).await.unwrap_err().code(), "empty");
    assert_eq!(steer("x".repeat(65 * 1024)).await.unwrap_err().code(), "too_long");
    door.open();
    house.ended(run).await;
    assert_eq!(house.user_texts().len(), 65, "all of them were read");
    assert_eq!(steer("late".into()).await.unwrap_err().code(), "run_ended");
}

#[tokio::test]
async fn a_message_can_be_withdrawn_until_it_is_delivered() {
    let door = Latch::new();
    let house = engine_with([FakeReply::Text("done").after_latch(&door)]).start();
    let run = house.submit().await;
    door.reached(1).await;
    let steer = house.longhaul.steer(run, "oops", AfterBatch, "cli:anna").await.unwrap();
    house.longhaul.withdraw_steer(run, steer, "cli:anna").await.unwrap();
    let no = house.longhaul.withdraw_steer(run, steer, "cli:anna").await.unwrap_err();
    assert_eq!(no.code(), "steer_settled");
    door.open();
    house.ended(run).await;
    assert_eq!(house.user_texts(), ["Do it."]);
}
