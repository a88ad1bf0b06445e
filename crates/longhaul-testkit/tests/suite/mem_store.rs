//! The store in memory passes the suite, and the suite sees what is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{Epoch, RunId, WorkerId};
use longhaul_core::port::store::Appended;
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::conformance::store::facts::{ends, parks, progress, resumed, says};
use longhaul_testkit::conformance::store::kit::{Held, TTL, World};
use longhaul_testkit::conformance::store::{CHECKS, look};
use longhaul_testkit::faulty_store::FaultyStore;
use longhaul_testkit::mem_store::{Broken, MemStore};
use longhaul_testkit::store_conformance;

store_conformance!(in_memory, fresh);

async fn fresh() -> Harness {
    let clock = SimClock::new();
    Harness::new(MemStore::new(clock.clone()), clock)
}

/// Each broken rule is seen by these checks at least. The races see them too,
/// but by luck, so they are left out.
#[test]
fn the_suite_sees_every_rule_that_is_broken() {
    let expected: [(Broken, &[&str]); 3] = [
        (
            Broken::Fence,
            &[
                "fence::a_driver_that_lost_its_run_is_fenced",
                "fence::a_worker_s_name_is_no_fence",
                "reap::the_runs_of_a_silent_worker_are_freed",
            ],
        ),
        (
            Broken::Park,
            &[
                "fence::a_driver_must_have_read_everything",
                "fence::a_repeat_with_other_facts_is_none",
            ],
        ),
        (
            Broken::LanePromotion,
            &[
                "lane::a_lane_goes_one_by_one_and_in_order",
                "lane::a_paused_run_keeps_its_place",
                "lane::a_run_that_ends_outside_its_lane_frees_nothing",
            ],
        ),
    ];
    for (broken, names) in expected {
        let failing = failing(broken);
        let missed: Vec<_> = names
            .iter()
            .filter(|name| !failing.contains(*name))
            .collect();
        assert!(missed.is_empty(), "{broken:?} was not seen by {missed:?}");
        let about = failing.len() < CHECKS.len() / 4;
        assert!(about, "{broken:?} breaks more than one rule: {failing:?}");
    }
}

fn failing(broken: Broken) -> BTreeSet<&'static str> {
    let quiet = CHECKS.iter().filter(|(name, _)| !name.contains("race::"));
    let failing = quiet.filter(|(_, check)| {
        let fresh = move || async move {
            let clock = SimClock::new();
            Harness::new(MemStore::broken(clock.clone(), broken), clock)
        };
        catch_unwind(AssertUnwindSafe(|| look(fresh, *check))).is_err()
    });
    failing.map(|(name, _)| *name).collect()
}

/// A check that stands in no list is run by nobody.
#[test]
fn no_check_is_forgotten() {
    let rooms = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance/store");
    let mut written = BTreeSet::new();
    for file in std::fs::read_dir(rooms).unwrap() {
        let path = file.unwrap().path();
        let room = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let name = line
                .strip_prefix("pub async fn ")
                .and_then(|rest| rest.strip_suffix("(world: World) {"));
            written.extend(name.map(|name| format!("{room}::{name}")));
        }
    }
    let listed: BTreeSet<String> = CHECKS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(written, listed);
}

/// Three workers, of whom one dies at every eighth step, see sixty runs of
/// four lanes through, and the journals say so. Twice the same.
#[tokio::test]
async fn three_workers_see_every_run_through() {
    let first = lives().await;
    assert_eq!(first.len(), 60);
    for (run, entries) in &first {
        let gapless = entries
            .iter()
            .zip(1..)
            .all(|(entry, seq)| entry.seq.0 == seq);
        assert!(gapless, "{run}");
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
    let deaths = first
        .iter()
        .filter(|(_, entries)| entries.last().unwrap().epoch > Epoch(2));
    assert!(deaths.count() > 0, "nobody took a dead worker's run over");
    assert_eq!(lives().await, first);
}

async fn lives() -> Vec<(RunId, Vec<Entry>)> {
    let clock = SimClock::new();
    let store = MemStore::new(clock.clone());
    let world = World::new(Harness::new(store.clone(), clock));
    for number in 0..60 {
        world.open_in_lane(&format!("lane{}", number % 4), 1).await;
    }
    let mut crew = Vec::new();
    for _ in 0..3 {
        crew.push(world.worker().await);
    }
    for step in 1..=2_000 {
        let place = step % crew.len();
        world.pass(Millis(TTL.0 / 20));
        for worker in &crew {
            world.beat(*worker).await;
        }
        let Some(held) = world.try_take(crew[place]).await else {
            continue;
        };
        if step.is_multiple_of(8) {
            // The worker dies with the run in its hands; its late word is not heard.
            crew[place] = world.worker().await;
            continue;
        }
        live(&world, held).await;
    }
    world.is_in_order().await;
    assert!(store.heads().iter().all(|head| head.state == "ended"));
    assert!(
        store
            .lane_members()
            .iter()
            .all(|lane| lane.members.is_empty())
    );
    store.journals().unwrap()
}

/// The first time a run rests, the second time it ends.
async fn live(world: &World, mut held: Held) {
    held.write(says([progress(50)])).await;
    let has_rested = world.kinds(held.run).await.contains(&"run.waiting");
    if has_rested {
        held.write(ends()).await;
    } else {
        held.write(parks("child")).await;
        world.tell(held.run, says([resumed()])).await;
    }
}

/// Whoever repeats an append until it hears an answer writes each fact once,
/// whichever answers were lost.
#[tokio::test]
async fn appends_can_be_repeated_until_they_are_heard() {
    for pattern in 0..64 {
        let clock = SimClock::new();
        let store = MemStore::new(clock.clone());
        let world = World::new(Harness::new(store.clone(), clock));
        let mut held = world.held(|_| {}).await;
        let faulty = FaultyStore::new(Arc::new(store));
        faulty.lose(pattern);
        let through = World {
            at: Harness {
                store: Arc::new(faulty),
                ..world.at.clone()
            },
            ..world.clone()
        };
        for batch in [
            says([progress(1), progress(2)]),
            says([progress(3)]),
            ends(),
        ] {
            let said = loop {
                let append = longhaul_core::port::store::Append {
                    run: held.run,
                    author: held.author(),
                    batch: batch.clone(),
                };
                if let Ok(said) = through.at.store.append(append).await {
                    break said;
                }
            };
            let Appended::At { seq, .. } = said else {
                panic!("{said:?} under {pattern:b}");
            };
            held.last = seq;
        }
        let facts = [
            "progress.reported",
            "progress.reported",
            "progress.reported",
            "run.completed",
        ];
        assert_eq!(world.kinds(held.run).await[2..], facts, "{pattern:b}");
    }
}
