//! Thousands of histories with the real drive, dropped at any wait, and the
//! proof that a broken fence, park or lane would be seen over it too.
//!
//! Never: a lucky seed. A seed that fails prints the command that repeats it.

use futures_util::FutureExt as _;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::{Broken, MemStore};
use longhaul_testkit::sim::Fault;
use longhaul_testkit::sim::fates::{Lived, live_by};

use crate::suite::sim::engine;

/// So many seeds unless `LONGHAUL_DRIVE_SEEDS` says otherwise: the real drive
/// takes its time.
const SEEDS: u64 = 600;

/// Only the drives wait, and they are polled by hand: a history is one poll.
fn lived(seed: u64, broken: Option<Broken>) -> Result<Lived, Fault> {
    let clock = SimClock::new();
    let store = match broken {
        None => MemStore::new(clock.clone()),
        Some(broken) => MemStore::broken(clock.clone(), broken),
    };
    live_by(engine(), seed, &Harness::new(store, clock))
        .now_or_never()
        .expect("the store in memory never waits")
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not `{text}`"))
    })
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "whoever runs one seed wants to see it live"
)]
fn every_history_keeps_every_promise() {
    let one = from_env("LONGHAUL_SEED");
    let seeds = from_env("LONGHAUL_DRIVE_SEEDS").unwrap_or(SEEDS);
    let (from, to) = one.map_or((0, seeds), |seed| (seed, seed + 1));
    let mut sum = Lived::default();
    for seed in from..to {
        match lived(seed, None) {
            Ok(lived) => {
                sum.runs += lived.runs;
                sum.events += lived.events;
                sum.crashes += lived.crashes;
            }
            Err(fault) => panic!(
                "seed {seed}: {fault}\nrepeat it with: LONGHAUL_SEED={seed} cargo test \
                 -p longhaul-engine --test suite simulation::every_history"
            ),
        }
    }
    assert!(sum.runs > 0 && sum.events > 0);
    println!("{} seeds: {sum:?}", to - from);
}

/// How many of the first seeds it takes to see that the store is broken.
fn caught_at(broken: Broken) -> u64 {
    let caught = (0..500).find(|seed| lived(*seed, Some(broken)).is_err());
    caught.unwrap_or_else(|| panic!("{broken:?} was never seen"))
}

#[test]
fn a_fence_that_is_broken_altogether_is_seen() {
    caught_at(Broken::Driver);
}

/// The claim of the next driver is a fact, so one that was overtaken reads it
/// before it can write, and stops also without the fence.
#[test]
fn the_drive_does_not_lean_on_the_fence_alone() {
    for seed in 0..50 {
        let fault = lived(seed, Some(Broken::Fence)).err();
        assert!(fault.is_none(), "seed {seed}: {}", fault.unwrap());
    }
}

#[test]
fn a_broken_park_is_seen() {
    caught_at(Broken::Park);
}

#[test]
fn a_broken_lane_is_seen() {
    caught_at(Broken::LanePromotion);
}
