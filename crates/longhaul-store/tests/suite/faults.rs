//! Failing commits: a clear error, no partial writes and no lost data.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::port::store::{AppendRequest, AppendResult, StoreError};
use longhaul_core::status::Status;
use longhaul_store::options::{CommitFault, FaultInjector};
use longhaul_store::{OpenMode, StoreOptions, open_sqlite_store};
use longhaul_testkit::conformance::store::batches::{events_batch, park_batch, progress};
use longhaul_testkit::conformance::store::fixture::{ClaimedRun, StoreFixture};

use super::harness::{StoreDir, connect};

/// Makes the next commit fail.
#[derive(Debug, Default)]
struct NextCommitFault(Mutex<Option<CommitFault>>);

impl FaultInjector for NextCommitFault {
    fn next_commit_fault(&self) -> Option<CommitFault> {
        self.0.lock().unwrap().take()
    }
}

/// A store with injected commit failures and the messages of its fatal hook.
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
        let errors: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorder = Arc::clone(&errors);
        let store = open_sqlite_store(StoreOptions {
            fault_injector: Some(faults.clone()),
            on_fatal: Some(Arc::new(move |reason| {
                recorder.lock().unwrap().push(reason.to_owned())
            })),
            ..folder.options(OpenMode::Driver)
        });
        let fixture = folder.fixture(store.unwrap());
        let claimed_run = fixture.open_and_claim(|_| {}).await;
        Self { folder, faults, fatal_errors: errors, fixture, claimed: claimed_run }
    }

    /// Parks the run in a commit that fails.
    async fn park_with(&self, fault: CommitFault) -> StoreError {
        *self.faults.0.lock().unwrap() = Some(fault);
        self.park().await.unwrap_err()
    }

    async fn park(&self) -> Result<AppendResult, StoreError> {
        let append = AppendRequest {
            run: self.claimed.run,
            author: self.claimed.author(),
            batch: park_batch("budget"),
        };
        self.fixture.harness.store.append_to_journal(append).await
    }
}

#[tokio::test]
async fn a_commit_on_a_full_disk_is_rolled_back_and_the_next_succeeds() {
    let trial = FaultTrial::new().await;
    let error = trial.park_with(CommitFault::Full).await;
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    trial.fixture.assert_status(trial.claimed.run, Status::Running, "").await;
    assert!(matches!(trial.park().await, Ok(AppendResult::Committed { .. })));
    trial.fixture.assert_status(trial.claimed.run, Status::Waiting, "budget").await;
    assert_eq!(*trial.fatal_errors.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_busy_commit_can_be_retried() {
    let trial = FaultTrial::new().await;
    let error = trial.park_with(CommitFault::Busy).await;
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    assert!(matches!(trial.park().await, Ok(AppendResult::Committed { .. })));
}

#[tokio::test]
async fn a_failed_sync_closes_the_store_for_writes() {
    for (fault, is_stored) in
        [(CommitFault::SyncFailedLost, false), (CommitFault::SyncFailedStored, true)]
    {
        let trial = FaultTrial::new().await;
        let error = trial.park_with(fault).await;
        assert!(matches!(error, StoreError::Closed { .. }), "{error}");
        let next = trial.park().await.unwrap_err();
        assert!(matches!(next, StoreError::Closed { .. }), "{next}");
        assert_eq!(trial.fatal_errors.lock().unwrap().len(), 1, "the fatal hook is called once");

        // The next process finds either the whole batch or none of it.
        let FaultTrial { folder, fixture, claimed: claimed_run, .. } = trial;
        let run = claimed_run.run;
        drop((fixture, claimed_run));
        let fixture = folder.fixture(folder.drive());
        let kinds = fixture.kinds(run).await;
        assert_eq!(kinds.contains(&"run.waiting"), is_stored, "{kinds:?}");
        let status = fixture.status(run).await.0;
        assert_eq!(status == Status::Waiting, is_stored, "{status:?}");
        fixture.assert_consistent().await;
    }
}

#[tokio::test]
async fn another_writer_is_waited_for_up_to_the_timeout() {
    let folder = StoreDir::new();
    let store = open_sqlite_store(StoreOptions {
        busy_timeout: Duration::from_millis(1),
        ..folder.options(OpenMode::Driver)
    });
    let fixture = folder.fixture(store.unwrap());
    let other = connect(&folder.file());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let new_request = || longhaul_core::port::store::CreateRunsRequest {
        runs: vec![fixture.new_run(|_| {})],
        blobs: Vec::new(),
        idempotency: None,
    };
    let error = fixture.harness.store.create_runs(new_request()).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    fixture.harness.store.create_runs(new_request()).await.unwrap();
}

/// Limits the number of pages of the file.
#[derive(Debug)]
struct PageLimit(u32);

impl FaultInjector for PageLimit {
    fn max_database_pages(&self) -> Option<u32> {
        Some(self.0)
    }
}

#[tokio::test]
async fn a_store_at_its_file_size_limit_stays_consistent() {
    let folder = StoreDir::new();
    let store = open_sqlite_store(StoreOptions {
        fault_injector: Some(Arc::new(PageLimit(130))),
        ..folder.options(OpenMode::Driver)
    });
    let fixture = folder.fixture(store.unwrap());
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let acknowledged = fill(&mut claimed_run).await;
    // All acknowledged events are there after reopening, and larger writes succeed without the
    // limit.
    let run = claimed_run.run;
    let before = fixture.journal(run).await.len();
    drop((fixture, claimed_run));
    let fixture = folder.fixture(folder.drive());
    assert_eq!(fixture.journal(run).await.len(), before);
    assert_eq!(before, acknowledged * 40 + 2, "exactly the acknowledged events are stored");
    let mut claimed_run = fixture.claim_one(fixture.worker().await).await;
    claimed_run.append_ok(long_batch()).await;
    fixture.assert_consistent().await;
}

/// Appends long events until the disk is full. Returns how many appends were acknowledged.
pub(crate) async fn fill(claimed_run: &mut ClaimedRun) -> usize {
    let store = Arc::clone(&claimed_run.fixture.harness.store);
    for count in 0..100_000 {
        let append = AppendRequest {
            run: claimed_run.run,
            author: claimed_run.author(),
            batch: long_batch(),
        };
        match store.append_to_journal(append).await {
            Ok(AppendResult::Committed { seq, .. }) => claimed_run.last = seq,
            Ok(other) => panic!("{other:?}"),
            Err(StoreError::DiskFull { .. }) => return count,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never became full");
}

/// Returns a batch of many events.
pub(crate) fn long_batch() -> longhaul_core::change::JournalBatch {
    events_batch(vec![progress(3); 40])
}
