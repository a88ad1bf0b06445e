//! Tests in which the wall clock is set back or forward while a worker runs.

use longhaul_core::failure::FailureClass;
use longhaul_core::id::RunId;
use longhaul_core::policy::LaneBusyPolicy;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::Task;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::chains::auto_approving;
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, count, engine_with};

const HOUR: Millis = Millis::from_secs(3_600);

/// Starts a worker with the default lease and poll interval, on a clock that the test advances.
fn start_engine(replies: impl IntoIterator<Item = FakeReply>) -> (TestEngine, SimClock) {
    let mut engine = engine_with(replies).with_sim_clock().build();
    start_worker(&mut engine);
    let clock = engine.clock.clone().unwrap();
    (engine, clock)
}

fn start_worker(engine: &mut TestEngine) {
    engine.spawn_worker(|options| {
        options.lease = Millis::from_secs(15);
        options.poll = Millis::from_secs(1);
    });
}

fn set_back(clock: &SimClock, duration: Millis) {
    let micros = clock.now().as_micros() - i64::try_from(duration.0).unwrap() * 1_000;
    clock.set(Timestamp::from_micros(micros));
}

async fn submit_for(engine: &TestEngine, at: Timestamp) -> RunId {
    let task = Task { start: EarliestStart::At(at), ..Task::new("tester", "Do it.") };
    engine.longhaul.submit(task).await.unwrap()
}

/// Advances the clock beyond one lease duration, until a run that starts then is claimed.
async fn advance_past_lease(engine: &TestEngine) {
    let now = engine.clock.as_ref().unwrap().now();
    let run = submit_for(engine, now.plus(Millis::from_secs(20))).await;
    engine.advance_until(run, "run.claimed").await;
}

#[tokio::test]
async fn a_worker_goes_on_after_the_clock_was_set_back() {
    let (engine, clock) =
        start_engine([FakeReply::call("wait", json!({ "for": "5s" })), FakeReply::Text("done")]);
    advance_past_lease(&engine).await;
    set_back(&clock, HOUR);
    let started = clock.monotonic_time();
    let run = engine.submit().await;
    engine.advance_until(run, "run.completed").await;
    advance_past_lease(&engine).await;
    assert!(clock.monotonic_time().minus(started) < HOUR);
    assert!(engine.longhaul.has_live_worker().await.unwrap());
}

#[tokio::test]
async fn a_worker_keeps_its_run_when_the_clock_is_set_forward() {
    let latch = Latch::closed();
    let (engine, clock) = start_engine([FakeReply::Text("done").after_latch(&latch)]);
    let run = engine.submit().await;
    latch.reached(1).await;
    advance_past_lease(&engine).await;
    clock.set(clock.now().plus(HOUR));
    advance_past_lease(&engine).await;
    latch.open();
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.claimed"), 1);
}

#[tokio::test]
async fn a_wait_ends_when_the_wall_clock_has_reached_its_end() {
    let (engine, clock) = start_engine([FakeReply::call("wait", json!({ "for": "1h" }))]);
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    clock.set(clock.now().plus(HOUR));
    let started = clock.monotonic_time();
    engine.advance_until(run, "run.completed").await;
    assert!(clock.monotonic_time().minus(started) < HOUR);
}

#[tokio::test]
async fn a_start_time_counts_when_the_wall_clock_has_reached_it() {
    let (engine, clock) = start_engine([FakeReply::Text("done")]);
    let run = submit_for(&engine, clock.now().plus(HOUR)).await;
    advance_past_lease(&engine).await;
    set_back(&clock, HOUR);
    clock.set(clock.now().plus(HOUR).plus(HOUR));
    let started = clock.monotonic_time();
    engine.advance_until(run, "run.completed").await;
    assert!(clock.monotonic_time().minus(started) < HOUR);
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_prolong_the_pause_of_a_provider() {
    let limited = FakeReply::in_turn([FakeReply::Fail(FailureClass::RateLimit)]);
    let (engine, clock) = start_engine([limited]);
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    set_back(&clock, HOUR);
    let started = clock.monotonic_time();
    engine.model.set_replies(Vec::new());
    let other = engine.submit().await;
    let journal = engine.advance_until(other, "run.completed").await;
    assert_eq!(count(&journal, "run.waiting"), 0, "the provider is not blocked any more");
    engine.advance_until(run, "run.completed").await;
    assert!(clock.monotonic_time().minus(started) < HOUR);
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_prolong_a_wait_for_a_duration() {
    for restarts in [false, true] {
        let (mut engine, clock) = start_engine([FakeReply::call("wait", json!({ "for": "30s" }))]);
        let run = engine.submit().await;
        engine.until(run, "run.waiting").await;
        if restarts {
            engine.workers.abort_all();
            while engine.workers.join_next().await.is_some() {}
        }
        set_back(&clock, HOUR);
        if restarts {
            start_worker(&mut engine);
        }
        let started = clock.monotonic_time();
        engine.advance_until(run, "run.completed").await;
        let elapsed = clock.monotonic_time().minus(started);
        assert!((30_000..HOUR.0).contains(&elapsed.0), "{elapsed:?}");
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_prolong_a_collect_window() {
    // The clock is set back before or after the window begins.
    for steps_first in [false, true] {
        let latch = Latch::closed();
        let reply = FakeReply::Text("done").after_latch(&latch);
        let engine = engine_with([reply]).with_sim_clock().agent(|agent| {
            agent.lane = Some("lane".into());
            agent.lane_busy = LaneBusyPolicy::Collect;
        });
        let mut engine = engine.build();
        start_worker(&mut engine);
        let clock = engine.clock.clone().unwrap();
        let first = engine.submit().await;
        latch.reached(1).await;
        let second = engine.submit().await;
        if steps_first {
            set_back(&clock, HOUR);
        }
        latch.open();
        engine.until(first, "run.completed").await;
        if !steps_first {
            set_back(&clock, HOUR);
        }
        let started = clock.monotonic_time();
        engine.advance_until(second, "run.completed").await;
        assert!(clock.monotonic_time().minus(started) < HOUR, "{steps_first}");
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_prolong_an_automatic_approval() {
    let (engine, root) = auto_approving().await;
    let clock = engine.clock.clone().unwrap();
    set_back(&clock, HOUR);
    let started = clock.monotonic_time();
    engine.advance_until(root, "gate.answered").await;
    assert!(clock.monotonic_time().minus(started) < HOUR);
}

#[tokio::test]
async fn a_wait_until_a_time_ends_at_that_time_of_a_clock_that_was_set_back() {
    let until = longhaul_testkit::clock::SIM_START.plus(Millis::from_secs(60));
    let wait = FakeReply::call("wait", json!({ "until": until.to_string() }));
    let (engine, clock) = start_engine([wait]);
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    set_back(&clock, Millis::from_secs(120));
    engine.advance_until(run, "run.completed").await;
    assert!(clock.now() >= until);
}
