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
pub async fn the_global_log_is_in_write_order(fixture: StoreFixture) {
    assert_eq!(last_global_seq(&fixture).await, GlobalSeq(0), "the log is empty");
    let runs = write_two_runs(&fixture).await;
    let [one, two] = runs;
    let entries = read_all(&fixture, GlobalSeq(0), 99).await;
    let order: Vec<(RunId, u64)> =
        entries.iter().map(|(_, entry)| (entry.run, entry.seq.0)).collect();
    let expected = [(one, 1), (two, 1), (two, 2), (one, 2), (one, 3), (two, 3)];
    assert_eq!(order, expected);
    let global_seqs: Vec<GlobalSeq> = entries.iter().map(|(global_seq, _)| *global_seq).collect();
    assert!(global_seqs.is_sorted_by(|one, other| one < other), "{global_seqs:?}");
    assert_eq!(global_seqs.last(), Some(&last_global_seq(&fixture).await));
    for run in runs {
        let run_entries: Vec<&JournalEntry> = entries.iter().map(|(_, entry)| entry).collect();
        let run_entries = run_entries.into_iter().filter(|entry| entry.run == run);
        let request = JournalReadRequest { run, after: Seq::START, limit: 99 };
        let page = fixture.harness.store.read_journal(request).await.expect("read");
        assert!(run_entries.eq(&page.entries), "{run}");
    }
}

/// A reader that continues from the last global sequence number misses nothing and gets nothing
/// twice, whatever the page size.
pub async fn the_global_log_is_read_in_pages(fixture: StoreFixture) {
    write_two_runs(&fixture).await;
    let all_entries = read_all(&fixture, GlobalSeq(0), 99).await;
    for size in 1..=all_entries.len() + 1 {
        let mut entries = Vec::new();
        let mut after = GlobalSeq(0);
        for _ in 0..=all_entries.len() {
            let page = read_all(&fixture, after, size).await;
            assert!(page.len() <= size);
            after = page.last().map_or(after, |(global_seq, _)| *global_seq);
            entries.extend(page);
        }
        assert_eq!(entries, all_entries, "in pages of {size}");
    }
    for (after, limit) in
        [(last_global_seq(&fixture).await, 9), (GlobalSeq(0), 0), (GlobalSeq(u64::MAX), 9)]
    {
        assert_eq!(read_all(&fixture, after, limit).await, [], "after {after:?}");
    }
}

pub async fn refused_appends_are_not_in_the_global_log(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let before = last_global_seq(&fixture).await;
    let closing = close_gate(fixture.ids.gate(), GateTransition::Withdrawn);
    refused(claimed_run.append(events_batch([progress(1)]).with_change(closing)).await);
    assert_eq!(last_global_seq(&fixture).await, before);
    claimed_run.append_ok(events_batch([progress(2)])).await;
    let entries = read_all(&fixture, before, 9).await;
    let events: Vec<_> = entries.iter().map(|(_, entry)| &entry.event).collect();
    assert_eq!(events, [&progress(2)]);
}

/// Each changed run is listed once, with its last sequence number so far.
pub async fn changed_runs_are_listed_once(fixture: StoreFixture) {
    let [one, two] = write_two_runs(&fixture).await;
    let global_seqs: Vec<GlobalSeq> = read_all(&fixture, GlobalSeq(0), 99)
        .await
        .iter()
        .map(|(global_seq, _)| *global_seq)
        .collect();
    let last = global_seqs[5];
    let (one, two) = (|seq| (one, Seq(seq)), |seq| (two, Seq(seq)));
    for (after, limit, runs, end) in [
        (GlobalSeq(0), 99, vec![one(3), two(3)], last),
        (GlobalSeq(0), 1, vec![one(1)], global_seqs[0]),
        (GlobalSeq(0), 4, vec![one(2), two(2)], global_seqs[3]),
        (global_seqs[2], 2, vec![one(3)], global_seqs[4]),
        (global_seqs[4], 9, vec![two(3)], last),
        (last, 9, vec![], last),
        (GlobalSeq(0), 0, vec![], GlobalSeq(0)),
    ] {
        let mut changed =
            fixture.harness.records.changed_runs_since(after, limit).await.expect("grown");
        changed.runs.sort_unstable();
        assert_eq!(changed, ChangedRuns { runs, end }, "{limit} after {after:?}");
    }
}

/// The run with the newest event is not pruned before another run has a newer one, so that a
/// known global sequence number never refers to another event.
pub async fn a_global_seq_is_never_reused(fixture: StoreFixture) {
    let prune = async || {
        fixture.advance(Millis(1));
        let request = PruneRequest {
            runs_older_than: Millis::ZERO,
            blobs_older_than: Millis::ZERO,
            limit: 1,
        };
        fixture.harness.store.prune_old_data(request).await.expect("prune").runs
    };
    let mut known = GlobalSeq(0);
    let mut before = None;
    for _ in 0..3 {
        let run = fixture.open(|_| {}).await;
        assert_appended(&fixture.append_as_closer(run, Seq(1), cancel_batch()).await);
        let new_entries = read_all(&fixture, known, 99).await;
        let runs: Vec<RunId> = new_entries.iter().map(|(_, entry)| entry.run).collect();
        assert_eq!(runs, [run, run], "after {known:?}");
        known = last_global_seq(&fixture).await;
        // The previous run is no longer the newest and is pruned.
        assert_eq!(prune().await, usize::from(before.is_some()));
        assert_eq!(prune().await, 0, "the run has the newest event");
        assert_eq!(last_global_seq(&fixture).await, known);
        assert_eq!(fixture.journal(run).await.len(), 2);
        if let Some(before) = before.replace(run) {
            assert_eq!(fixture.journal(before).await, []);
        }
        let remaining = read_all(&fixture, GlobalSeq(0), 99).await;
        assert!(remaining.iter().all(|(_, entry)| entry.run == run));
    }
}

/// A reader that follows concurrent writers gets each event once, and the events of each run in
/// order.
pub async fn a_reader_misses_nothing_under_concurrent_writers(fixture: StoreFixture) {
    const WRITERS: usize = 8;
    let events_per_writer = fixture.harness.rounds / 20;
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        writers.spawn(async move {
            for _ in 0..events_per_writer {
                claimed_run.append_ok(events_batch([progress(1)])).await;
                yield_now().await;
            }
            claimed_run.append_ok(end_batch()).await;
        });
    }
    let mut seen: Vec<(RunId, Seq)> = Vec::new();
    let mut after = GlobalSeq(0);
    loop {
        let is_done = writers.is_empty();
        let page = read_all(&fixture, after, 7).await;
        if page.is_empty() && is_done {
            break;
        }
        for (global_seq, entry) in page {
            assert!(global_seq > after, "{global_seq:?} after {after:?}");
            after = global_seq;
            seen.push((entry.run, entry.seq));
        }
        while let Some(result) = writers.try_join_next() {
            result.expect("a writer");
        }
        yield_now().await;
    }
    assert_eq!(seen.len(), WRITERS * (events_per_writer + 3));
    seen.sort_by_key(|(run, _)| *run);
    for run_entries in seen.chunk_by(|one, other| one.0 == other.0) {
        let in_order = run_entries.iter().zip(1..).all(|((_, seq), expected)| seq.0 == expected);
        assert!(in_order, "{run_entries:?}");
    }
}

/// Returns two runs whose events were written in the order 1, 2, 2, 1, 1, 2.
async fn write_two_runs(fixture: &StoreFixture) -> [RunId; 2] {
    let runs = [fixture.open(|_| {}).await, fixture.open(|_| {}).await];
    let [one, two] = runs;
    assert_appended(&fixture.append_outside(two, events_batch([resumed()])).await);
    assert_appended(&fixture.append_outside(one, events_batch([resumed(), resumed()])).await);
    assert_appended(&fixture.append_outside(two, events_batch([resumed()])).await);
    runs
}

async fn read_all(
    fixture: &StoreFixture,
    after: GlobalSeq,
    limit: usize,
) -> Vec<(GlobalSeq, JournalEntry)> {
    let page = fixture.harness.records.read_all_journals(after, limit).await;
    page.expect("tail").entries
}

async fn last_global_seq(fixture: &StoreFixture) -> GlobalSeq {
    fixture.harness.records.last_global_seq().await.expect("end")
}
