//! A worker that dies: another one claims its runs after the lease, and each call is handled by its
//! effect class.

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

/// Returns an engine whose only worker died during a call.
async fn crash_during_call(
    class: EffectClass,
    effects: &EffectLog,
) -> (TestEngine, longhaul_core::id::RunId, Latch) {
    let latch = Latch::closed();
    let tool =
        FakeTool::new("act", class, effects).after_latch(&latch).with_in_doubt(InDoubtPolicy::Tell);
    let mut engine = engine_with([FakeReply::call("act", json!({}))]).tools([tool]).build();
    engine.spawn_worker(short_lease);
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.workers.abort_all();
    while engine.workers.join_next().await.is_some() {}
    (engine, run, latch)
}

#[tokio::test]
async fn calls_of_a_dead_worker_are_repeated_or_in_doubt() {
    for (class, call_count, in_doubt_count) in [(Pure, 2, 0), (Keyed, 2, 0), (Once, 1, 1)] {
        let effects = EffectLog::default();
        let (mut engine, run, latch) = crash_during_call(class, &effects).await;
        latch.open();
        engine.spawn_worker(short_lease);
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(count(&journal, "run.recovered"), 1);
        assert_eq!(effects.count("act begins"), call_count, "{class:?}");
        assert_eq!(count(&journal, "tool.in_doubt"), in_doubt_count, "{:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn a_model_call_of_a_dead_worker_is_repeated() {
    let latch = Latch::closed();
    let mut engine = engine_with([FakeReply::Text("never").after_latch(&latch)]).build();
    engine.spawn_worker(short_lease);
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.workers.abort_all();
    while engine.workers.join_next().await.is_some() {}
    engine.spawn_worker(short_lease);
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let requests = engine.model.requests();
    assert_eq!((requests[0].attempt, requests[1].attempt), (1, 2));
    assert_eq!(count(&journal, "turn.failed"), 1, "the first attempt is lost");
}

#[tokio::test]
async fn a_cancel_ends_a_blocked_run_completely() {
    let effects = EffectLog::default();
    let (mut engine, run, _latch) = crash_during_call(Once, &effects).await;
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    *engine.models.missing_message.lock().unwrap() = Some("No model is configured.");
    engine.spawn_worker(short_lease);
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
}

/// Sets a lease that expires when the test advances the clock.
fn limit_crashes(options: &mut longhaul_engine::worker::WorkerOptions) {
    options.lease = Millis::from_secs(15);
}

/// Kills all workers.
async fn crash_worker(engine: &mut TestEngine) {
    engine.workers.abort_all();
    while engine.workers.join_next().await.is_some() {}
}

/// Advances the clock second by second until the runs of the dead workers were claimed again and
/// this number of calls has reached the latch.
async fn wait_and_release(engine: &TestEngine, latch: &Latch, count: usize) {
    let clock = engine.clock.as_ref().unwrap();
    let advance = async {
        while latch.arrivals() < count {
            let reached = tokio::time::timeout(Duration::from_millis(2), latch.reached(count));
            if reached.await.is_err() {
                _ = clock.advance(Millis::from_secs(1));
            }
        }
    };
    let result = tokio::time::timeout(TIMEOUT, advance).await;
    assert!(result.is_ok(), "{} of {count} reached the latch", latch.arrivals());
}

#[tokio::test]
async fn a_run_that_crashes_its_worker_during_setup_is_blocked() {
    let (source, latch) = (FakeToolSource::default(), Latch::closed());
    source.set_tools(Some(vec!["mcp:shop/buy"]));
    source.block_load(&latch);
    let mut engine = engine_with([]).external_tools(&source).with_sim_clock().build();
    let run = engine.submit().await;
    for crashes in 1..=4 {
        engine.spawn_worker(limit_crashes);
        wait_and_release(&engine, &latch, crashes).await;
        crash_worker(&mut engine).await;
    }
    engine.spawn_worker(limit_crashes);
    engine.advance_until(run, "run.blocked").await;
    assert_eq!(latch.arrivals(), 4);
    let question = engine.gate(run).await.spec.ask;
    let reason = "died 4 times in a row at the same point, before its first turn";
    assert!(question.contains(reason), "{question}");
}

#[tokio::test]
async fn runs_that_wait_for_a_trial_leave_their_slots_to_others() {
    let latch = Latch::closed();
    let tool = FakeTool::new("act", Pure, &EffectLog::default()).after_latch(&latch);
    let builder = engine_with([FakeReply::call("act", json!({}))]).tools([tool]);
    let mut engine = builder.with_sim_clock().build();
    let set_options = |options: &mut longhaul_engine::worker::WorkerOptions| {
        limit_crashes(options);
        options.concurrency = 3;
    };
    let [on_trial, cancelled, waiting] =
        [engine.submit().await, engine.submit().await, engine.submit().await];
    for crashes in 1..=2 {
        engine.spawn_worker(set_options);
        wait_and_release(&engine, &latch, crashes * 3).await;
        crash_worker(&mut engine).await;
    }
    engine.spawn_worker(set_options);
    wait_and_release(&engine, &latch, 7).await;
    let new_runs = [engine.submit().await, engine.submit().await];
    latch.reached(9).await;
    // A cancelled run ends without a drive permit.
    let cancel = engine.longhaul.cancel_run(cancelled, "cli:anna", "enough");
    cancel.await.unwrap();
    assert_eq!(outcome_text(&engine.ended(cancelled).await), "run.cancelled");
    assert_eq!(latch.arrivals(), 9, "no other call has started");
    latch.open();
    for run in [on_trial, waiting, new_runs[0], new_runs[1]] {
        assert_eq!(outcome_text(&engine.ended(run).await), "done");
    }
}

#[tokio::test]
async fn a_crash_claims_few_of_the_runs_that_wait_for_a_trial() {
    let latch = Latch::closed();
    let tool = FakeTool::new("act", Pure, &EffectLog::default()).after_latch(&latch);
    let builder = engine_with([FakeReply::call("act", json!({}))]).tools([tool]);
    let mut engine = builder.with_sim_clock().build();
    let mut runs = Vec::new();
    for _ in 0..30 {
        runs.push(engine.submit().await);
    }
    for crashes in 1..=2 {
        engine.spawn_worker(|options| {
            limit_crashes(options);
            options.concurrency = 30;
        });
        wait_and_release(&engine, &latch, crashes * 30).await;
        crash_worker(&mut engine).await;
    }
    engine.spawn_worker(|options| {
        limit_crashes(options);
        options.concurrency = 3;
    });
    wait_and_release(&engine, &latch, 61).await;
    // One run is on trial, two others keep their drive permits, 16 wait without one.
    let claimed = async || {
        let mut count = 0;
        for run in &runs {
            count += usize::from(engine.longhaul.run_row(*run).await.unwrap().epoch.0 == 3);
        }
        count
    };
    while claimed().await < 19 {}
    for _ in 0..20 {
        assert_eq!(claimed().await, 19);
    }
    latch.open();
    for run in runs {
        let journal = engine.advance_until(run, "run.completed").await;
        assert_eq!(count(&journal, "run.claimed"), 3, "{:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn kills_from_outside_do_not_block_the_runs_that_they_hit() {
    let latch = Latch::closed();
    let tool = FakeTool::new("act", Pure, &EffectLog::default()).after_latch(&latch);
    let builder = engine_with([FakeReply::call("act", json!({}))]).tools([tool]);
    let mut engine = builder.with_sim_clock().build();
    let runs = [engine.submit().await, engine.submit().await, engine.submit().await];
    // Two crashes of all runs together, then one of each run alone.
    for arrivals in [3, 6, 7, 8, 9] {
        engine.spawn_worker(limit_crashes);
        wait_and_release(&engine, &latch, arrivals).await;
        crash_worker(&mut engine).await;
    }
    engine.spawn_worker(limit_crashes);
    wait_and_release(&engine, &latch, 10).await;
    latch.open();
    for run in runs {
        let journal = engine.advance_until(run, "run.completed").await;
        assert_eq!(count(&journal, "run.blocked"), 0, "{:?}", kinds(&journal));
    }
}
