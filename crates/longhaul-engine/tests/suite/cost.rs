//! What a turn costs does not grow with the run: two commits.

use futures_util::FutureExt as _;
use longhaul_core::policy::Policy;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::kill::{Crash, run_scenario_with};
use longhaul_testkit::sim::scenario::Scenario;
use longhaul_testkit::sim::script::Script;

use crate::suite::sim::engine_factory;

/// How many commits a run of so many turns takes.
fn commits(turns: usize, tools: &[&str]) -> usize {
    let clock = SimClock::new();
    let harness = Harness::new(MemStore::new(clock.clone()), clock);
    let calls: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
    let script = Script { turns: vec![calls; turns], text: "done".into(), ..Script::default() };
    let policy = Policy::default();
    let scenario = Scenario { name: "many_turns", script, policy };
    let played =
        run_scenario_with(engine_factory(), &harness, &scenario, Crash::None).now_or_never();
    let ended = played.expect("the store in memory never waits").expect("it ends");
    ended.commits
}

#[test]
fn a_turn_takes_two_commits() {
    // One more to look at the world, and one to end.
    for turns in [1, 10, 60] {
        assert_eq!(commits(turns, &["put"]), 2 * turns + 2);
        assert_eq!(commits(turns, &["put", "look", "look"]), 2 * turns + 2);
        // The second changes what the first one does, and waits for its result.
        assert_eq!(commits(turns, &["put", "look", "put"]), 3 * turns + 2);
    }
}
