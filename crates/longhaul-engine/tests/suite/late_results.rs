//! A driver that has lost its run while a call was under way hands the result
//! in, whatever it has read of the journal meanwhile.

use futures_util::FutureExt as _;
use longhaul_core::id::RunId;
use longhaul_core::policy::Policy;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::ids::SeededIds;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::SimError;
use longhaul_testkit::sim::check::check_lost_results;
use longhaul_testkit::sim::cluster::{Cluster, TTL};
use longhaul_testkit::sim::driver::SimServices;
use longhaul_testkit::sim::external_world::ExternalWorld;
use longhaul_testkit::sim::script::Script;
use longhaul_testkit::sim::{external_actors, scenario};

use crate::suite::sim::engine_factory;

/// Never nudged, one poll a step, and all waits are long.
fn choose_slow(bound: usize) -> usize {
    // In base 3 every digit of it is 2, which is what a double draws.
    if bound > 2_186 { 2_186 } else { 0 }
}

/// Nudged before each step, and polled until it waits.
fn choose_notified(bound: usize) -> usize {
    bound - 1
}

async fn open_run(policy: Policy) -> Result<(Cluster, RunId), SimError> {
    let clock = SimClock::new();
    let harness = Harness::new(MemStore::new(clock.clone()), clock);
    let ports = SimServices {
        store: harness.store,
        records: harness.records,
        auth: harness.auth,
        world: ExternalWorld::default(),
    };
    let ids = SeededIds::new(1);
    let run = ids.run();
    let script =
        Script { turns: vec![vec!["send".into()]], text: "sent".into(), ..Script::default() };
    let task = scenario::task(run, &script, policy)?;
    ports.store.open_runs(engine_factory().open_request(run, task)?).await?;
    let crew =
        Cluster::new(ports, harness.clock, ids, scenario::inbox()?).with_factory(engine_factory());
    Ok((crew, run))
}

/// One worker stands still in the middle of a call, another takes its run as
/// far as it goes, and then the first goes on.
async fn run_overtaken(policy: Policy) -> Result<Vec<&'static str>, SimError> {
    let (mut crew, run) = open_run(policy).await?;
    crew.add_worker().await?;
    while crew.services.world.effects().is_empty() {
        crew.step(0, &mut choose_slow).await?;
    }
    crew.stall(0, Millis(4 * TTL.0));
    crew.add_worker().await?;
    for _ in 0..5 {
        crew.clock.advance(Millis(TTL.0 / 3));
        crew.heartbeat(1).await?;
    }
    while crew.step(1, &mut choose_slow).await? {}
    crew.clock.advance(Millis(4 * TTL.0));
    while crew.step(0, &mut choose_notified).await? {}
    let journal = external_actors::journal(&crew.services, run).await?;
    let kinds = journal.iter().map(|entry| entry.event.kind()).collect();
    check_lost_results(&crew.services, &[(run, journal)]).await?;
    let owed = crew.services.world.expected_results();
    assert_eq!(owed.len(), 1, "the first has ended with a result");
    Ok(kinds)
}

#[test]
fn a_late_result_settles_the_doubt_of_the_current_driver() {
    let kinds = run_overtaken(Policy::default()).now_or_never().unwrap();
    let kinds = kinds.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(kinds.contains(&"tool.surfaced"), "{kinds:?}");
}

#[test]
fn a_result_after_the_end_of_the_run_is_stored_as_late() {
    let policy = Policy { in_doubt: Some(InDoubtPolicy::Tell), ..Policy::default() };
    let kinds = run_overtaken(policy).now_or_never().unwrap();
    let kinds = kinds.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(kinds.last(), Some(&"run.completed"));
}
