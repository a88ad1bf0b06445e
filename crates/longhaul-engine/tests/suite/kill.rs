//! Drops the real driver after each of its polls, one by one, and checks that the run ends in the
//! same way.

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
    let mut run_count = 0;
    for scenario in recorded_scenarios() {
        let result =
            kill_after_every_append_with(&engine_factory(), &scenario, fresh).now_or_never();
        run_count += result
            .expect("the in-memory store never waits")
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(run_count > 400, "{run_count} lives are too few to prove anything");
}
