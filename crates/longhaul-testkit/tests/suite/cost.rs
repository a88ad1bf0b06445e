//! The cost of a turn does not grow with the run: two commits, and the bytes of its new events.

use futures_util::FutureExt as _;
use longhaul_core::policy::RunPolicy;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::journals::to_lines;
use longhaul_testkit::sim::kill::{Crash, ScenarioResult, run_scenario};
use longhaul_testkit::sim::scenario::Scenario;
use longhaul_testkit::sim::script::Script;

fn run_turns(turns: usize) -> ScenarioResult {
    let clock = SimClock::new();
    let harness = Harness::new(MemStore::new(clock.clone()), clock);
    let script = Script {
        turns: vec![vec!["put".to_owned()]; turns],
        text: "done".into(),
        ..Script::default()
    };
    let policy = RunPolicy::default();
    let scenario = Scenario { name: "many_turns", script, policy };
    let result = run_scenario(&harness, &scenario, Crash::None).now_or_never();
    result.expect("the in-memory store never waits").expect("the run ends")
}

#[test]
fn a_turn_takes_two_commits() {
    // One more commit to prepare the run, and one to end it.
    for turns in [1, 10, 60] {
        assert_eq!(run_turns(turns).commits, 2 * turns + 2);
    }
}

#[test]
fn the_cost_of_a_turn_does_not_grow() {
    let bytes = |turns| {
        let journal = run_turns(turns).journal;
        // The first two events contain the script itself, which lists every turn.
        to_lines(&journal[3..]).expect("the journal can be serialized").len()
    };
    let (short, long) = (bytes(50), bytes(150));
    let ratio = long as f64 / short as f64;
    assert!((2.9..3.1).contains(&ratio), "{short} and {long} bytes: {ratio}");
}
