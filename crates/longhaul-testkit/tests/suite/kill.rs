//! A driver that is killed between any two steps, and a run that is continued from any prefix
//! of any recorded journal, have the same outcome.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
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
    let mut runs = 0;
    for scenario in recorded_scenarios() {
        let outcome = kill_after_every_append(&scenario, fresh).now_or_never();
        runs += outcome
            .expect("the in-memory store never waits")
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(runs > 200, "only {runs} executions");
}

fn recorded() -> Vec<(String, Vec<JournalEntry>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/journals");
    let formats = std::fs::read_dir(&folder).expect("recorded journals");
    let mut all = Vec::new();
    for format in formats {
        let path = format.expect("a directory per format").path();
        all.extend(load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    assert!(all.len() >= 30, "only {} recorded journals", all.len());
    all
}

#[test]
fn every_recorded_journal_folds_and_keeps_the_invariants() {
    for (name, journal) in recorded() {
        let run = Run::replay(&journal).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(run.outcome().is_some(), "{name} must have ended");
        let history = SimHistory {
            journals: vec![(run.id(), journal)],
            effects: Vec::new(),
            model_calls: Vec::new(),
        };
        check(&history).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_prefix_of_every_recorded_journal_reaches_the_same_outcome() {
    for (name, journal) in recorded() {
        let full_run = Run::replay(&journal).expect("the journal can be replayed");
        for prefix_len in 1..=journal.len() {
            let single_run =
                SingleRun::resume(&journal[..prefix_len]).expect("every prefix can be replayed");
            let (outcome, _) = single_run
                .finish()
                .unwrap_or_else(|error| panic!("{name} cut at {prefix_len}: {error}"));
            assert_eq!(Some(&outcome), full_run.outcome(), "{name} cut at {prefix_len}");
        }
    }
}

#[test]
fn recorded_journals_round_trip() {
    for (name, journal) in recorded() {
        let text = to_lines(&journal).expect("the journal can be serialized");
        assert_eq!(from_lines(&text).expect("the journal can be parsed"), journal, "{name}");
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
