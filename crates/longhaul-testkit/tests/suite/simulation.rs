//! Thousands of simulated histories on the in-memory store, and proof that the checks detect a
//! broken fence, park or lane. A failing seed prints the command that repeats it.

use futures_util::FutureExt as _;
use longhaul_testkit::mem_store::BrokenRule;
use longhaul_testkit::sim::SimError;
use longhaul_testkit::sim::seeds::{SimResult, run_seed};

/// Default number of seeds; `LONGHAUL_SEEDS` overrides it.
const SEEDS: u64 = 600;

/// Simulates one seed. The in-memory store never waits, so a whole history is one poll.
fn run_seed_blocking(seed: u64, broken_rule: Option<BrokenRule>) -> Result<SimResult, SimError> {
    run_seed(seed, broken_rule).now_or_never().expect("the in-memory store never waits")
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`"))
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "prints the summary when a single seed is run")]
fn every_simulated_history_satisfies_every_invariant() {
    let single_seed = from_env("LONGHAUL_SEED");
    let seeds = from_env("LONGHAUL_SEEDS").unwrap_or(SEEDS);
    let (from, to) = single_seed.map_or((0, seeds), |seed| (seed, seed + 1));
    let mut sum = SimResult::default();
    for seed in from..to {
        match run_seed_blocking(seed, None) {
            Ok(result) => {
                sum.runs += result.runs;
                sum.events += result.events;
                sum.crashes += result.crashes;
            }
            Err(error) => panic!(
                "seed {seed}: {error}\nrepeat it with: LONGHAUL_SEED={seed} cargo test \
                 -p longhaul-testkit --test suite simulation::every_history"
            ),
        }
    }
    assert!(sum.runs > 0 && sum.events > 0);
    println!("{} seeds: {sum:?}", to - from);
}

/// Returns the first seed that detects the broken rule.
fn caught_at(broken_rule: BrokenRule) -> u64 {
    let seed = (0..500).find(|seed| run_seed_blocking(*seed, Some(broken_rule)).is_err());
    seed.unwrap_or_else(|| panic!("{broken_rule:?} was never detected"))
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

#[test]
fn a_broken_limit_of_sandboxes_is_detected() {
    caught_at(BrokenRule::SandboxSlot);
}

#[test]
fn a_broken_lane_of_a_chain_is_detected() {
    caught_at(BrokenRule::ChainLane);
}
