//! Tests of a store that fails under a driver: nothing acknowledged is lost, nothing is repeated
//! that must not be, and the run continues.

use longhaul_core::event::steer::SteerDelivery::AfterBatch;
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::effect::InDoubtPolicy;
use serde_json::json;

use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TIMEOUT, TestEngineBuilder, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

const KINDS: [&str; 6] = [
    "run.prepared",
    "turn.started",
    "turn.completed",
    "tool.started",
    "tool.completed",
    "run.completed",
];

fn engine_sending(effects: &EffectLog) -> TestEngineBuilder {
    let tool = FakeTool::new("send", Once, effects).with_in_doubt(InDoubtPolicy::Tell);
    engine_with([FakeReply::call("send", json!({ "text": "hi" }))]).tools([tool])
}

/// Checks a run during which the append of an event of this kind fails.
async fn check_append_fault(kind: &'static str, fault: StoreFault) {
    let effects = EffectLog::default();
    let mut builder = engine_sending(&effects);
    let loses_reply =
        fault == StoreFault::Broken && ["turn.completed", "tool.started"].contains(&kind);
    if loses_reply {
        // The model is called again and gives the same reply.
        builder.replies.extend(builder.replies.clone());
    }
    let engine = builder.with_sim_clock().start();
    engine.store.fail_append(kind, fault);
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    let label = format!("{fault:?} at {kind}: {:?}", kinds(&journal));
    assert!(engine.store.has_failed(), "{label}");
    assert_eq!(outcome_text(&journal), "done", "{label}");
    assert_eq!(effects.count("send begins"), 1, "{label}");
    assert_eq!(count(&journal, "run.completed"), 1, "{label}");
    let is_in_doubt = fault == StoreFault::Broken && kind == "tool.completed";
    assert_eq!(count(&journal, "tool.in_doubt"), usize::from(is_in_doubt), "{label}");
    let claims = if fault == StoreFault::Broken { 2 } else { 1 };
    assert_eq!(count(&journal, "run.claimed"), claims, "{label}");
}

#[tokio::test]
async fn a_transient_store_error_does_not_affect_a_driver() {
    for kind in KINDS {
        for fault in [StoreFault::Busy, StoreFault::Full, StoreFault::Lost] {
            check_append_fault(kind, fault).await;
        }
    }
}

#[tokio::test]
async fn a_run_is_set_aside_after_a_store_error_and_completes_later() {
    for kind in KINDS {
        check_append_fault(kind, StoreFault::Broken).await;
    }
}

#[tokio::test]
async fn a_run_is_set_aside_despite_a_concurrent_write() {
    let effects = EffectLog::default();
    let engine = engine_sending(&effects).with_sim_clock().start();
    engine.store.fail_append("run.completed", StoreFault::Broken);
    engine.store.fail_with_conflicts(3);
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.claimed"), 2, "{:?}", kinds(&journal));
    assert_eq!(effects.count("send begins"), 1);
}

#[tokio::test]
async fn a_busy_store_does_not_cost_a_call_its_result() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let tool = FakeTool::new("send", Once, &effects)
        .after_latch(&latch)
        .with_in_doubt(InDoubtPolicy::Tell);
    let engine = engine_with([FakeReply::call("send", json!({}))]).tools([tool]).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.store.fail_reads(StoreFault::Busy, 2);
    engine.longhaul.steer(run, "hello", AfterBatch, "cli:anna").await.unwrap();
    let failed = async {
        while !engine.store.has_failed() {
            tokio::task::yield_now().await;
        }
    };
    let result = tokio::time::timeout(TIMEOUT, failed).await;
    result.expect("the driver reads the message");
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "tool.in_doubt"), 0, "{:?}", kinds(&journal));
    assert_eq!(effects.all().len(), 2);
    assert_eq!(engine.user_texts().last().unwrap(), "hello");
}

#[tokio::test]
async fn a_claim_that_fails_is_tried_again() {
    // A claim whose response was lost is valid: the run is released and claimed again.
    for (fault, claims) in [(StoreFault::Busy, 1), (StoreFault::Full, 1), (StoreFault::Lost, 2)] {
        let effects = EffectLog::default();
        let mut engine = engine_sending(&effects).with_sim_clock().build();
        engine.store.fail_claim(fault);
        let run = engine.submit().await;
        engine.spawn_worker(|_| {});
        let journal = engine.advance_until(run, "run.completed").await;
        assert!(engine.store.has_failed());
        assert_eq!(effects.count("send begins"), 1, "{fault:?}");
        assert_eq!(count(&journal, "run.claimed"), claims, "{fault:?}");
    }
}

#[tokio::test]
async fn a_worker_stops_with_an_error_if_its_store_is_broken() {
    let mut engine = engine_with([]).build();
    engine.store.fail_claim(StoreFault::Broken);
    engine.submit().await;
    engine.spawn_worker(|_| {});
    let joined = tokio::time::timeout(TIMEOUT, engine.workers.join_next()).await;
    let error = joined.unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(error.code(), "store");
}
