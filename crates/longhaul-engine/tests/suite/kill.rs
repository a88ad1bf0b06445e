//! The real drive dropped after any of its polls: the same end.
//!
//! Never: a sample. Every wait is tried.

use futures_util::FutureExt as _;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::kill::kill_after_every_append_with;
use longhaul_testkit::sim::scenario::recorded_scenarios;

use crate::suite::sim::engine_factory;

async fn fresh() -> Harness {
    let clock = SimClock::new();
    Harness::new(MemStore::new(clock.clone()), clock)
}

#[test]
fn a_driver_dropped_at_any_await_does_not_change_the_outcome() {
    let mut lives = 0;
    for scenario in recorded_scenarios() {
        let lived =
            kill_after_every_append_with(&engine_factory(), &scenario, fresh).now_or_never();
        lives += lived
            .expect("the store in memory never waits")
            .unwrap_or_else(|fault| panic!("{fault}"));
    }
    assert!(lives > 400, "{lives} lives are too few to prove anything");
}
