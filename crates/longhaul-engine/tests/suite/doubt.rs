//! Calls whose outcome nobody knows: what the policy says is done, a tool that
//! can look looks, and nothing is repeated silently.

use longhaul_core::event::steer::Delivery;
use longhaul_core::event::tool::{Finding, ToolOutput};
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::effect::InDoubt;
use longhaul_core::policy::gate::{Decision, GateKind};
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, answer, count, end, kinds, plan};
use longhaul_testkit::door::Door;

/// A house whose agent calls a `once` tool that never ends in time.
fn late(deeds: &Deeds, change: impl FnOnce(Hand) -> Hand) -> (House, Door) {
    let door = Door::shut();
    let hand = Hand::new("send", Once, deeds)
        .behind(&door)
        .within(Millis(20));
    let house = plan([Line::call("send", json!({ "text": "hi" }))])
        .hands([change(hand)])
        .at_work();
    (house, door)
}

#[tokio::test]
async fn told_of_a_doubt_the_model_reads_it() {
    let deeds = Deeds::default();
    let (house, _door) = late(&deeds, |hand| hand.in_doubt(InDoubt::Tell));
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
    let (text, is_error) = house.results().remove(0);
    assert!(
        is_error && text.contains("its outcome is unknown. It took longer than 20 ms"),
        "{text}"
    );
    assert_eq!(deeds.count("send begins"), 1);
}

#[tokio::test]
async fn a_doubt_can_end_the_run() {
    let deeds = Deeds::default();
    let (house, _door) = late(&deeds, |hand| hand.in_doubt(InDoubt::Fail));
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "in_doubt");
    assert_eq!(house.actor.asked().len(), 1, "the model is not asked again");
}

/// What the model reads, and how often the call was made, after this answer.
async fn settled_by(decision: Decision) -> (String, bool, usize) {
    let deeds = Deeds::default();
    let (house, door) = late(&deeds, |hand| hand);
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
async fn a_person_says_what_came_of_it() {
    let (text, is_error, made) = settled_by(Decision::Approve).await;
    assert_eq!(
        (text.as_str(), is_error, made),
        (r#"{"text":"hi"}"#, false, 2)
    );
    let (text, is_error, made) = settled_by(Decision::Reject).await;
    assert!(
        text.contains("it did not happen") && is_error && made == 1,
        "{text}"
    );
    let (text, is_error, made) = settled_by(Decision::Answer("it was sent".into())).await;
    assert_eq!((text.as_str(), is_error, made), ("it was sent", false, 1));
}

#[tokio::test]
async fn a_tool_that_can_look_looks() {
    for (finding, made, read) in [
        (
            Finding::Happened(ToolOutput::text("sent at 9")),
            1,
            "sent at 9",
        ),
        (Finding::NotHappened, 2, r#"{"text":"hi"}"#),
    ] {
        let deeds = Deeds::default();
        let (house, door) = late(&deeds, |hand| hand.finding(finding.clone()));
        let run = house.submit().await;
        house.until(run, "tool.in_doubt").await;
        door.open();
        let journal = house.ended(run).await;
        assert_eq!(count(&journal, "tool.verified"), 1, "{:?}", kinds(&journal));
        assert_eq!(house.results(), [(read.to_owned(), false)]);
        assert_eq!(
            (deeds.count("send begins"), deeds.count("send looks")),
            (made, 1)
        );
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_a_look() {
    let deeds = Deeds::default();
    let shut = Door::shut();
    let (house, _door) = late(&deeds, |hand| {
        hand.finding(Finding::Unknown).looking_behind(&shut)
    });
    let run = house.submit().await;
    shut.reached(1).await;
    house
        .longhaul
        .cancel(run, "cli:anna", "enough")
        .await
        .unwrap();
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "run.cancelled");
}

#[tokio::test]
async fn a_message_that_cut_a_call_off_does_not_cut_its_look_off() {
    let (deeds, never) = (Deeds::default(), Door::shut());
    let hand = Hand::new("send", Once, &deeds)
        .behind(&never)
        .finding(Finding::Happened(ToolOutput::text("sent at 9")));
    let plan = plan([Line::call("send", json!({}))]).hands([hand]);
    let house = plan.at_standing_clock().at_work();
    let run = house.submit().await;
    never.reached(1).await;
    let said = house
        .longhaul
        .steer(run, "stop", Delivery::Interrupt, "cli:anna");
    said.await.unwrap();
    let journal = house.pass_until(run, "run.completed").await;
    assert_eq!(count(&journal, "tool.verified"), 1, "{:?}", kinds(&journal));
    assert_eq!(house.results(), [("sent at 9".to_owned(), false)]);
    assert_eq!(house.heard(), ["Do it.", "stop"]);
}
