//! Messages to a run in flight: when they are read, what they cut off, and
//! that none of them disappears.

use longhaul_api::steer::SteerState;
use longhaul_core::event::Event;
use longhaul_core::event::steer::Delivery::{
    self, AfterBatch, BeforeNextTool, FollowUp, Interrupt,
};
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::Verdict;
use serde_json::json;

use crate::suite::gates::rule;
use crate::suite::house::model::{Line, heard, results};
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, count, end, kinds, plan};
use longhaul_testkit::door::Door;

async fn say(house: &House, run: RunId, text: &str, delivery: Delivery) {
    let said = house.longhaul.steer(run, text, delivery, "cli:anna").await;
    said.unwrap();
}

/// Two calls that stand alone, the first behind a door.
fn two_calls(deeds: &Deeds, door: &Door) -> House {
    let hands = [
        Hand::new("first", Once, deeds).behind(door),
        Hand::new("second", Once, deeds),
    ];
    let calls = vec![("first", json!({})), ("second", json!({}))];
    plan([Line::Calls(calls)]).hands(hands).at_work()
}

#[tokio::test]
async fn a_message_is_read_after_the_calls_or_instead_of_those_not_begun() {
    for (delivery, made) in [(AfterBatch, 1), (BeforeNextTool, 0)] {
        let (deeds, door) = (Deeds::default(), Door::shut());
        let house = two_calls(&deeds, &door);
        let run = house.submit().await;
        door.reached(1).await;
        say(&house, run, "use blue", delivery).await;
        door.open();
        let journal = house.ended(run).await;
        assert_eq!(end(&journal), "done");
        assert_eq!(deeds.count("second begins"), made, "{delivery:?}");
        assert_eq!(deeds.count("first ends"), 1, "what runs is left to end");
        assert_eq!(house.heard(), ["Do it.", "use blue"]);
        let results = house.results();
        assert_eq!(results[1].1, made == 0);
        assert!(made == 1 || results[1].0.contains("a person wrote before it began"));
        let steers = house.longhaul.steers(run).await.unwrap();
        assert_eq!(
            (steers[0].status, steers[0].between),
            (SteerState::Delivered, Some([1, 2]))
        );
    }
}

#[tokio::test]
async fn an_interrupt_cuts_the_model_off_and_keeps_its_words() {
    let door = Door::shut();
    let line = Line::Text("never said").behind(&door);
    let line = Line::Speak(
        "I was about to ",
        Box::new(Line::Speak("buy", Box::new(line))),
    );
    let house = plan([line, Line::Text("sorry")]).at_work();
    let run = house.submit().await;
    door.reached(1).await;
    say(&house, run, "stop that", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "sorry");
    let kept = journal.iter().any(|entry| {
        matches!(&entry.event, Event::TurnInterrupted(cut)
            if &*cut.text == "I was about to buy" && cut.usage.estimated)
    });
    assert!(kept, "{:?}", kinds(&journal));
    assert_eq!(house.heard().last().unwrap(), "stop that");
    let asked = house.actor.asked();
    let words = format!("{:?}", asked[1].messages);
    assert!(words.contains("I was about to buy"), "{words}");
}

#[tokio::test]
async fn an_interrupt_before_the_model_said_a_word_leaves_no_empty_message() {
    let door = Door::shut();
    let house = plan([Line::Text("never said").behind(&door)]).at_work();
    let run = house.submit().await;
    door.reached(1).await;
    say(&house, run, "wait", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "turn.interrupted"), 1);
    assert_eq!(heard(&house.actor.asked()[1]), ["Do it.", "wait"]);
}

#[tokio::test]
async fn an_interrupt_cuts_a_pure_call_off() {
    let (deeds, never) = (Deeds::default(), Door::shut());
    let hands = [
        Hand::new("look", Pure, &deeds).behind(&never),
        Hand::new("send", Once, &deeds),
    ];
    let calls = vec![("look", json!({})), ("send", json!({}))];
    let house = plan([Line::Calls(calls)]).hands(hands).at_work();
    let run = house.submit().await;
    never.reached(1).await;
    say(&house, run, "not that", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    assert_eq!(
        count(&journal, "tool.interrupted"),
        1,
        "{:?}",
        kinds(&journal)
    );
    assert_eq!(
        deeds.all(),
        ["look begins {}"],
        "what had not begun never does"
    );
    assert_eq!(house.results()[0].0, "stopped: a person wrote");
    assert_eq!(house.heard().last().unwrap(), "not that");
}

#[tokio::test]
async fn an_interrupt_lets_a_call_end_that_must_not_be_repeated() {
    let (deeds, door) = (Deeds::default(), Door::shut());
    let house = two_calls(&deeds, &door);
    let run = house.submit().await;
    door.reached(1).await;
    say(&house, run, "not that", Interrupt).await;
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(
        count(&journal, "tool.completed"),
        1,
        "{:?}",
        kinds(&journal)
    );
    assert_eq!(deeds.all(), ["first begins {}", "first ends {}"]);
}

#[tokio::test]
async fn an_interrupt_withdraws_a_gate_and_another_message_does_not() {
    let deeds = Deeds::default();
    let house = plan([Line::call("send", json!({ "text": "hi" }))])
        .hands([Hand::new("send", Once, &deeds)])
        .agent(|agent| agent.rules = vec![rule(None, Verdict::Ask("May it?".into()))])
        .at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    say(&house, run, "by the way", AfterBatch).await;
    assert_eq!(
        house.gate(run).await.spec.id,
        gate.spec.id,
        "it still waits"
    );
    say(&house, run, "leave it", Interrupt).await;
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "gate.withdrawn"), 1);
    assert_eq!(
        house.results(),
        [("withdrawn: a person wrote".to_owned(), true)]
    );
    assert_eq!(house.heard(), ["Do it.", "by the way", "leave it"]);
}

#[tokio::test]
async fn a_message_is_the_answer_to_a_question_and_ends_a_wait() {
    for (tool, input, result, heard) in [
        (
            "ask_human",
            json!({ "question": "Which?" }),
            "blue",
            &["Do it."][..],
        ),
        (
            "report_blocked",
            json!({ "reason": "no key" }),
            "blue",
            &["Do it."][..],
        ),
        (
            "wait",
            json!({ "for": "2h" }),
            "the wait ended early: a person wrote",
            &["Do it.", "blue"][..],
        ),
    ] {
        let house = plan([Line::call(tool, input)]).at_work();
        let run = house.submit().await;
        let rests = if tool == "report_blocked" {
            "run.blocked"
        } else {
            "run.waiting"
        };
        house.until(run, rests).await;
        say(&house, run, "blue", AfterBatch).await;
        let journal = house.ended(run).await;
        assert_eq!(end(&journal), "done");
        assert_eq!(house.results(), [(result.to_owned(), false)], "{tool}");
        assert_eq!(house.heard(), heard, "{tool}");
    }
}

#[tokio::test]
async fn a_follow_up_waits_until_the_run_would_stop() {
    let (deeds, door) = (Deeds::default(), Door::shut());
    let hand = Hand::new("act", Pure, &deeds).behind(&door);
    let lines = [
        Line::call("act", json!({})),
        Line::Text("first"),
        Line::Text("second"),
    ];
    let house = plan(lines).hands([hand]).at_work();
    let run = house.submit().await;
    door.reached(1).await;
    say(&house, run, "and then?", FollowUp).await;
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "second");
    let asked = house.actor.asked();
    assert_eq!(heard(&asked[1]), ["Do it."]);
    assert_eq!(heard(&asked[2]), ["Do it.", "and then?"]);
    assert_eq!(results(&asked[1]).len(), 1);
}

#[tokio::test]
async fn messages_are_bounded_and_refused_at_the_end() {
    let door = Door::shut();
    let house = plan([Line::Text("done").behind(&door)]).at_work();
    let run = house.submit().await;
    door.reached(1).await;
    let steer = |text: String| house.longhaul.steer(run, text, AfterBatch, "cli:anna");
    for n in 0..64 {
        steer(format!("message {n}")).await.unwrap();
    }
    assert_eq!(
        steer("one more".into()).await.unwrap_err().code(),
        "steers_full"
    );
    assert_eq!(steer("  ".into()).await.unwrap_err().code(), "empty");
    assert_eq!(
        steer("x".repeat(65 * 1024)).await.unwrap_err().code(),
        "too_long"
    );
    door.open();
    house.ended(run).await;
    assert_eq!(house.heard().len(), 65, "all of them were read");
    assert_eq!(steer("late".into()).await.unwrap_err().code(), "run_ended");
}

#[tokio::test]
async fn a_message_can_be_taken_back_until_it_is_read() {
    let door = Door::shut();
    let house = plan([Line::Text("done").behind(&door)]).at_work();
    let run = house.submit().await;
    door.reached(1).await;
    let steer = house
        .longhaul
        .steer(run, "oops", AfterBatch, "cli:anna")
        .await
        .unwrap();
    house
        .longhaul
        .withdraw_steer(run, steer, "cli:anna")
        .await
        .unwrap();
    let no = house
        .longhaul
        .withdraw_steer(run, steer, "cli:anna")
        .await
        .unwrap_err();
    assert_eq!(no.code(), "steer_settled");
    door.open();
    house.ended(run).await;
    assert_eq!(house.heard(), ["Do it."]);
}
