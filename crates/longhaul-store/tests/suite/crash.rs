//! Kills a driver between any two steps, on the real store: the result is the same, whether another
//! worker releases the run or the store is opened again.

use longhaul_testkit::sim::kill::kill_after_every_append;
use longhaul_testkit::sim::scenario::recorded_scenarios;
use longhaul_testkit::sim::seeds::{run_seed, run_seed_on};

use crate::suite::harness::{in_file, in_memory};

#[tokio::test]
async fn every_scenario_ends_the_same_after_a_crash_in_memory() {
    for scenario in recorded_scenarios() {
        kill_after_every_append(&scenario, in_memory)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

#[tokio::test]
async fn every_scenario_ends_the_same_after_a_crash_on_a_file() {
    // Each run syncs about fifty times, so only a few scenarios with every kind of crash are
    // used.
    let names = ["once_in_order", "verified", "approval", "wraps_up"];
    let scenarios =
        recorded_scenarios().into_iter().filter(|scenario| names.contains(&scenario.name));
    let mut run_count = 0;
    for scenario in scenarios {
        run_count += kill_after_every_append(&scenario, in_file)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(run_count > 60, "{run_count} simulated runs are too few");
}

/// Number of simulated histories on the real tables. The testkit's in-memory store is tested with
/// thousands more.
const SEEDS: u64 = 60;

#[tokio::test]
async fn simulated_histories_satisfy_every_invariant() {
    for seed in 0..SEEDS {
        let stats = run_seed_on(seed, &in_memory().await)
            .await
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        // If the two stores behaved differently, their histories would soon differ.
        let other =
            run_seed(seed, None).await.expect("the in-memory store keeps the invariants too");
        assert_eq!(stats, other, "seed {seed}");
    }
}
