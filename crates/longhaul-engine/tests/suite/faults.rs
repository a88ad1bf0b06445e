//! A store that fails under a driver: nothing that was acknowledged is lost,
//! nothing that must not be repeated is, and the run goes on.

use longhaul_core::event::steer::Delivery::AfterBatch;
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::effect::InDoubt;
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::shaky::Fault;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{PATIENCE, Plan, count, end, kinds, plan};
use longhaul_testkit::door::Door;

const KINDS: [&str; 6] = [
    "run.perceived",
    "turn.started",
    "turn.completed",
    "tool.started",
    "tool.completed",
    "run.completed",
];

fn sending(deeds: &Deeds) -> Plan {
    let hand = Hand::new("send", Once, deeds).in_doubt(InDoubt::Tell);
    plan([Line::call("send", json!({ "text": "hi" }))]).hands([hand])
}

/// A run during which the append of such a fact fails so.
async fn failing(kind: &'static str, fault: Fault) {
    let deeds = Deeds::default();
    let mut plan = sending(&deeds);
    let loses_reply = fault == Fault::Broken && ["turn.completed", "tool.started"].contains(&kind);
    if loses_reply {
        // The model is asked again and says the same.
        plan.lines.extend(plan.lines.clone());
    }
    let house = plan.at_standing_clock().at_work();
    house.store.fail_append(kind, fault);
    let run = house.submit().await;
    let journal = house.pass_until(run, "run.completed").await;
    let what = format!("{fault:?} at {kind}: {:?}", kinds(&journal));
    assert!(house.store.has_failed(), "{what}");
    assert_eq!(end(&journal), "done", "{what}");
    assert_eq!(deeds.count("send begins"), 1, "{what}");
    assert_eq!(count(&journal, "run.completed"), 1, "{what}");
    let lost = fault == Fault::Broken && kind == "tool.completed";
    assert_eq!(
        count(&journal, "tool.in_doubt"),
        usize::from(lost),
        "{what}"
    );
    let claims = if fault == Fault::Broken { 2 } else { 1 };
    assert_eq!(count(&journal, "run.claimed"), claims, "{what}");
}

#[tokio::test]
async fn a_store_that_gets_over_it_costs_a_driver_nothing() {
    for kind in KINDS {
        for fault in [Fault::Busy, Fault::Full, Fault::Lost] {
            failing(kind, fault).await;
        }
    }
}

#[tokio::test]
async fn a_run_whose_driver_met_a_fault_is_set_aside_and_completes_later() {
    for kind in KINDS {
        failing(kind, Fault::Broken).await;
    }
}

#[tokio::test]
async fn a_run_is_set_aside_also_when_somebody_writes_to_it_just_then() {
    let deeds = Deeds::default();
    let house = sending(&deeds).at_standing_clock().at_work();
    house.store.fail_append("run.completed", Fault::Broken);
    house.store.crowd(3);
    let run = house.submit().await;
    let journal = house.pass_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.claimed"), 2, "{:?}", kinds(&journal));
    assert_eq!(deeds.count("send begins"), 1);
}

#[tokio::test]
async fn a_busy_store_does_not_cost_a_call_its_result() {
    let (deeds, door) = (Deeds::default(), Door::shut());
    let hand = Hand::new("send", Once, &deeds)
        .behind(&door)
        .in_doubt(InDoubt::Tell);
    let house = plan([Line::call("send", json!({}))])
        .hands([hand])
        .at_work();
    let run = house.submit().await;
    door.reached(1).await;
    house.store.fail_reads(Fault::Busy, 2);
    house
        .longhaul
        .steer(run, "hello", AfterBatch, "cli:anna")
        .await
        .unwrap();
    let failed = async {
        while !house.store.has_failed() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, failed).await;
    waited.expect("the driver reads what was said");
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "tool.in_doubt"), 0, "{:?}", kinds(&journal));
    assert_eq!(deeds.all().len(), 2);
    assert_eq!(house.heard().last().unwrap(), "hello");
}

#[tokio::test]
async fn a_claim_that_fails_is_tried_again() {
    // A claim whose answer was lost stands: the run is given back and claimed anew.
    for (fault, claims) in [(Fault::Busy, 1), (Fault::Full, 1), (Fault::Lost, 2)] {
        let deeds = Deeds::default();
        let mut house = sending(&deeds).at_standing_clock().open();
        house.store.fail_claim(fault);
        let run = house.submit().await;
        house.hire(|_| {});
        let journal = house.pass_until(run, "run.completed").await;
        assert!(house.store.has_failed());
        assert_eq!(deeds.count("send begins"), 1, "{fault:?}");
        assert_eq!(count(&journal, "run.claimed"), claims, "{fault:?}");
    }
}

#[tokio::test]
async fn a_worker_whose_store_is_broken_says_so_and_goes_home() {
    let mut house = plan([]).open();
    house.store.fail_claim(Fault::Broken);
    house.submit().await;
    house.hire(|_| {});
    let gone = tokio::time::timeout(PATIENCE, house.workers.join_next()).await;
    let fault = gone.unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(fault.code(), "store");
}
