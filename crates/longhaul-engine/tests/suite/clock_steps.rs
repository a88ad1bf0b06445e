//! The wall clock is set back or forward while a worker runs.

use longhaul_core::id::RunId;
use longhaul_core::task::Start;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::Task;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, count, engine_with};

const HOUR: Millis = Millis::from_secs(3_600);

/// A worker with the usual lease and poll interval, at a clock that the test moves.
fn start_engine(lines: impl IntoIterator<Item = FakeReply>) -> (TestEngine, SimClock) {
    let mut house = engine_with(lines).with_sim_clock().build();
    house.spawn_worker(|options| {
        options.lease = Millis::from_secs(15);
        options.poll = Millis::from_secs(1);
    });
    let clock = house.clock.clone().unwrap();
    (house, clock)
}

fn set_back(clock: &SimClock, span: Millis) {
    let micros = clock.now().as_micros() - i64::try_from(span.0).unwrap() * 1_000;
    clock.set(Timestamp::from_micros(micros));
}

async fn submit_for(house: &TestEngine, at: Timestamp) -> RunId {
    let task = Task { start: Start::At(at), ..Task::new("tester", "Do it.") };
    house.longhaul.submit(task).await.unwrap()
}

/// Lets more than one ttl pass, until a run is claimed that starts then.
async fn advance_past_lease(house: &TestEngine) {
    let now = house.clock.as_ref().unwrap().now();
    let run = submit_for(house, now.plus(Millis::from_secs(20))).await;
    house.advance_until(run, "run.claimed").await;
}

#[tokio::test]
async fn a_worker_goes_on_after_the_clock_was_set_back() {
    let (house, clock) =
        start_engine([FakeReply::call("wait", json!({ "for": "5s" })), FakeReply::Text("done")]);
    advance_past_lease(&house).await;
    set_back(&clock, HOUR);
    let begun = clock.monotonic();
    let run = house.submit().await;
    house.advance_until(run, "run.completed").await;
    advance_past_lease(&house).await;
    assert!(clock.monotonic().minus(begun) < HOUR);
    assert!(house.longhaul.has_live_worker().await.unwrap());
}

#[tokio::test]
async fn a_worker_keeps_its_run_when_the_clock_is_set_forward() {
    let door = Latch::new();
    let (house, clock) = start_engine([FakeReply::Text("done").after_latch(&door)]);
    let run = house.submit().await;
    door.reached(1).await;
    advance_past_lease(&house).await;
    clock.set(clock.now().plus(HOUR));
    advance_past_lease(&house).await;
    door.open();
    let journal = house.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.claimed"), 1);
}

#[tokio::test]
async fn a_wait_ends_when_the_wall_clock_has_reached_its_end() {
    let (house, clock) = start_engine([FakeReply::call("wait", json!({ "for": "1h" }))]);
    let run = house.submit().await;
    house.until(run, "run.waiting").await;
    clock.set(clock.now().plus(HOUR));
    let begun = clock.monotonic();
    house.advance_until(run, "run.completed").await;
    assert!(clock.monotonic().minus(begun) < HOUR);
}

#[tokio::test]
async fn a_start_time_counts_when_the_wall_clock_has_reached_it() {
    let (house, clock) = start_engine([FakeReply::Text("done")]);
    let run = submit_for(&house, clock.now().plus(HOUR)).await;
    advance_past_lease(&house).await;
    set_back(&clock, HOUR);
    clock.set(clock.now().plus(HOUR).plus(HOUR));
    let begun = clock.monotonic();
    house.advance_until(run, "run.completed").await;
    assert!(clock.monotonic().minus(begun) < HOUR);
}
