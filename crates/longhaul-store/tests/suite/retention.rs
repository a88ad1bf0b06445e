//! Pruning many runs, or one with a long journal, in transactions of limited size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::id::Seq;
use longhaul_core::port::store::{PruneOutcome, PruneRequest};
use longhaul_core::time::Millis;
use longhaul_store::options::{CommitFault, FaultInjector};
use longhaul_store::{OpenMode, StoreOptions, open_sqlite_store};
use longhaul_testkit::conformance::store::batches::{cancel_batch, events_batch, progress};
use longhaul_testkit::conformance::store::fixture::{StoreFixture, assert_appended};

use super::harness::{StoreDir, connect};

/// Counts commits without making them fail.
#[derive(Debug, Default)]
struct CommitCounter(AtomicUsize);

impl FaultInjector for CommitCounter {
    fn next_commit_fault(&self) -> Option<CommitFault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn fixture(folder: &StoreDir) -> (StoreFixture, Arc<CommitCounter>) {
    let commits = Arc::new(CommitCounter::default());
    let store = open_sqlite_store(StoreOptions {
        fault_injector: Some(Arc::clone(&commits) as Arc<dyn FaultInjector>),
        ..folder.options(OpenMode::Driver)
    });
    (folder.fixture(store.unwrap()), commits)
}

/// Prunes everything but the newest run. Returns the outcome and the number of commits.
async fn prune(store_fixture: &StoreFixture, commits: &CommitCounter) -> (PruneOutcome, usize) {
    // The run that was written last is kept.
    store_fixture.open(|_| {}).await;
    store_fixture.advance(Millis(1));
    let before = commits.0.load(Ordering::Relaxed);
    let request = PruneRequest {
        runs_older_than: Millis::ZERO,
        blobs_older_than: Millis::ZERO,
        limit: 1_000,
    };
    let pruned = store_fixture.harness.store.prune_old_data(request).await.unwrap();
    (pruned, commits.0.load(Ordering::Relaxed) - before)
}

#[tokio::test]
async fn many_runs_are_pruned_in_many_transactions() {
    let folder = StoreDir::new();
    let (store_fixture, commits) = fixture(&folder);
    let runs: Vec<_> = (0..300).map(|_| store_fixture.new_run(|_| {})).collect();
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    store_fixture.open_runs(runs).await;
    for run in ids {
        assert_appended(&store_fixture.append_as_closer(run, Seq(1), cancel_batch()).await);
    }
    let (pruned, commits) = prune(&store_fixture, &commits).await;
    assert_eq!(pruned.runs, 300);
    // With 22 rows per run, one transaction deletes at most 46 runs.
    assert!(commits >= 300 / 46, "{commits}");
    store_fixture.assert_consistent().await;
}

#[tokio::test]
async fn a_long_journal_is_pruned_in_many_transactions() {
    let folder = StoreDir::new();
    let (store_fixture, commits) = fixture(&folder);
    let mut claimed_run = store_fixture.open_and_claim(|_| {}).await;
    for _ in 0..10 {
        claimed_run.append_ok(events_batch(vec![progress(1); 500])).await;
    }
    claimed_run.end().await;
    let (pruned, commits) = prune(&store_fixture, &commits).await;
    assert_eq!(pruned.runs, 1);
    assert!(commits >= 5, "{commits}");
    let rows =
        connect(&folder.file()).query_row("SELECT count(*) FROM journal", (), |row| row.get(0));
    assert_eq!(rows, Ok(1));
    store_fixture.assert_consistent().await;
}
