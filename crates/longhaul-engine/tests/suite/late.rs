//! A driver that has lost its run while a call was under way hands the result
//! in, whatever it has read of the journal meanwhile.

use futures_util::FutureExt as _;
use longhaul_core::id::RunId;
use longhaul_core::policy::Policy;
use longhaul_core::policy::effect::InDoubt;
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::ids::Ids;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::Fault;
use longhaul_testkit::sim::check::check_debts;
use longhaul_testkit::sim::driver::Ports;
use longhaul_testkit::sim::outside::Outside;
use longhaul_testkit::sim::script::Script;
use longhaul_testkit::sim::shepherd::{Crew, TTL};
use longhaul_testkit::sim::{people, scenario};

use crate::suite::sim::engine;

/// Never nudged, one poll a step, and all waits are long.
fn slow(bound: usize) -> usize {
    // In base 3 every digit of it is 2, which is what a double draws.
    if bound > 2_186 { 2_186 } else { 0 }
}

/// Nudged before each step, and polled until it waits.
fn nudged(bound: usize) -> usize {
    bound - 1
}

async fn opened(policy: Policy) -> Result<(Crew, RunId), Fault> {
    let clock = SimClock::new();
    let harness = Harness::new(MemStore::new(clock.clone()), clock);
    let ports = Ports {
        store: harness.store,
        shelves: harness.shelves,
        keyring: harness.keyring,
        outside: Outside::default(),
    };
    let ids = Ids::new(1);
    let run = ids.run();
    let script = Script {
        turns: vec![vec!["send".into()]],
        text: "sent".into(),
        ..Script::default()
    };
    let task = scenario::task(run, &script, policy)?;
    ports.store.open(engine().opening(run, task)?).await?;
    let crew = Crew::new(ports, harness.clock, ids, scenario::inbox()?).of(engine());
    Ok((crew, run))
}

/// One worker stands still in the middle of a call, another takes its run as
/// far as it goes, and then the first goes on.
async fn overtaken(policy: Policy) -> Result<Vec<&'static str>, Fault> {
    let (mut crew, run) = opened(policy).await?;
    crew.hire().await?;
    while crew.ports.outside.deeds().is_empty() {
        crew.step(0, &mut slow).await?;
    }
    crew.stall(0, Millis(4 * TTL.0));
    crew.hire().await?;
    for _ in 0..5 {
        crew.clock.advance(Millis(TTL.0 / 3));
        crew.beat(1).await?;
    }
    while crew.step(1, &mut slow).await? {}
    crew.clock.advance(Millis(4 * TTL.0));
    while crew.step(0, &mut nudged).await? {}
    let journal = people::journal(&crew.ports, run).await?;
    let kinds = journal.iter().map(|entry| entry.event.kind()).collect();
    check_debts(&crew.ports, &[(run, journal)]).await?;
    let owed = crew.ports.outside.owed();
    assert_eq!(owed.len(), 1, "the first has ended with a result");
    Ok(kinds)
}

#[test]
fn a_result_settles_the_doubt_of_whoever_has_the_run_now() {
    let kinds = overtaken(Policy::default()).now_or_never().unwrap();
    let kinds = kinds.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(kinds.contains(&"tool.surfaced"), "{kinds:?}");
}

#[test]
fn a_result_that_comes_after_the_end_is_kept_beside_the_journal() {
    let policy = Policy {
        in_doubt: Some(InDoubt::Tell),
        ..Policy::default()
    };
    let kinds = overtaken(policy).now_or_never().unwrap();
    let kinds = kinds.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(kinds.last(), Some(&"run.completed"));
}
