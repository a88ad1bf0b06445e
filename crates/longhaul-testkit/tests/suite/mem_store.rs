//! The store in memory passes the suite, and the suite sees what is broken.

use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::store_conformance;

store_conformance!(in_memory, fresh);

async fn fresh() -> Harness {
    let clock = SimClock::new();
    Harness::new(MemStore::new(clock.clone()), clock)
}
