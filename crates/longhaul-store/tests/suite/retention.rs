//! Forgetting many runs, or one with a long journal, in transactions of bounded size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::id::Seq;
use longhaul_core::port::store::{PruneAsk, Pruned};
use longhaul_core::time::Millis;
use longhaul_store::options::{CommitFault, Faults};
use longhaul_store::{Options, Role, open};
use longhaul_testkit::conformance::store::facts::{cancels, progress, says};
use longhaul_testkit::conformance::store::kit::{World, stands};

use super::kit::{Folder, connect};

/// Counts commits and lets all of them happen.
#[derive(Debug, Default)]
struct Commits(AtomicUsize);

impl Faults for Commits {
    fn at_commit(&self) -> Option<CommitFault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn world(folder: &Folder) -> (World, Arc<Commits>) {
    let commits = Arc::new(Commits::default());
    let store = open(Options {
        faults: Some(Arc::clone(&commits) as Arc<dyn Faults>),
        ..folder.options(Role::Driver)
    });
    (folder.world(store.unwrap()), commits)
}

/// Forgets everything but the newest run; returns how many commits that took.
async fn prune(world: &World, commits: &Commits) -> (Pruned, usize) {
    // The run that was written last stays.
    world.open(|_| {}).await;
    world.pass(Millis(1));
    let before = commits.0.load(Ordering::Relaxed);
    let ask = PruneAsk {
        runs_older: Millis::ZERO,
        blobs_older: Millis::ZERO,
        limit: 1_000,
    };
    let pruned = world.at.store.prune(ask).await.unwrap();
    (pruned, commits.0.load(Ordering::Relaxed) - before)
}

#[tokio::test]
async fn many_runs_are_forgotten_in_many_transactions() {
    let folder = Folder::new();
    let (world, commits) = world(&folder);
    let runs: Vec<_> = (0..300).map(|_| world.new_run(|_| {})).collect();
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    world.ask(runs).await;
    for run in ids {
        stands(&world.close(run, Seq(1), cancels()).await);
    }
    let (pruned, commits) = prune(&world, &commits).await;
    assert_eq!(pruned.runs, 300);
    // With 22 rows each, no more than 46 runs go at once.
    assert!(commits >= 300 / 46, "{commits}");
    world.is_in_order().await;
}

#[tokio::test]
async fn a_long_journal_is_forgotten_in_many_transactions() {
    let folder = Folder::new();
    let (world, commits) = world(&folder);
    let mut held = world.held(|_| {}).await;
    for _ in 0..10 {
        held.write(says(vec![progress(1); 500])).await;
    }
    held.end().await;
    let (pruned, commits) = prune(&world, &commits).await;
    assert_eq!(pruned.runs, 1);
    assert!(commits >= 5, "{commits}");
    let rows =
        connect(&folder.file()).query_row("SELECT count(*) FROM journal", (), |row| row.get(0));
    assert_eq!(rows, Ok(1));
    world.is_in_order().await;
}
