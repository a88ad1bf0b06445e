//! The order of writing over all journals: read on, in pages, and never doubled.
//!
//! Never: what a fact does; it only has to be there.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::GateEnd;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::shelves::{Grown, Place};
use longhaul_core::port::store::{PruneAsk, ReadAsk};
use longhaul_core::time::Millis;

use crate::conformance::store::facts::{
    And as _, cancels, close_gate, ends, progress, resumed, says,
};
use crate::conformance::store::kit::{World, refused, stands};

/// Facts of several runs come in the order in which they were written, each as
/// it stands in its own journal.
pub async fn the_tail_is_in_the_order_of_writing(world: World) {
    assert_eq!(end(&world).await, Place(0), "nothing was written");
    let runs = written(&world).await;
    let [one, two] = runs;
    let tail = tail(&world, Place(0), 99).await;
    let order: Vec<(RunId, u64)> = tail
        .iter()
        .map(|(_, entry)| (entry.run, entry.seq.0))
        .collect();
    let expected = [(one, 1), (two, 1), (two, 2), (one, 2), (one, 3), (two, 3)];
    assert_eq!(order, expected);
    let places: Vec<Place> = tail.iter().map(|(place, _)| *place).collect();
    assert!(places.is_sorted_by(|one, other| one < other), "{places:?}");
    assert_eq!(places.last(), Some(&end(&world).await));
    for run in runs {
        let own: Vec<&Entry> = tail.iter().map(|(_, entry)| entry).collect();
        let own = own.into_iter().filter(|entry| entry.run == run);
        let ask = ReadAsk {
            run,
            after: Seq::START,
            limit: 99,
        };
        let page = world.at.store.read(ask).await.expect("read");
        assert!(own.eq(&page.entries), "{run}");
    }
}

/// Whoever reads on from the last place misses nothing and sees nothing twice,
/// however small the pages are.
pub async fn the_tail_is_read_in_pages(world: World) {
    written(&world).await;
    let whole = tail(&world, Place(0), 99).await;
    for size in 1..=whole.len() + 1 {
        let mut seen = Vec::new();
        let mut after = Place(0);
        for _ in 0..=whole.len() {
            let page = tail(&world, after, size).await;
            assert!(page.len() <= size);
            after = page.last().map_or(after, |(place, _)| *place);
            seen.extend(page);
        }
        assert_eq!(seen, whole, "in pages of {size}");
    }
    for (after, limit) in [(end(&world).await, 9), (Place(0), 0), (Place(u64::MAX), 9)] {
        assert_eq!(tail(&world, after, limit).await, [], "after {after:?}");
    }
}

/// What was undone was never written.
pub async fn what_was_refused_stands_in_no_tail(world: World) {
    let mut held = world.held(|_| {}).await;
    let before = end(&world).await;
    let closing = close_gate(world.ids.gate(), GateEnd::Withdrawn);
    refused(held.append(says([progress(1)]).and(closing)).await);
    assert_eq!(end(&world).await, before);
    held.write(says([progress(2)])).await;
    let rest = tail(&world, before, 9).await;
    let rest: Vec<_> = rest.iter().map(|(_, entry)| &entry.event).collect();
    assert_eq!(rest, [&progress(2)]);
}

/// Each journal that has grown is named once, with its last place so far.
pub async fn journals_that_have_grown_are_named_once(world: World) {
    let [one, two] = written(&world).await;
    let places: Vec<Place> = tail(&world, Place(0), 99)
        .await
        .iter()
        .map(|(place, _)| *place)
        .collect();
    let last = places[5];
    let (one, two) = (|seq| (one, Seq(seq)), |seq| (two, Seq(seq)));
    for (after, limit, runs, end) in [
        (Place(0), 99, vec![one(3), two(3)], last),
        (Place(0), 1, vec![one(1)], places[0]),
        (Place(0), 4, vec![one(2), two(2)], places[3]),
        (places[2], 2, vec![one(3)], places[4]),
        (places[4], 9, vec![two(3)], last),
        (last, 9, vec![], last),
        (Place(0), 0, vec![], Place(0)),
    ] {
        let mut grown = world.at.shelves.grown(after, limit).await.expect("grown");
        grown.runs.sort_unstable();
        assert_eq!(grown, Grown { runs, end }, "{limit} after {after:?}");
    }
}

/// The run that was written to last is not forgotten before another is, so that
/// a place that somebody remembers never comes to mean another fact.
pub async fn a_place_is_never_given_away_again(world: World) {
    let prune = async || {
        world.pass(Millis(1));
        let ask = PruneAsk {
            runs_older: Millis::ZERO,
            blobs_older: Millis::ZERO,
            limit: 1,
        };
        world.at.store.prune(ask).await.expect("prune").runs
    };
    let mut known = Place(0);
    let mut before = None;
    for _ in 0..3 {
        let run = world.open(|_| {}).await;
        stands(&world.close(run, Seq(1), cancels()).await);
        let fresh = tail(&world, known, 99).await;
        let runs: Vec<RunId> = fresh.iter().map(|(_, entry)| entry.run).collect();
        assert_eq!(runs, [run, run], "after {known:?}");
        known = end(&world).await;
        // The one before has something newer behind it now, and goes.
        assert_eq!(prune().await, usize::from(before.is_some()));
        assert_eq!(prune().await, 0, "it was written to last");
        assert_eq!(end(&world).await, known);
        assert_eq!(world.journal(run).await.len(), 2);
        if let Some(before) = before.replace(run) {
            assert_eq!(world.journal(before).await, []);
        }
        let left = tail(&world, Place(0), 99).await;
        assert!(left.iter().all(|(_, entry)| entry.run == run));
    }
}

/// Whoever follows while many write sees each fact once, and the facts of each
/// run in order.
pub async fn a_reader_misses_nothing_under_many_pens(world: World) {
    const PENS: usize = 8;
    let facts = world.at.rounds / 20;
    let mut pens = JoinSet::new();
    for _ in 0..PENS {
        let mut held = world.held(|_| {}).await;
        pens.spawn(async move {
            for _ in 0..facts {
                held.write(says([progress(1)])).await;
                yield_now().await;
            }
            held.write(ends()).await;
        });
    }
    let mut seen: Vec<(RunId, Seq)> = Vec::new();
    let mut after = Place(0);
    loop {
        let over = pens.is_empty();
        let page = tail(&world, after, 7).await;
        if page.is_empty() && over {
            break;
        }
        for (place, entry) in page {
            assert!(place > after, "{place:?} after {after:?}");
            after = place;
            seen.push((entry.run, entry.seq));
        }
        while let Some(done) = pens.try_join_next() {
            done.expect("a pen");
        }
        yield_now().await;
    }
    assert_eq!(seen.len(), PENS * (facts + 3));
    seen.sort_by_key(|(run, _)| *run);
    for own in seen.chunk_by(|one, other| one.0 == other.0) {
        let in_order = own.iter().zip(1..).all(|((_, seq), place)| seq.0 == place);
        assert!(in_order, "{own:?}");
    }
}

/// Two runs whose facts were written in turns: 1, 2, 2, 1, 1, 2.
async fn written(world: &World) -> [RunId; 2] {
    let runs = [world.open(|_| {}).await, world.open(|_| {}).await];
    let [one, two] = runs;
    stands(&world.tell(two, says([resumed()])).await);
    stands(&world.tell(one, says([resumed(), resumed()])).await);
    stands(&world.tell(two, says([resumed()])).await);
    runs
}

async fn tail(world: &World, after: Place, limit: usize) -> Vec<(Place, Entry)> {
    let tail = world.at.shelves.tail(after, limit).await;
    tail.expect("tail").entries
}

async fn end(world: &World) -> Place {
    world.at.shelves.end().await.expect("end")
}
