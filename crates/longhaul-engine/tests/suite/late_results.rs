//! A driver that has lost its run during a call still submits the result, whatever it has read of
//! the journal meanwhile.

use futures_util::FutureExt as _;
use longhaul_core::id::RunId;
use longhaul_core::policy::RunPolicy;
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

/// Choices for a driver that is never notified, polled once per step, and slow in every fake.
fn choose_slow(bound: usize) -> usize {
    // All base-3 digits of this number are 2, which is what every fake draws.
    if bound > 2_186 { 2_186 } else { 0 }
}

/// Choices for a driver that is notified before each step and polled until it waits.
fn choose_notified(bound: usize) -> usize {
    bound - 1
}

async fn open_run(policy: RunPolicy) -> Result<(Cluster, RunId), SimError> {
    let clock = SimClock::new();
    let harness = Harness::new(MemStore::new(clock.clone()), clock);
    let services = SimServices {
        store: harness.store,
        records: harness.records,
        auth: harness.auth,
        schedules: harness.schedules,
        world: ExternalWorld::default(),
        caps: Vec::new(),
    };
    let ids = SeededIds::new(1);
    let run = ids.run();
    let script =
        Script { turns: vec![vec!["send".into()]], text: "sent".into(), ..Script::default() };
    let task = scenario::task(run, &script, policy)?;
    services.store.create_runs(engine_factory().open_request(run, task)?).await?;
    let cluster = Cluster::new(services, harness.clock, ids, scenario::inbox()?)
        .with_factory(engine_factory());
    Ok((cluster, run))
}

/// One worker stops in the middle of a call, another drives the run as far as possible, and then
/// the first continues.
async fn run_overtaken(policy: RunPolicy) -> Result<Vec<&'static str>, SimError> {
    let (mut cluster, run) = open_run(policy).await?;
    cluster.add_worker().await?;
    while cluster.services.world.effects().is_empty() {
        cluster.step(0, &mut choose_slow).await?;
    }
    cluster.stall(0, Millis(4 * TTL.0));
    cluster.add_worker().await?;
    for _ in 0..5 {
        cluster.clock.advance(Millis(TTL.0 / 3));
        cluster.heartbeat(1).await?;
    }
    while cluster.step(1, &mut choose_slow).await? {}
    cluster.clock.advance(Millis(4 * TTL.0));
    while cluster.step(0, &mut choose_notified).await? {}
    let journal = external_actors::journal(&cluster.services, run).await?;
    let kinds = journal.iter().map(|entry| entry.event.kind()).collect();
    check_lost_results(&cluster.services, &[(run, journal)]).await?;
    let expected = cluster.services.world.expected_results();
    assert_eq!(expected.len(), 1, "the first driver has ended with a result");
    Ok(kinds)
}

#[test]
fn a_late_result_settles_the_doubt_of_the_current_driver() {
    let kinds = run_overtaken(RunPolicy::default()).now_or_never().unwrap();
    let kinds = kinds.unwrap_or_else(|error| panic!("{error}"));
    assert!(kinds.contains(&"tool.surfaced"), "{kinds:?}");
}

#[test]
fn a_result_after_the_end_of_the_run_is_stored_as_late() {
    let policy = RunPolicy { in_doubt: Some(InDoubtPolicy::Tell), ..RunPolicy::default() };
    let kinds = run_overtaken(policy).now_or_never().unwrap();
    let kinds = kinds.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kinds.last(), Some(&"run.completed"));
}
