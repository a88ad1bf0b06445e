//! Killed between any two steps, and at every prefix of every recorded journal:
//! the same end.
//!
//! Never: a sample. Every point is tried.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_run::Run;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::check::{SimHistory, check};
use longhaul_testkit::sim::journals::{from_lines, load, to_lines};
use longhaul_testkit::sim::kill::kill_after_every_append;
use longhaul_testkit::sim::scenario::recorded_scenarios;
use longhaul_testkit::sim::single_run::SingleRun;

async fn fresh() -> Harness {
    let clock = SimClock::new();
    Harness::new(MemStore::new(clock.clone()), clock)
}

#[test]
fn a_driver_killed_between_any_two_steps_does_not_change_the_outcome() {
    let mut lives = 0;
    for scenario in recorded_scenarios() {
        let lived = kill_after_every_append(&scenario, fresh).now_or_never();
        lives += lived
            .expect("the store in memory never waits")
            .unwrap_or_else(|fault| panic!("{fault}"));
    }
    assert!(lives > 200, "{lives} lives are too few to prove anything");
}

fn recorded() -> Vec<(String, Vec<Entry>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/journals");
    let formats = std::fs::read_dir(&folder).expect("recorded journals");
    let mut all = Vec::new();
    for format in formats {
        let path = format.expect("a folder for each format").path();
        all.extend(load(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display())));
    }
    assert!(all.len() >= 30, "only {} recorded journals", all.len());
    all
}

#[test]
fn every_recorded_journal_folds_and_keeps_the_invariants() {
    for (name, journal) in recorded() {
        let run = Run::replay(&journal).unwrap_or_else(|misfit| panic!("{name}: {misfit}"));
        assert!(run.outcome().is_some(), "{name} has ended");
        let seen = SimHistory {
            journals: vec![(run.id(), journal)],
            effects: Vec::new(),
            model_calls: Vec::new(),
        };
        check(&seen).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    }
}

#[test]
fn every_prefix_of_every_recorded_journal_reaches_the_same_outcome() {
    for (name, journal) in recorded() {
        let whole = Run::replay(&journal).expect("it folds");
        for cut in 1..=journal.len() {
            let lone = SingleRun::resume(&journal[..cut]).expect("every prefix folds");
            let (outcome, _) =
                lone.finish().unwrap_or_else(|fault| panic!("{name} cut at {cut}: {fault}"));
            assert_eq!(Some(&outcome), whole.outcome(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn recorded_journals_round_trip() {
    for (name, journal) in recorded() {
        let text = to_lines(&journal).expect("it can be written");
        assert_eq!(from_lines(&text).expect("it can be read"), journal, "{name}");
    }
}

#[test]
fn the_recorded_journals_hold_every_kind_of_crash() {
    let all: Vec<Event> =
        recorded().into_iter().flat_map(|(_, journal)| journal).map(|entry| entry.event).collect();
    for kind in [
        "run.recovered",
        "tool.in_doubt",
        "tool.verified",
        "turn.failed",
        "gate.answered",
        "timer.fired",
        "budget.reached",
        "budget.warned",
    ] {
        assert!(all.iter().any(|event| event.kind() == kind), "no {kind} was recorded");
    }
}
