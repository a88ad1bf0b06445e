//! A driver killed between any two of its steps, over the real store: the same
//! end, whether the store is reaped by a colleague or opened anew.

use longhaul_testkit::sim::kill::kill_after_every_append;
use longhaul_testkit::sim::scenario::recorded_scenarios;
use longhaul_testkit::sim::seeds::{run_seed, run_seed_on};

use crate::suite::harness::{in_file, in_memory};

#[tokio::test]
async fn every_scenario_ends_the_same_after_a_crash_in_memory() {
    for scenario in recorded_scenarios() {
        kill_after_every_append(&scenario, in_memory)
            .await
            .unwrap_or_else(|fault| panic!("{fault}"));
    }
}

#[tokio::test]
async fn every_scenario_ends_the_same_after_a_crash_on_a_file() {
    // Each life waits for the disk some fifty times, so a few scenarios that
    // hold every kind of crash must do.
    let chosen = ["once_in_order", "verified", "approval", "wraps_up"];
    let scenarios =
        recorded_scenarios().into_iter().filter(|scenario| chosen.contains(&scenario.name));
    let mut lives = 0;
    for scenario in scenarios {
        lives += kill_after_every_append(&scenario, in_file)
            .await
            .unwrap_or_else(|fault| panic!("{fault}"));
    }
    assert!(lives > 60, "{lives} lives are too few to prove anything");
}

/// So many whole histories over the real tables: the store in memory of the
/// testkit lives through thousands more.
const SEEDS: u64 = 60;

#[tokio::test]
async fn simulated_histories_satisfy_every_invariant() {
    for seed in 0..SEEDS {
        let lived = run_seed_on(seed, &in_memory().await)
            .await
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        // Two stores that differed anywhere would soon live different histories.
        let other = run_seed(seed, None).await.expect("it holds there too");
        assert_eq!(lived, other, "seed {seed}");
    }
}
