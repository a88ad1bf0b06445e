//! The wall clock is set back or forward while a worker runs.

use longhaul_core::id::RunId;
use longhaul_core::task::Start;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::Task;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::door::Door;
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::{House, count, plan};

const HOUR: Millis = Millis::from_secs(3_600);

/// A worker with the usual lease and poll interval, at a clock that the test moves.
fn at_work(lines: impl IntoIterator<Item = Line>) -> (House, SimClock) {
    let mut house = plan(lines).at_standing_clock().open();
    house.hire(|options| {
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

async fn submit_for(house: &House, at: Timestamp) -> RunId {
    let task = Task {
        start: Start::At(at),
        ..Task::new("tester", "Do it.")
    };
    house.longhaul.submit(task).await.unwrap()
}

/// Lets more than one ttl pass, until a run is claimed that starts then.
async fn outlive_the_lease(house: &House) {
    let now = house.clock.as_ref().unwrap().now();
    let run = submit_for(house, now.plus(Millis::from_secs(20))).await;
    house.pass_until(run, "run.claimed").await;
}

#[tokio::test]
async fn a_worker_goes_on_after_the_clock_was_set_back() {
    let (house, clock) = at_work([
        Line::call("wait", json!({ "for": "5s" })),
        Line::Text("done"),
    ]);
    outlive_the_lease(&house).await;
    set_back(&clock, HOUR);
    let begun = clock.monotonic();
    let run = house.submit().await;
    house.pass_until(run, "run.completed").await;
    outlive_the_lease(&house).await;
    assert!(clock.monotonic().minus(begun) < HOUR);
    assert!(house.longhaul.is_beating().await.unwrap());
}

#[tokio::test]
async fn a_worker_keeps_its_run_when_the_clock_is_set_forward() {
    let door = Door::shut();
    let (house, clock) = at_work([Line::Text("done").behind(&door)]);
    let run = house.submit().await;
    door.reached(1).await;
    outlive_the_lease(&house).await;
    clock.set(clock.now().plus(HOUR));
    outlive_the_lease(&house).await;
    door.open();
    let journal = house.pass_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.claimed"), 1);
}

#[tokio::test]
async fn a_wait_ends_when_the_wall_clock_has_reached_its_end() {
    let (house, clock) = at_work([Line::call("wait", json!({ "for": "1h" }))]);
    let run = house.submit().await;
    house.until(run, "run.waiting").await;
    clock.set(clock.now().plus(HOUR));
    let begun = clock.monotonic();
    house.pass_until(run, "run.completed").await;
    assert!(clock.monotonic().minus(begun) < HOUR);
}

#[tokio::test]
async fn a_start_time_counts_when_the_wall_clock_has_reached_it() {
    let (house, clock) = at_work([Line::Text("done")]);
    let run = submit_for(&house, clock.now().plus(HOUR)).await;
    outlive_the_lease(&house).await;
    set_back(&clock, HOUR);
    clock.set(clock.now().plus(HOUR).plus(HOUR));
    let begun = clock.monotonic();
    house.pass_until(run, "run.completed").await;
    assert!(clock.monotonic().minus(begun) < HOUR);
}
