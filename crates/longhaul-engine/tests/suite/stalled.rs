//! Tests of drivers that stall although their worker is alive.

use std::sync::atomic::Ordering;

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
    let mut engine = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    // The stalled driver has the only permit.
    engine.spawn_worker(|options| options.concurrency = 1);
    engine.store.fail_append("run.prepared", StoreFault::Hang);
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "run.claimed"), 2);
    assert_eq!(count(&journal, "run.recovered"), 1);
    assert_eq!(engine.longhaul.services().counters.stalled_runs.load(Ordering::Relaxed), 1);
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((view.attempt, view.retries.takeovers), (1, 1));
    let elapsed = journal[2].at.duration_since(journal[1].at);
    assert!(elapsed >= Millis::from_secs(600), "{elapsed:?}");
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
    assert_eq!(engine.longhaul.services().counters.stalled_runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_failed_sweep_does_not_restart_the_time_of_a_stalled_driver() {
    let engine = engine_with([FakeReply::Text("done")]).with_sim_clock().start();
    engine.store.fail_append("run.prepared", StoreFault::Hang);
    let run = engine.submit().await;
    let clock = engine.clock.as_ref().unwrap();
    let advance = async |seconds: usize| {
        for _ in 0..seconds {
            clock.advance(Millis::from_secs(1));
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
    };
    advance(400).await;
    engine.store.fail_timer_read(StoreFault::Busy);
    advance(5).await;
    assert!(engine.store.has_failed());
    let journal = engine.advance_until(run, "run.completed").await;
    let elapsed = journal[2].at.duration_since(journal[1].at);
    assert!(elapsed < Millis::from_secs(700), "{elapsed:?}");
}

#[tokio::test]
async fn a_stalled_run_is_released_although_the_journal_of_another_is_unreadable() {
    let engine = engine_with([FakeReply::Text("done")]).with_sim_clock().start();
    let mut runs = Vec::new();
    for _ in 0..2 {
        engine.store.fail_append("run.prepared", StoreFault::Hang);
        let run = engine.submit().await;
        engine.until(run, "run.claimed").await;
        runs.push(run);
    }
    runs.sort_unstable();
    engine.store.fail_reads_of_run(runs[0]);
    let journal = engine.advance_until(runs[1], "run.completed").await;
    assert_eq!(count(&journal, "run.recovered"), 1);
    assert_eq!(engine.longhaul.services().counters.stalled_runs.load(Ordering::Relaxed), 1);
}
