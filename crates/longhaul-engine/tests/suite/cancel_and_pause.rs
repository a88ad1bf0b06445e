//! Stop means stop: once a cancel is acknowledged nothing more starts, and what
//! runs ends or is in doubt. A pause waits for what runs and starts nothing.

use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery::AfterBatch;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass::{self, Once, Pure};
use longhaul_core::policy::gate::Decision;
use longhaul_core::status::Status;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

async fn cancel(house: &TestEngine, run: RunId) {
    let done = house.longhaul.cancel(run, "cli:anna", "enough").await;
    done.unwrap();
}

/// No fact that starts something stands after the wish to stop.
fn assert_nothing_starts_after(journal: &[Entry], wish: &str) {
    let asked = journal.iter().position(|entry| entry.event.kind() == wish);
    let after = &journal[asked.expect("somebody asked")..];
    for start in ["turn.started", "tool.started", "gate.raised"] {
        assert_eq!(count(after, start), 0, "{:?}", kinds(journal));
    }
}

/// A model behind a door.
fn engine_in_model_call(door: &Latch) -> TestEngine {
    let line = FakeReply::call("act", json!({})).after_latch(door);
    let hand = FakeTool::new("act", Once, &EffectLog::default());
    engine_with([line]).tools([hand]).start()
}

/// A tool of this class behind a door, and another after it.
fn engine_in_tool_call(class: EffectClass, door: &Latch, deeds: &EffectLog) -> TestEngine {
    let hands =
        [FakeTool::new("act", class, deeds).after_latch(door), FakeTool::new("later", Once, deeds)];
    let calls = vec![("act", json!({})), ("later", json!({}))];
    engine_with([FakeReply::Calls(calls)]).tools(hands).start()
}

#[tokio::test]
async fn a_cancel_stops_the_model_call() {
    let door = Latch::new();
    let house = engine_in_model_call(&door);
    let run = house.submit().await;
    door.reached(1).await;
    cancel(&house, run).await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_nothing_starts_after(&journal, "run.cancel_requested");
    assert_eq!(count(&journal, "turn.failed"), 1, "{:?}", kinds(&journal));
    let shown = house.longhaul.show(run).await.unwrap();
    assert!(shown.error.unwrap().message.contains("enough"));
}

#[tokio::test]
async fn a_cancel_stops_a_pure_call_and_awaits_a_once_call() {
    for (class, fact) in [(Pure, "tool.interrupted"), (Once, "tool.completed")] {
        let (door, deeds) = (Latch::new(), EffectLog::default());
        let house = engine_in_tool_call(class, &door, &deeds);
        let run = house.submit().await;
        door.reached(1).await;
        cancel(&house, run).await;
        if class == Once {
            door.open();
        }
        let journal = house.ended(run).await;
        assert_eq!(outcome_text(&journal), "run.cancelled");
        assert_nothing_starts_after(&journal, "run.cancel_requested");
        assert_eq!(count(&journal, fact), 1, "{:?}", kinds(&journal));
        assert_eq!(deeds.count("later"), 0);
        assert_eq!(house.model.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_once_call_that_outlasts_the_grace_is_in_doubt() {
    let (never, deeds) = (Latch::new(), EffectLog::default());
    let hand = FakeTool::new("act", Once, &deeds).after_latch(&never);
    let plan = engine_with([FakeReply::call("act", json!({}))]).tools([hand]);
    let house = plan.with_sim_clock().start();
    let run = house.submit().await;
    never.reached(1).await;
    let begun = house.longhaul.store_time().await.unwrap();
    cancel(&house, run).await;
    let journal = house.advance_until(run, "run.cancelled").await;
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
    let took = journal.last().unwrap().at.since(begun);
    assert!((10_000..15_000).contains(&took.0), "{took:?}");
}

#[tokio::test]
async fn an_undriven_run_is_cancelled_by_the_caller() {
    // Pending: nobody works here.
    let house = engine_with([]).build();
    let run = house.submit().await;
    cancel(&house, run).await;
    let journal = house.ended(run).await;
    assert_eq!(kinds(&journal), ["run.created", "run.cancel_requested", "run.cancelled"]);

    // Parked, with a gate open and a message waiting.
    let house = engine_with([FakeReply::call("wait", json!({ "signal": "go" }))]).start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    house.longhaul.steer(run, "hm", AfterBatch, "cli:anna").await.unwrap();
    house.gate(run).await;
    cancel(&house, run).await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
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
    let (door, deeds) = (Latch::new(), EffectLog::default());
    let house = engine_in_tool_call(Once, &door, &deeds);
    let run = house.submit().await;
    door.reached(1).await;
    cancel(&house, run).await;
    cancel(&house, run).await;
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_eq!(deeds.all(), ["act begins {}", "act ends {}"]);
    assert_eq!(count(&journal, "run.cancelled"), 1);
}

#[tokio::test]
async fn a_pause_waits_for_running_calls_and_a_resume_continues() {
    // While the model is asked: the reply is kept, its calls wait.
    let door = Latch::new();
    let house = engine_in_model_call(&door);
    let run = house.submit().await;
    door.reached(1).await;
    house.longhaul.pause(run, "cli:anna").await.unwrap();
    door.open();
    let seen = house.until(run, "run.paused").await;
    assert_eq!(count(&seen, "turn.completed"), 1, "{:?}", kinds(&seen));
    assert_nothing_starts_after(&seen, "run.pause_requested");
    assert_eq!(house.longhaul.show(run).await.unwrap().status, Status::Paused);
    let again = house.longhaul.pause(run, "cli:anna").await.unwrap_err();
    assert_eq!(again.code(), "already_in_state");
    house.longhaul.resume(run, None, "cli:anna").await.unwrap();
    assert_eq!(outcome_text(&house.ended(run).await), "done");

    // While a call runs: it ends first, and the next does not begin.
    for class in [Pure, Once] {
        let (door, deeds) = (Latch::new(), EffectLog::default());
        let house = engine_in_tool_call(class, &door, &deeds);
        let run = house.submit().await;
        door.reached(1).await;
        house.longhaul.pause(run, "cli:anna").await.unwrap();
        door.open();
        let seen = house.until(run, "run.paused").await;
        assert_eq!(deeds.all(), ["act begins {}", "act ends {}"], "{:?}", kinds(&seen));
        house.longhaul.resume(run, None, "cli:anna").await.unwrap();
        assert_eq!(outcome_text(&house.ended(run).await), "done");
        assert_eq!(deeds.count("later ends"), 1);
    }
}

#[tokio::test]
async fn messages_to_a_paused_run_are_queued() {
    let house =
        engine_with([FakeReply::call("ask_human", json!({ "question": "Which?" }))]).start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    house.longhaul.pause(run, "cli:anna").await.unwrap();
    let said = answer(&gate, Decision::Answer("blue".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    house.longhaul.steer(run, "and green", AfterBatch, "cli:anna").await.unwrap();
    assert_eq!(house.longhaul.show(run).await.unwrap().status, Status::Paused);
    house.longhaul.resume(run, None, "cli:anna").await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "run.claimed"), 2, "{:?}", kinds(&journal));
    assert_eq!(house.results(), [("blue".to_owned(), false)]);
    assert_eq!(house.user_texts(), ["Do it.", "and green"]);
}

#[tokio::test]
async fn an_undriven_run_can_be_paused_and_then_cancelled() {
    let mut house = engine_with([]).build();
    let (first, second) = (house.submit().await, house.submit().await);
    for run in [first, second] {
        house.longhaul.pause(run, "cli:anna").await.unwrap();
    }
    house.spawn_worker(|_| {});
    let third = house.submit().await;
    house.ended(third).await;
    assert_eq!(house.longhaul.show(first).await.unwrap().status, Status::Paused);
    cancel(&house, second).await;
    assert_eq!(outcome_text(&house.ended(second).await), "run.cancelled");
    house.longhaul.resume(first, None, "cli:anna").await.unwrap();
    assert_eq!(outcome_text(&house.ended(first).await), "done");
}
