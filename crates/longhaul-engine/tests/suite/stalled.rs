//! Tests of drivers that stall although their worker is alive.

use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::time::Millis;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{count, engine_with, outcome_text};

#[tokio::test]
async fn a_run_whose_driver_writes_nothing_is_released_and_driven_again() {
    let engine = engine_with([FakeReply::Text("done")]).with_sim_clock().start();
    engine.store.fail_append("run.prepared", StoreFault::Hang);
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "run.claimed"), 2);
    assert_eq!(count(&journal, "run.recovered"), 1);
    assert_eq!(engine.longhaul.services().counters.stalled_runs(), 1);
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((view.attempt, view.retries.takeovers), (1, 1));
    let silent = journal[2].at.duration_since(journal[1].at);
    assert!(silent >= Millis::from_secs(600), "{silent:?}");
}

#[tokio::test]
async fn a_run_with_a_running_call_is_not_released() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let long = FakeTool::new("long", Pure, &effects)
        .with_timeout(Millis::from_secs(3_600))
        .after_latch(&latch);
    let engine =
        engine_with([FakeReply::call("long", json!({}))]).tools([long]).with_sim_clock().start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let clock = engine.clock.as_ref().unwrap();
    let start = clock.advance(Millis::ZERO);
    // A second run needs the time in which the first one would be released.
    engine.store.fail_append("run.prepared", StoreFault::Hang);
    let other = engine.submit().await;
    engine.advance_until(other, "run.recovered").await;
    assert!(clock.advance(Millis::ZERO).duration_since(start) >= Millis::from_secs(600));
    latch.open();
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.claimed"), 1);
    assert_eq!(engine.longhaul.services().counters.stalled_runs(), 1);
}
