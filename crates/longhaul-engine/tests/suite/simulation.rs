//! Simulates thousands of histories with the real driver, dropped at any await, and checks that
//! broken fencing, parking or lanes would be detected. A seed that fails prints the command that
//! repeats it.

use futures_util::FutureExt as _;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::{BrokenRule, MemStore};
use longhaul_testkit::sim::SimError;
use longhaul_testkit::sim::seeds::{SimResult, run_seed_with};

use crate::suite::sim::engine_factory;

/// Number of seeds unless `LONGHAUL_DRIVE_SEEDS` is set. The real driver is slow.
const SEEDS: u64 = 150;

/// Only the drivers wait, and they are polled by hand, so a whole history is one poll.
fn run_seed_blocking(seed: u64, broken_rule: Option<BrokenRule>) -> Result<SimResult, SimError> {
    let clock = SimClock::new();
    let store = match broken_rule {
        None => MemStore::new(clock.clone()),
        Some(broken_rule) => MemStore::with_broken_rule(clock.clone(), broken_rule),
    };
    run_seed_with(engine_factory(), seed, &Harness::new(store, clock))
        .now_or_never()
        .expect("the in-memory store never waits")
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`"))
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "shows the result when one seed is run")]
fn every_simulated_history_satisfies_every_invariant() {
    let one = from_env("LONGHAUL_SEED");
    let seeds = from_env("LONGHAUL_DRIVE_SEEDS").unwrap_or(SEEDS);
    let (from, to) = one.map_or((0, seeds), |seed| (seed, seed + 1));
    let mut sum = SimResult::default();
    for seed in from..to {
        match run_seed_blocking(seed, None) {
            Ok(stats) => {
                sum.runs += stats.runs;
                sum.events += stats.events;
                sum.crashes += stats.crashes;
            }
            Err(error) => panic!(
                "seed {seed}: {error}\nrepeat it with: LONGHAUL_SEED={seed} cargo test \
                 -p longhaul-engine --test suite simulation::every_history"
            ),
        }
    }
    assert!(sum.runs > 0 && sum.events > 0);
    println!("{} seeds: {sum:?}", to - from);
}

/// Returns the first seed that detects the broken store.
fn caught_at(broken_rule: BrokenRule) -> u64 {
    let failing_seed = (0..500).find(|seed| run_seed_blocking(*seed, Some(broken_rule)).is_err());
    failing_seed.unwrap_or_else(|| panic!("{broken_rule:?} was never detected"))
}

#[test]
fn a_fully_broken_fence_is_detected() {
    caught_at(BrokenRule::Driver);
}

/// The claim of the next driver is an event, so a replaced driver reads it before it can write, and
/// stops even without fencing.
#[test]
fn drivers_stay_correct_with_a_broken_fence() {
    for seed in 0..50 {
        let error = run_seed_blocking(seed, Some(BrokenRule::Fence)).err();
        assert!(error.is_none(), "seed {seed}: {}", error.unwrap());
    }
}

#[test]
fn a_broken_park_is_detected() {
    caught_at(BrokenRule::Park);
}

#[test]
fn a_broken_lane_is_detected() {
    caught_at(BrokenRule::LanePromotion);
}
