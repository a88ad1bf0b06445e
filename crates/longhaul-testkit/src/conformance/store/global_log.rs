//! The global log: the entries of all journals in the order of writing, read in pages and
//! without duplicates.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::GateTransition;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::{ChangedRuns, GlobalSeq};
use longhaul_core::port::store::{JournalReadRequest, PruneRequest};
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, close_gate, end_batch, events_batch, progress, resumed,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, refused};

/// Events of several runs come in the order in which they were written, each as in its own
/// journal.
pub async fn the_global_log_is_in_write_order(world: StoreFixture) {
    assert_eq!(last_global_seq(&world).await, GlobalSeq(0), "the log is empty");
    let runs = write_two_runs(&world).await;
    let [one, two] = runs;
    let tail = read_all(&world, GlobalSeq(0), 99).await;
    let order: Vec<(RunId, u64)> = tail.iter().map(|(_, entry)| (entry.run, entry.seq.0)).collect();
    let expected = [(one, 1), (two, 1), (two, 2), (one, 2), (one, 3), (two, 3)];
    assert_eq!(order, expected);
    let places: Vec<GlobalSeq> = tail.iter().map(|(place, _)| *place).collect();
    assert!(places.is_sorted_by(|one, other| one < other), "{places:?}");
    assert_eq!(places.last(), Some(&last_global_seq(&world).await));
    for run in runs {
        let own: Vec<&JournalEntry> = tail.iter().map(|(_, entry)| entry).collect();
        let own = own.into_iter().filter(|entry| entry.run == run);
        let ask = JournalReadRequest { run, after: Seq::START, limit: 99 };
        let page = world.harness.store.read_journal(ask).await.expect("read");
        assert!(own.eq(&page.entries), "{run}");
    }
}

/// A reader that continues from the last global sequence number misses nothing and gets nothing
/// twice, whatever the page size.
pub async fn the_global_log_is_read_in_pages(world: StoreFixture) {
    write_two_runs(&world).await;
    let whole = read_all(&world, GlobalSeq(0), 99).await;
    for size in 1..=whole.len() + 1 {
        let mut seen = Vec::new();
        let mut after = GlobalSeq(0);
        for _ in 0..=whole.len() {
            let page = read_all(&world, after, size).await;
            assert!(page.len() <= size);
            after = page.last().map_or(after, |(place, _)| *place);
            seen.extend(page);
        }
        assert_eq!(seen, whole, "in pages of {size}");
    }
    for (after, limit) in
        [(last_global_seq(&world).await, 9), (GlobalSeq(0), 0), (GlobalSeq(u64::MAX), 9)]
    {
        assert_eq!(read_all(&world, after, limit).await, [], "after {after:?}");
    }
}

/// A refused append is not in the global log.
pub async fn refused_appends_are_not_in_the_global_log(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let before = last_global_seq(&world).await;
    let closing = close_gate(world.ids.gate(), GateTransition::Withdrawn);
    refused(held.append(events_batch([progress(1)]).with_change(closing)).await);
    assert_eq!(last_global_seq(&world).await, before);
    held.append_ok(events_batch([progress(2)])).await;
    let rest = read_all(&world, before, 9).await;
    let rest: Vec<_> = rest.iter().map(|(_, entry)| &entry.event).collect();
    assert_eq!(rest, [&progress(2)]);
}

/// Each changed run is listed once, with its last sequence number so far.
pub async fn changed_runs_are_listed_once(world: StoreFixture) {
    let [one, two] = write_two_runs(&world).await;
    let places: Vec<GlobalSeq> =
        read_all(&world, GlobalSeq(0), 99).await.iter().map(|(place, _)| *place).collect();
    let last = places[5];
    let (one, two) = (|seq| (one, Seq(seq)), |seq| (two, Seq(seq)));
    for (after, limit, runs, end) in [
        (GlobalSeq(0), 99, vec![one(3), two(3)], last),
        (GlobalSeq(0), 1, vec![one(1)], places[0]),
        (GlobalSeq(0), 4, vec![one(2), two(2)], places[3]),
        (places[2], 2, vec![one(3)], places[4]),
        (places[4], 9, vec![two(3)], last),
        (last, 9, vec![], last),
        (GlobalSeq(0), 0, vec![], GlobalSeq(0)),
    ] {
        let mut grown =
            world.harness.records.changed_runs_since(after, limit).await.expect("grown");
        grown.runs.sort_unstable();
        assert_eq!(grown, ChangedRuns { runs, end }, "{limit} after {after:?}");
    }
}

/// The run with the newest event is not pruned before another run has a newer one, so that a
/// known global sequence number never refers to another event.
pub async fn a_global_seq_is_never_reused(world: StoreFixture) {
    let prune = async || {
        world.advance(Millis(1));
        let ask = PruneRequest {
            runs_older_than: Millis::ZERO,
            blobs_older_than: Millis::ZERO,
            limit: 1,
        };
        world.harness.store.prune_old_data(ask).await.expect("prune").runs
    };
    let mut known = GlobalSeq(0);
    let mut before = None;
    for _ in 0..3 {
        let run = world.open(|_| {}).await;
        assert_appended(&world.append_as_closer(run, Seq(1), cancel_batch()).await);
        let fresh = read_all(&world, known, 99).await;
        let runs: Vec<RunId> = fresh.iter().map(|(_, entry)| entry.run).collect();
        assert_eq!(runs, [run, run], "after {known:?}");
        known = last_global_seq(&world).await;
        // The previous run is no longer the newest and is pruned.
        assert_eq!(prune().await, usize::from(before.is_some()));
        assert_eq!(prune().await, 0, "the run has the newest event");
        assert_eq!(last_global_seq(&world).await, known);
        assert_eq!(world.journal(run).await.len(), 2);
        if let Some(before) = before.replace(run) {
            assert_eq!(world.journal(before).await, []);
        }
        let left = read_all(&world, GlobalSeq(0), 99).await;
        assert!(left.iter().all(|(_, entry)| entry.run == run));
    }
}

/// A reader that follows concurrent writers gets each event once, and the events of each run in
/// order.
pub async fn a_reader_misses_nothing_under_concurrent_writers(world: StoreFixture) {
    const WRITERS: usize = 8;
    let facts = world.harness.rounds / 20;
    let mut pens = JoinSet::new();
    for _ in 0..WRITERS {
        let mut held = world.open_and_claim(|_| {}).await;
        pens.spawn(async move {
            for _ in 0..facts {
                held.append_ok(events_batch([progress(1)])).await;
                yield_now().await;
            }
            held.append_ok(end_batch()).await;
        });
    }
    let mut seen: Vec<(RunId, Seq)> = Vec::new();
    let mut after = GlobalSeq(0);
    loop {
        let over = pens.is_empty();
        let page = read_all(&world, after, 7).await;
        if page.is_empty() && over {
            break;
        }
        for (place, entry) in page {
            assert!(place > after, "{place:?} after {after:?}");
            after = place;
            seen.push((entry.run, entry.seq));
        }
        while let Some(done) = pens.try_join_next() {
            done.expect("a writer");
        }
        yield_now().await;
    }
    assert_eq!(seen.len(), WRITERS * (facts + 3));
    seen.sort_by_key(|(run, _)| *run);
    for own in seen.chunk_by(|one, other| one.0 == other.0) {
        let in_order = own.iter().zip(1..).all(|((_, seq), place)| seq.0 == place);
        assert!(in_order, "{own:?}");
    }
}

/// Returns two runs whose events were written in the order 1, 2, 2, 1, 1, 2.
async fn write_two_runs(world: &StoreFixture) -> [RunId; 2] {
    let runs = [world.open(|_| {}).await, world.open(|_| {}).await];
    let [one, two] = runs;
    assert_appended(&world.append_outside(two, events_batch([resumed()])).await);
    assert_appended(&world.append_outside(one, events_batch([resumed(), resumed()])).await);
    assert_appended(&world.append_outside(two, events_batch([resumed()])).await);
    runs
}

async fn read_all(
    world: &StoreFixture,
    after: GlobalSeq,
    limit: usize,
) -> Vec<(GlobalSeq, JournalEntry)> {
    let tail = world.harness.records.read_all_journals(after, limit).await;
    tail.expect("tail").entries
}

async fn last_global_seq(world: &StoreFixture) -> GlobalSeq {
    world.harness.records.last_global_seq().await.expect("end")
}
