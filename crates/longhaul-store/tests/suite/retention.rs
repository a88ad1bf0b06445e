//! Forgetting many runs, or one with a long journal, in transactions of bounded size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::id::Seq;
use longhaul_core::port::store::{PruneOutcome, PruneRequest};
use longhaul_core::time::Millis;
use longhaul_store::options::{CommitFault, FaultInjector};
use longhaul_store::{OpenMode, StoreOptions, open};
use longhaul_testkit::conformance::store::batches::{cancel_batch, events_batch, progress};
use longhaul_testkit::conformance::store::fixture::{StoreFixture, assert_appended};

use super::harness::{StoreDir, connect};

/// Counts commits and lets all of them happen.
#[derive(Debug, Default)]
struct CommitCounter(AtomicUsize);

impl FaultInjector for CommitCounter {
    fn at_commit(&self) -> Option<CommitFault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn fixture(folder: &StoreDir) -> (StoreFixture, Arc<CommitCounter>) {
    let commits = Arc::new(CommitCounter::default());
    let store = open(StoreOptions {
        fault_injector: Some(Arc::clone(&commits) as Arc<dyn FaultInjector>),
        ..folder.options(OpenMode::Driver)
    });
    (folder.fixture(store.unwrap()), commits)
}

/// Forgets everything but the newest run; returns how many commits that took.
async fn prune(world: &StoreFixture, commits: &CommitCounter) -> (PruneOutcome, usize) {
    // The run that was written last stays.
    world.open(|_| {}).await;
    world.advance(Millis(1));
    let before = commits.0.load(Ordering::Relaxed);
    let ask = PruneRequest {
        runs_older_than: Millis::ZERO,
        blobs_older_than: Millis::ZERO,
        limit: 1_000,
    };
    let pruned = world.harness.store.prune(ask).await.unwrap();
    (pruned, commits.0.load(Ordering::Relaxed) - before)
}

#[tokio::test]
async fn many_runs_are_pruned_in_many_transactions() {
    let folder = StoreDir::new();
    let (world, commits) = fixture(&folder);
    let runs: Vec<_> = (0..300).map(|_| world.new_run(|_| {})).collect();
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    world.open_runs(runs).await;
    for run in ids {
        assert_appended(&world.append_as_closer(run, Seq(1), cancel_batch()).await);
    }
    let (pruned, commits) = prune(&world, &commits).await;
    assert_eq!(pruned.runs, 300);
    // With 22 rows each, no more than 46 runs go at once.
    assert!(commits >= 300 / 46, "{commits}");
    world.assert_consistent().await;
}

#[tokio::test]
async fn a_long_journal_is_pruned_in_many_transactions() {
    let folder = StoreDir::new();
    let (world, commits) = fixture(&folder);
    let mut held = world.open_and_claim(|_| {}).await;
    for _ in 0..10 {
        held.append_ok(events_batch(vec![progress(1); 500])).await;
    }
    held.end().await;
    let (pruned, commits) = prune(&world, &commits).await;
    assert_eq!(pruned.runs, 1);
    assert!(commits >= 5, "{commits}");
    let rows =
        connect(&folder.file()).query_row("SELECT count(*) FROM journal", (), |row| row.get(0));
    assert_eq!(rows, Ok(1));
    world.assert_consistent().await;
}
