//! The number of commits per turn is constant: two.

use futures_util::FutureExt as _;
use longhaul_core::policy::RunPolicy;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::kill::{Crash, run_scenario_with};
use longhaul_testkit::sim::scenario::Scenario;
use longhaul_testkit::sim::script::Script;

use crate::suite::sim::engine_factory;

/// Returns the number of commits of a run with this number of turns.
fn commits(turns: usize, tools: &[&str]) -> usize {
    let clock = SimClock::new();
    let harness = Harness::new(MemStore::new(clock.clone()), clock);
    let calls: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
    let script = Script { turns: vec![calls; turns], text: "done".into(), ..Script::default() };
    let policy = RunPolicy::default();
    let scenario = Scenario { name: "many_turns", script, policy };
    let result =
        run_scenario_with(engine_factory(), &harness, &scenario, Crash::None).now_or_never();
    let ended = result.expect("the in-memory store never waits").expect("the run ends");
    ended.commits
}

#[test]
fn a_turn_takes_two_commits() {
    // One more commit prepares the run, and one ends it.
    for turns in [1, 10, 60] {
        assert_eq!(commits(turns, &["put"]), 2 * turns + 2);
        assert_eq!(commits(turns, &["put", "look", "look"]), 2 * turns + 2);
        // The third call has the same rule match text as the first, so it waits for the result of the
        // first.
        assert_eq!(commits(turns, &["put", "look", "put"]), 3 * turns + 2);
    }
}
