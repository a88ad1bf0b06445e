//! The in-memory store passes the conformance suite, and the suite detects broken rules.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{Epoch, RunId, WorkerId};
use longhaul_core::port::store::AppendResult;
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::conformance::store::batches::{
    end_batch, events_batch, park_batch, progress, resumed,
};
use longhaul_testkit::conformance::store::fixture::{ClaimedRun, StoreFixture, TTL};
use longhaul_testkit::conformance::store::{CHECKS, run_check};
use longhaul_testkit::faulty_store::FaultyStore;
use longhaul_testkit::mem_store::{BrokenRule, MemStore};
use longhaul_testkit::store_conformance;

store_conformance!(in_memory, fresh);

async fn fresh() -> Harness {
    let clock = SimClock::new();
    Harness::new(MemStore::new(clock.clone()), clock)
}

/// Each broken rule is detected at least by these checks. Races may detect them too, but not
/// reliably, so they are left out.
#[test]
fn the_conformance_suite_detects_every_broken_rule() {
    let expected: [(BrokenRule, &[&str]); 3] = [
        (
            BrokenRule::Fence,
            &[
                "fence::a_driver_that_lost_its_run_is_fenced",
                "fence::the_epoch_fences_not_the_worker_id",
                "reap::runs_of_a_silent_worker_are_released",
            ],
        ),
        (
            BrokenRule::Park,
            &[
                "fence::a_driver_append_needs_the_last_seq",
                "fence::a_retry_with_other_events_conflicts",
            ],
        ),
        (
            BrokenRule::LanePromotion,
            &[
                "lane::a_lane_runs_serially_and_in_order",
                "lane::a_paused_run_keeps_its_lane_position",
                "lane::a_run_that_released_its_lane_promotes_nobody_at_its_end",
            ],
        ),
    ];
    for (broken_rule, names) in expected {
        let failing = failing(broken_rule);
        let missed: Vec<_> = names.iter().filter(|name| !failing.contains(*name)).collect();
        assert!(missed.is_empty(), "{broken_rule:?} was not detected by {missed:?}");
        let is_specific = failing.len() < CHECKS.len() / 4;
        assert!(is_specific, "{broken_rule:?} breaks more than one rule: {failing:?}");
    }
}

fn failing(broken_rule: BrokenRule) -> BTreeSet<&'static str> {
    let deterministic = CHECKS.iter().filter(|(name, _)| !name.contains("race::"));
    let failing = deterministic.filter(|(_, check)| {
        let new_harness = move || async move {
            let clock = SimClock::new();
            Harness::new(MemStore::with_broken_rule(clock.clone(), broken_rule), clock)
        };
        catch_unwind(AssertUnwindSafe(|| run_check(new_harness, *check))).is_err()
    });
    failing.map(|(name, _)| *name).collect()
}

/// Every check must be in the list, otherwise it is never run.
#[test]
fn every_conformance_check_is_listed() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance/store");
    let mut defined = BTreeSet::new();
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let group = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for function in text.split("\npub async fn ").skip(1) {
            let (name, rest) = function.split_once('(').unwrap();
            let arguments = rest.split(')').next().unwrap().trim().trim_end_matches(',');
            if arguments.ends_with(": StoreFixture") && !arguments.contains(',') {
                defined.insert(format!("{group}::{name}"));
            }
        }
    }
    let listed: BTreeSet<String> = CHECKS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(defined, listed);
}

/// Three workers, one of which crashes at every eighth step, complete sixty runs of four lanes.
/// Two executions give the same journals.
#[tokio::test]
async fn three_workers_complete_every_run() {
    let first = run_workload().await;
    assert_eq!(first.len(), 60);
    for (run, entries) in &first {
        let is_gapless = entries.iter().zip(1..).all(|(entry, seq)| entry.seq.0 == seq);
        assert!(is_gapless, "{run}");
        assert!(entries.is_sorted_by_key(|entry| entry.epoch), "{run}");
        let ends = entries.iter().filter(|entry| entry.event.is_terminal());
        assert_eq!(ends.count(), 1, "{run}");
        let mut claims: BTreeMap<Epoch, WorkerId> = BTreeMap::new();
        for entry in entries {
            if let Event::RunClaimed(claim) = &entry.event {
                assert_eq!(claims.insert(claim.epoch, claim.worker), None, "{run}");
            }
        }
    }
    let taken_over = first.iter().filter(|(_, entries)| entries.last().unwrap().epoch > Epoch(2));
    assert!(taken_over.count() > 0, "no run of a dead worker was taken over");
    assert_eq!(run_workload().await, first);
}

async fn run_workload() -> Vec<(RunId, Vec<JournalEntry>)> {
    let clock = SimClock::new();
    let store = MemStore::new(clock.clone());
    let fixture = StoreFixture::new(Harness::new(store.clone(), clock));
    for number in 0..60 {
        fixture.open_in_lane(&format!("lane{}", number % 4), 1).await;
    }
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(fixture.worker().await);
    }
    for step in 1..=2_000 {
        let index = step % workers.len();
        fixture.advance(Millis(TTL.0 / 20));
        for worker in &workers {
            fixture.heartbeat(*worker).await;
        }
        let Some(claimed_run) = fixture.try_claim_one(workers[index]).await else {
            continue;
        };
        if step.is_multiple_of(8) {
            // The worker crashes while it drives the run; its late append is rejected.
            workers[index] = fixture.worker().await;
            continue;
        }
        run_to_end(&fixture, claimed_run).await;
    }
    fixture.assert_consistent().await;
    assert!(store.heads().iter().all(|head| head.state == "ended"));
    assert!(store.lane_members().iter().all(|lane| lane.members.is_empty()));
    store.journals().unwrap()
}

/// Parks a run the first time and ends it the second time.
async fn run_to_end(fixture: &StoreFixture, mut claimed_run: ClaimedRun) {
    claimed_run.append_ok(events_batch([progress(50)])).await;
    let has_waited = fixture.kinds(claimed_run.run).await.contains(&"run.waiting");
    if has_waited {
        claimed_run.append_ok(end_batch()).await;
    } else {
        claimed_run.append_ok(park_batch("child")).await;
        fixture.append_outside(claimed_run.run, events_batch([resumed()])).await;
    }
}

/// An append that is retried until its response arrives writes each event once, whichever
/// responses are lost.
#[tokio::test]
async fn appends_can_be_retried_until_acknowledged() {
    for pattern in 0..64 {
        let clock = SimClock::new();
        let store = MemStore::new(clock.clone());
        let fixture = StoreFixture::new(Harness::new(store.clone(), clock));
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        let faulty = FaultyStore::new(Arc::new(store));
        faulty.lose_answers(pattern);
        let faulty_fixture = StoreFixture {
            harness: Harness { store: Arc::new(faulty), ..fixture.harness.clone() },
            ..fixture.clone()
        };
        for batch in
            [events_batch([progress(1), progress(2)]), events_batch([progress(3)]), end_batch()]
        {
            let appended = loop {
                let append = longhaul_core::port::store::AppendRequest {
                    run: claimed_run.run,
                    author: claimed_run.author(),
                    batch: batch.clone(),
                };
                if let Ok(appended) = faulty_fixture.harness.store.append_to_journal(append).await {
                    break appended;
                }
            };
            let AppendResult::Committed { seq, .. } = appended else {
                panic!("{appended:?} under {pattern:b}");
            };
            claimed_run.last = seq;
        }
        let kinds =
            ["progress.reported", "progress.reported", "progress.reported", "run.completed"];
        assert_eq!(fixture.kinds(claimed_run.run).await[2..], kinds, "{pattern:b}");
    }
}
