//! Commits that go wrong: one clear error, nothing half-written, nothing lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::port::store::{AppendRequest, Appended, StoreError};
use longhaul_core::status::Status;
use longhaul_store::options::{CommitFault, FaultInjector};
use longhaul_store::{OpenMode, StoreOptions, open};
use longhaul_testkit::conformance::store::batches::{events_batch, park_batch, progress};
use longhaul_testkit::conformance::store::fixture::{ClaimedRun, StoreFixture};

use super::harness::{StoreDir, connect};

/// Makes the next commit go wrong.
#[derive(Debug, Default)]
struct NextCommitFault(Mutex<Option<CommitFault>>);

impl FaultInjector for NextCommitFault {
    fn at_commit(&self) -> Option<CommitFault> {
        self.0.lock().unwrap().take()
    }
}

/// A store whose commits can be made to fail, and what the fatal hook heard.
struct FaultTrial {
    folder: StoreDir,
    faults: Arc<NextCommitFault>,
    fatal_errors: Arc<Mutex<Vec<String>>>,
    fixture: StoreFixture,
    claimed: ClaimedRun,
}

impl FaultTrial {
    async fn new() -> Self {
        let folder = StoreDir::new();
        let faults = Arc::new(NextCommitFault::default());
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let ear = Arc::clone(&heard);
        let store = open(StoreOptions {
            fault_injector: Some(faults.clone()),
            on_fatal: Some(Arc::new(move |why| ear.lock().unwrap().push(why.to_owned()))),
            ..folder.options(OpenMode::Driver)
        });
        let world = folder.fixture(store.unwrap());
        let held = world.open_and_claim(|_| {}).await;
        Self { folder, faults, fatal_errors: heard, fixture: world, claimed: held }
    }

    /// Parks the run in a commit that goes wrong.
    async fn park_with(&self, fault: CommitFault) -> StoreError {
        *self.faults.0.lock().unwrap() = Some(fault);
        self.park().await.unwrap_err()
    }

    async fn park(&self) -> Result<Appended, StoreError> {
        let append = AppendRequest {
            run: self.claimed.run,
            author: self.claimed.author(),
            batch: park_batch("budget"),
        };
        self.fixture.harness.store.append(append).await
    }
}

#[tokio::test]
async fn a_commit_on_a_full_disk_is_rolled_back_and_the_next_succeeds() {
    let trial = FaultTrial::new().await;
    let error = trial.park_with(CommitFault::Full).await;
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    trial.fixture.assert_status(trial.claimed.run, Status::Running, "").await;
    assert!(matches!(trial.park().await, Ok(Appended::At { .. })));
    trial.fixture.assert_status(trial.claimed.run, Status::Waiting, "budget").await;
    assert_eq!(*trial.fatal_errors.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_busy_commit_can_be_retried() {
    let trial = FaultTrial::new().await;
    let error = trial.park_with(CommitFault::Busy).await;
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    assert!(matches!(trial.park().await, Ok(Appended::At { .. })));
}

#[tokio::test]
async fn a_failed_sync_closes_the_store_for_writes() {
    for (fault, stands) in
        [(CommitFault::SyncFailedLost, false), (CommitFault::SyncFailedStored, true)]
    {
        let trial = FaultTrial::new().await;
        let error = trial.park_with(fault).await;
        assert!(matches!(error, StoreError::Closed { .. }), "{error}");
        let next = trial.park().await.unwrap_err();
        assert!(matches!(next, StoreError::Closed { .. }), "{next}");
        assert_eq!(trial.fatal_errors.lock().unwrap().len(), 1, "the program is told once");

        // The next process finds the whole batch or none of it.
        let FaultTrial { folder, fixture: world, claimed: held, .. } = trial;
        let run = held.run;
        drop((world, held));
        let world = folder.fixture(folder.drive());
        let kinds = world.kinds(run).await;
        assert_eq!(kinds.contains(&"run.waiting"), stands, "{kinds:?}");
        let status = world.status(run).await.0;
        assert_eq!(status == Status::Waiting, stands, "{status:?}");
        world.assert_consistent().await;
    }
}

#[tokio::test]
async fn another_writer_is_waited_for_up_to_the_timeout() {
    let folder = StoreDir::new();
    let store = open(StoreOptions {
        busy_timeout: Duration::from_millis(1),
        ..folder.options(OpenMode::Driver)
    });
    let world = folder.fixture(store.unwrap());
    let other = connect(&folder.file());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ask = || longhaul_core::port::store::OpenRequest {
        runs: vec![world.new_run(|_| {})],
        blobs: Vec::new(),
        idempotency: None,
    };
    let error = world.harness.store.open_runs(ask()).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    world.harness.store.open_runs(ask()).await.unwrap();
}

/// Bounds the file at so many pages.
#[derive(Debug)]
struct PageLimit(u32);

impl FaultInjector for PageLimit {
    fn max_pages(&self) -> Option<u32> {
        Some(self.0)
    }
}

#[tokio::test]
async fn a_store_at_its_file_size_limit_stays_consistent() {
    let folder = StoreDir::new();
    let store = open(StoreOptions {
        fault_injector: Some(Arc::new(PageLimit(100))),
        ..folder.options(OpenMode::Driver)
    });
    let world = folder.fixture(store.unwrap());
    let mut held = world.open_and_claim(|_| {}).await;
    let acknowledged = fill(&mut held).await;
    // Small things still fit, and so does everything when there is room again.
    let run = held.run;
    let before = world.journal(run).await.len();
    drop((world, held));
    let world = folder.fixture(folder.drive());
    assert_eq!(world.journal(run).await.len(), before);
    assert_eq!(before, acknowledged * 40 + 2, "what was acknowledged stands, the rest does not");
    let mut held = world.claim_one(world.worker().await).await;
    held.append_ok(long_batch()).await;
    world.assert_consistent().await;
}

/// Appends long facts until the disk is full; so many were acknowledged.
pub(crate) async fn fill(held: &mut ClaimedRun) -> usize {
    let store = Arc::clone(&held.fixture.harness.store);
    for count in 0..100_000 {
        let append = AppendRequest { run: held.run, author: held.author(), batch: long_batch() };
        match store.append(append).await {
            Ok(Appended::At { seq, .. }) => held.last = seq,
            Ok(other) => panic!("{other:?}"),
            Err(StoreError::DiskFull { .. }) => return count,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk is never full");
}

/// A fact of many bytes, and none like the one before.
pub(crate) fn long_batch() -> longhaul_core::change::Batch {
    events_batch(vec![progress(3); 40])
}
