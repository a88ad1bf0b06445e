//! A worker that dies in the middle: another takes its runs after the lease,
//! and each call is treated by its class.

use std::time::Duration;

use longhaul_core::policy::effect::EffectClass::{self, Keyed, Once, Pure};
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::tool_source::FakeToolSource;
use crate::suite::harness::{TIMEOUT, TestEngine, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

fn short_lease(options: &mut longhaul_engine::worker::WorkerOptions) {
    options.lease = Millis(300);
}

/// A house whose only worker died in the middle of a call.
async fn crash_during_call(
    class: EffectClass,
    deeds: &EffectLog,
) -> (TestEngine, longhaul_core::id::RunId, Latch) {
    let door = Latch::new();
    let hand =
        FakeTool::new("act", class, deeds).after_latch(&door).with_in_doubt(InDoubtPolicy::Tell);
    let mut house = engine_with([FakeReply::call("act", json!({}))]).tools([hand]).build();
    house.spawn_worker(short_lease);
    let run = house.submit().await;
    door.reached(1).await;
    house.workers.abort_all();
    while house.workers.join_next().await.is_some() {}
    (house, run, door)
}

#[tokio::test]
async fn calls_of_a_dead_worker_are_repeated_or_in_doubt() {
    for (class, made, doubts) in [(Pure, 2, 0), (Keyed, 2, 0), (Once, 1, 1)] {
        let deeds = EffectLog::default();
        let (mut house, run, door) = crash_during_call(class, &deeds).await;
        door.open();
        house.spawn_worker(short_lease);
        let journal = house.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(count(&journal, "run.recovered"), 1);
        assert_eq!(deeds.count("act begins"), made, "{class:?}");
        assert_eq!(count(&journal, "tool.in_doubt"), doubts, "{:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn a_model_call_of_a_dead_worker_is_repeated() {
    let door = Latch::new();
    let mut house = engine_with([FakeReply::Text("never").after_latch(&door)]).build();
    house.spawn_worker(short_lease);
    let run = house.submit().await;
    door.reached(1).await;
    house.workers.abort_all();
    while house.workers.join_next().await.is_some() {}
    house.spawn_worker(short_lease);
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let asked = house.model.requests();
    assert_eq!((asked[0].attempt, asked[1].attempt), (1, 2));
    assert_eq!(count(&journal, "turn.failed"), 1, "the first is lost");
}

#[tokio::test]
async fn a_cancel_ends_a_blocked_run_completely() {
    let deeds = EffectLog::default();
    let (mut house, run, _door) = crash_during_call(Once, &deeds).await;
    house.longhaul.cancel(run, "cli:anna", "enough").await.unwrap();
    *house.models.missing_message.lock().unwrap() = Some("No model is configured.");
    house.spawn_worker(short_lease);
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
}

/// Counts as dead when time passes: the clock stands until then.
fn limit_crashes(options: &mut longhaul_engine::worker::WorkerOptions) {
    options.lease = Millis::from_secs(15);
}

/// The process of all workers dies.
async fn crash_worker(house: &mut TestEngine) {
    house.workers.abort_all();
    while house.workers.join_next().await.is_some() {}
}

/// Lets time pass, second by second, until the runs of the dead were claimed again and
/// so many have come to a door.
async fn pass_until_reached(house: &TestEngine, door: &Latch, count: usize) {
    let clock = house.clock.as_ref().unwrap();
    let passing = async {
        while door.arrivals() < count {
            let waited = tokio::time::timeout(Duration::from_millis(2), door.reached(count));
            if waited.await.is_err() {
                _ = clock.advance(Millis::from_secs(1));
            }
        }
    };
    let passed = tokio::time::timeout(TIMEOUT, passing).await;
    assert!(passed.is_ok(), "{} of {count} came to a door", door.arrivals());
}

#[tokio::test]
async fn a_run_that_crashes_its_worker_during_setup_is_blocked() {
    let (stock, door) = (FakeToolSource::default(), Latch::new());
    stock.set_tools(Some(vec!["mcp:shop/buy"]));
    stock.block_load(&door);
    let mut house = engine_with([]).external_tools(&stock).with_sim_clock().build();
    let run = house.submit().await;
    for deaths in 1..=3 {
        house.spawn_worker(limit_crashes);
        pass_until_reached(&house, &door, deaths).await;
        crash_worker(&mut house).await;
    }
    house.spawn_worker(limit_crashes);
    house.advance_until(run, "run.blocked").await;
    assert_eq!(door.arrivals(), 3);
    let ask = house.gate(run).await.spec.ask;
    let place = "died 3 times in a row at the same place, before its first turn";
    assert!(ask.contains(place), "{ask}");
}

#[tokio::test]
async fn runs_that_wait_for_a_trial_leave_their_slots_to_others() {
    let door = Latch::new();
    let hand = FakeTool::new("act", Pure, &EffectLog::default()).after_latch(&door);
    let plan = engine_with([FakeReply::call("act", json!({}))]).tools([hand]);
    let mut house = plan.with_sim_clock().build();
    let three = |options: &mut longhaul_engine::worker::WorkerOptions| {
        limit_crashes(options);
        options.concurrency = 3;
    };
    let [on_trial, cancelled, waiting] =
        [house.submit().await, house.submit().await, house.submit().await];
    for deaths in 1..=2 {
        house.spawn_worker(three);
        pass_until_reached(&house, &door, deaths * 3).await;
        crash_worker(&mut house).await;
    }
    house.spawn_worker(three);
    pass_until_reached(&house, &door, 7).await;
    let fresh = [house.submit().await, house.submit().await];
    door.reached(9).await;
    // It needs no slot to come to its end.
    let cancel = house.longhaul.cancel(cancelled, "cli:anna", "enough");
    cancel.await.unwrap();
    assert_eq!(outcome_text(&house.ended(cancelled).await), "run.cancelled");
    assert_eq!(door.arrivals(), 9, "nobody else has begun");
    door.open();
    for run in [on_trial, waiting, fresh[0], fresh[1]] {
        assert_eq!(outcome_text(&house.ended(run).await), "done");
    }
}
