//! The real drive dropped after any of its polls: the same end.
//!
//! Never: a sample. Every wait is tried.

use futures_util::FutureExt as _;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::kill::kill_everywhere;
use longhaul_testkit::sim::scenario::named;

use crate::suite::sim::engine;

async fn fresh() -> Harness {
    let clock = SimClock::new();
    Harness::new(MemStore::new(clock.clone()), clock)
}

#[test]
fn a_drive_dropped_at_any_wait_changes_no_end() {
    let mut lives = 0;
    for scenario in named() {
        let lived = kill_everywhere(&engine(), &scenario, fresh).now_or_never();
        lives += lived
            .expect("the store in memory never waits")
            .unwrap_or_else(|fault| panic!("{fault}"));
    }
    assert!(lives > 400, "{lives} lives are too few to prove anything");
}
