//! Stop means stop: once a cancel is acknowledged nothing more starts, and what
//! runs ends or is in doubt. A pause waits for what runs and starts nothing.

use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery::AfterBatch;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass::{self, Once, Pure};
use longhaul_core::policy::gate::Decision;
use longhaul_core::status::Status;
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, answer, count, end, kinds, plan};
use longhaul_testkit::door::Door;

async fn cancel(house: &House, run: RunId) {
    let done = house.longhaul.cancel(run, "cli:anna", "enough").await;
    done.unwrap();
}

/// No fact that starts something stands after the wish to stop.
fn starts_nothing(journal: &[Entry], wish: &str) {
    let asked = journal.iter().position(|entry| entry.event.kind() == wish);
    let after = &journal[asked.expect("somebody asked")..];
    for start in ["turn.started", "tool.started", "gate.raised"] {
        assert_eq!(count(after, start), 0, "{:?}", kinds(journal));
    }
}

/// A model behind a door.
fn thinking(door: &Door) -> House {
    let line = Line::call("act", json!({})).behind(door);
    let hand = Hand::new("act", Once, &Deeds::default());
    plan([line]).hands([hand]).at_work()
}

/// A tool of this class behind a door, and another after it.
fn acting(class: EffectClass, door: &Door, deeds: &Deeds) -> House {
    let hands = [
        Hand::new("act", class, deeds).behind(door),
        Hand::new("later", Once, deeds),
    ];
    let calls = vec![("act", json!({})), ("later", json!({}))];
    plan([Line::Calls(calls)]).hands(hands).at_work()
}

#[tokio::test]
async fn a_cancel_cuts_the_model_off() {
    let door = Door::shut();
    let house = thinking(&door);
    let run = house.submit().await;
    door.reached(1).await;
    cancel(&house, run).await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "run.cancelled");
    starts_nothing(&journal, "run.cancel_requested");
    assert_eq!(count(&journal, "turn.failed"), 1, "{:?}", kinds(&journal));
    let shown = house.longhaul.show(run).await.unwrap();
    assert!(shown.error.unwrap().message.contains("enough"));
}

#[tokio::test]
async fn a_cancel_cuts_a_pure_call_off_and_lets_a_once_call_end() {
    for (class, fact) in [(Pure, "tool.interrupted"), (Once, "tool.completed")] {
        let (door, deeds) = (Door::shut(), Deeds::default());
        let house = acting(class, &door, &deeds);
        let run = house.submit().await;
        door.reached(1).await;
        cancel(&house, run).await;
        if class == Once {
            door.open();
        }
        let journal = house.ended(run).await;
        assert_eq!(end(&journal), "run.cancelled");
        starts_nothing(&journal, "run.cancel_requested");
        assert_eq!(count(&journal, fact), 1, "{:?}", kinds(&journal));
        assert_eq!(deeds.count("later"), 0);
        assert_eq!(house.actor.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_once_call_that_outlasts_the_grace_is_in_doubt() {
    let (never, deeds) = (Door::shut(), Deeds::default());
    let hand = Hand::new("act", Once, &deeds).behind(&never);
    let plan = plan([Line::call("act", json!({}))]).hands([hand]);
    let house = plan.at_standing_clock().at_work();
    let run = house.submit().await;
    never.reached(1).await;
    let begun = house.longhaul.now().await.unwrap();
    cancel(&house, run).await;
    let journal = house.pass_until(run, "run.cancelled").await;
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
    let took = journal.last().unwrap().at.since(begun);
    assert!((10_000..15_000).contains(&took.0), "{took:?}");
}

#[tokio::test]
async fn a_run_that_nobody_drives_is_ended_by_whoever_cancels_it() {
    // Pending: nobody works here.
    let house = plan([]).open();
    let run = house.submit().await;
    cancel(&house, run).await;
    let journal = house.ended(run).await;
    assert_eq!(
        kinds(&journal),
        ["run.created", "run.cancel_requested", "run.cancelled"]
    );

    // Parked, with a gate open and a message waiting.
    let house = plan([Line::call("wait", json!({ "signal": "go" }))]).at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    house
        .longhaul
        .steer(run, "hm", AfterBatch, "cli:anna")
        .await
        .unwrap();
    house.gate(run).await;
    cancel(&house, run).await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "run.cancelled");
    assert_eq!(count(&journal, "gate.withdrawn"), 1);
    assert_eq!(count(&journal, "steer.dropped"), 1);
    let late = answer(&gate, Decision::Complete);
    let no = house.longhaul.answer(gate.spec.id, late).await.unwrap_err();
    assert_eq!(no.code(), "run_ended");
    // And what has ended stays as it is.
    for no in [
        house.longhaul.cancel(run, "cli:anna", "again").await,
        house.longhaul.pause(run, "cli:anna").await,
        house.longhaul.resume(run, None, "cli:anna").await,
    ] {
        assert_eq!(no.unwrap_err().code(), "run_ended");
    }
}

#[tokio::test]
async fn a_second_cancel_changes_nothing() {
    let (door, deeds) = (Door::shut(), Deeds::default());
    let house = acting(Once, &door, &deeds);
    let run = house.submit().await;
    door.reached(1).await;
    cancel(&house, run).await;
    cancel(&house, run).await;
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "run.cancelled");
    assert_eq!(deeds.all(), ["act begins {}", "act ends {}"]);
    assert_eq!(count(&journal, "run.cancelled"), 1);
}

#[tokio::test]
async fn a_pause_waits_for_what_runs_and_a_resume_goes_on() {
    // While the model is asked: the reply is kept, its calls wait.
    let door = Door::shut();
    let house = thinking(&door);
    let run = house.submit().await;
    door.reached(1).await;
    house.longhaul.pause(run, "cli:anna").await.unwrap();
    door.open();
    let seen = house.until(run, "run.paused").await;
    assert_eq!(count(&seen, "turn.completed"), 1, "{:?}", kinds(&seen));
    starts_nothing(&seen, "run.pause_requested");
    assert_eq!(
        house.longhaul.show(run).await.unwrap().status,
        Status::Paused
    );
    let again = house.longhaul.pause(run, "cli:anna").await.unwrap_err();
    assert_eq!(again.code(), "already");
    house.longhaul.resume(run, None, "cli:anna").await.unwrap();
    assert_eq!(end(&house.ended(run).await), "done");

    // While a call runs: it ends first, and the next does not begin.
    for class in [Pure, Once] {
        let (door, deeds) = (Door::shut(), Deeds::default());
        let house = acting(class, &door, &deeds);
        let run = house.submit().await;
        door.reached(1).await;
        house.longhaul.pause(run, "cli:anna").await.unwrap();
        door.open();
        let seen = house.until(run, "run.paused").await;
        assert_eq!(
            deeds.all(),
            ["act begins {}", "act ends {}"],
            "{:?}",
            kinds(&seen)
        );
        house.longhaul.resume(run, None, "cli:anna").await.unwrap();
        assert_eq!(end(&house.ended(run).await), "done");
        assert_eq!(deeds.count("later ends"), 1);
    }
}

#[tokio::test]
async fn what_is_said_to_a_paused_run_is_kept_for_later() {
    let house = plan([Line::call("ask_human", json!({ "question": "Which?" }))]).at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    house.longhaul.pause(run, "cli:anna").await.unwrap();
    let said = answer(&gate, Decision::Answer("blue".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    house
        .longhaul
        .steer(run, "and green", AfterBatch, "cli:anna")
        .await
        .unwrap();
    assert_eq!(
        house.longhaul.show(run).await.unwrap().status,
        Status::Paused
    );
    house.longhaul.resume(run, None, "cli:anna").await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "run.claimed"), 2, "{:?}", kinds(&journal));
    assert_eq!(house.results(), [("blue".to_owned(), false)]);
    assert_eq!(house.heard(), ["Do it.", "and green"]);
}

#[tokio::test]
async fn a_run_that_nobody_drives_is_paused_and_can_be_ended_there() {
    let mut house = plan([]).open();
    let (first, second) = (house.submit().await, house.submit().await);
    for run in [first, second] {
        house.longhaul.pause(run, "cli:anna").await.unwrap();
    }
    house.hire(|_| {});
    let third = house.submit().await;
    house.ended(third).await;
    assert_eq!(
        house.longhaul.show(first).await.unwrap().status,
        Status::Paused
    );
    cancel(&house, second).await;
    assert_eq!(end(&house.ended(second).await), "run.cancelled");
    house
        .longhaul
        .resume(first, None, "cli:anna")
        .await
        .unwrap();
    assert_eq!(end(&house.ended(first).await), "done");
}
