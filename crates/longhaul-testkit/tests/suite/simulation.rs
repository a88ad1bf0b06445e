//! Thousands of histories over the store in memory, and the proof that the
//! checker would see a broken fence, park or lane.
//!
//! Never: a lucky seed. A seed that fails prints the command that repeats it.

use futures_util::FutureExt as _;
use longhaul_testkit::mem_store::BrokenRule;
use longhaul_testkit::sim::SimError;
use longhaul_testkit::sim::seeds::{SimResult, run_seed};

/// So many seeds unless `LONGHAUL_SEEDS` says otherwise.
const SEEDS: u64 = 2_000;

/// A store in memory never waits, so a whole history is one poll.
fn run_seed_blocking(seed: u64, broken: Option<BrokenRule>) -> Result<SimResult, SimError> {
    run_seed(seed, broken).now_or_never().expect("the store in memory never waits")
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")))
}

#[test]
#[expect(clippy::print_stdout, reason = "whoever runs one seed wants to see it live")]
fn every_simulated_history_satisfies_every_invariant() {
    let one = from_env("LONGHAUL_SEED");
    let seeds = from_env("LONGHAUL_SEEDS").unwrap_or(SEEDS);
    let (from, to) = one.map_or((0, seeds), |seed| (seed, seed + 1));
    let mut sum = SimResult::default();
    for seed in from..to {
        match run_seed_blocking(seed, None) {
            Ok(lived) => {
                sum.runs += lived.runs;
                sum.events += lived.events;
                sum.crashes += lived.crashes;
            }
            Err(fault) => panic!(
                "seed {seed}: {fault}\nrepeat it with: LONGHAUL_SEED={seed} cargo test \
                 -p longhaul-testkit --test suite simulation::every_history"
            ),
        }
    }
    assert!(sum.runs > 0 && sum.events > 0);
    println!("{} seeds: {sum:?}", to - from);
}

/// How many of the first seeds it takes to see that the store is broken.
fn caught_at(broken: BrokenRule) -> u64 {
    let caught = (0..500).find(|seed| run_seed_blocking(*seed, Some(broken)).is_err());
    caught.unwrap_or_else(|| panic!("{broken:?} was never seen"))
}

#[test]
fn a_broken_fence_is_detected() {
    caught_at(BrokenRule::Fence);
}

#[test]
fn a_broken_park_is_detected() {
    caught_at(BrokenRule::Park);
}

#[test]
fn a_broken_lane_is_detected() {
    caught_at(BrokenRule::LanePromotion);
}
