//! A store that fails under a driver: nothing that was acknowledged is lost,
//! nothing that must not be repeated is, and the run goes on.

use longhaul_core::event::steer::Delivery::AfterBatch;
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

fn engine_sending(deeds: &EffectLog) -> TestEngineBuilder {
    let hand = FakeTool::new("send", Once, deeds).with_in_doubt(InDoubtPolicy::Tell);
    engine_with([FakeReply::call("send", json!({ "text": "hi" }))]).tools([hand])
}

/// A run during which the append of such a fact fails so.
async fn check_append_fault(kind: &'static str, fault: StoreFault) {
    let deeds = EffectLog::default();
    let mut plan = engine_sending(&deeds);
    let loses_reply =
        fault == StoreFault::Broken && ["turn.completed", "tool.started"].contains(&kind);
    if loses_reply {
        // The model is asked again and says the same.
        plan.replies.extend(plan.replies.clone());
    }
    let house = plan.with_sim_clock().start();
    house.store.fail_append(kind, fault);
    let run = house.submit().await;
    let journal = house.advance_until(run, "run.completed").await;
    let what = format!("{fault:?} at {kind}: {:?}", kinds(&journal));
    assert!(house.store.has_failed(), "{what}");
    assert_eq!(outcome_text(&journal), "done", "{what}");
    assert_eq!(deeds.count("send begins"), 1, "{what}");
    assert_eq!(count(&journal, "run.completed"), 1, "{what}");
    let lost = fault == StoreFault::Broken && kind == "tool.completed";
    assert_eq!(count(&journal, "tool.in_doubt"), usize::from(lost), "{what}");
    let claims = if fault == StoreFault::Broken { 2 } else { 1 };
    assert_eq!(count(&journal, "run.claimed"), claims, "{what}");
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
    let deeds = EffectLog::default();
    let house = engine_sending(&deeds).with_sim_clock().start();
    house.store.fail_append("run.completed", StoreFault::Broken);
    house.store.fail_with_conflicts(3);
    let run = house.submit().await;
    let journal = house.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.claimed"), 2, "{:?}", kinds(&journal));
    assert_eq!(deeds.count("send begins"), 1);
}

#[tokio::test]
async fn a_busy_store_does_not_cost_a_call_its_result() {
    let (deeds, door) = (EffectLog::default(), Latch::new());
    let hand =
        FakeTool::new("send", Once, &deeds).after_latch(&door).with_in_doubt(InDoubtPolicy::Tell);
    let house = engine_with([FakeReply::call("send", json!({}))]).tools([hand]).start();
    let run = house.submit().await;
    door.reached(1).await;
    house.store.fail_reads(StoreFault::Busy, 2);
    house.longhaul.steer(run, "hello", AfterBatch, "cli:anna").await.unwrap();
    let failed = async {
        while !house.store.has_failed() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, failed).await;
    waited.expect("the driver reads what was said");
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "tool.in_doubt"), 0, "{:?}", kinds(&journal));
    assert_eq!(deeds.all().len(), 2);
    assert_eq!(house.user_texts().last().unwrap(), "hello");
}

#[tokio::test]
async fn a_claim_that_fails_is_tried_again() {
    // A claim whose answer was lost stands: the run is given back and claimed anew.
    for (fault, claims) in [(StoreFault::Busy, 1), (StoreFault::Full, 1), (StoreFault::Lost, 2)] {
        let deeds = EffectLog::default();
        let mut house = engine_sending(&deeds).with_sim_clock().build();
        house.store.fail_claim(fault);
        let run = house.submit().await;
        house.spawn_worker(|_| {});
        let journal = house.advance_until(run, "run.completed").await;
        assert!(house.store.has_failed());
        assert_eq!(deeds.count("send begins"), 1, "{fault:?}");
        assert_eq!(count(&journal, "run.claimed"), claims, "{fault:?}");
    }
}

#[tokio::test]
async fn a_worker_stops_with_an_error_if_its_store_is_broken() {
    let mut house = engine_with([]).build();
    house.store.fail_claim(StoreFault::Broken);
    house.submit().await;
    house.spawn_worker(|_| {});
    let gone = tokio::time::timeout(TIMEOUT, house.workers.join_next()).await;
    let fault = gone.unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(fault.code(), "store");
}
