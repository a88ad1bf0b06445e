//! One process drives a store, other processes are outsiders.

use longhaul_core::change::RowChange;
use longhaul_core::id::{Seq, WorkerId};
use longhaul_core::port::auth::{IdempotencyKey, IdempotencyRequest, IdempotentRequestState};
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::port::store::{
    AppendRequest, AppendResult, JournalAuthor, PruneRequest, RunFilter, Store as _, StoreError,
    WorkerLiveness,
};
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_store::{OpenMode, StoreOptions, open_sqlite_store};
use longhaul_testkit::conformance::store::batches::{
    cancel_batch, cancel_requested, events_batch, progress,
};
use longhaul_testkit::conformance::store::fixture::{
    assert_appended, claim_request, heartbeat, run_ids,
};

use super::harness::StoreDir;

#[test]
fn the_error_of_a_second_driver_names_the_first() {
    let folder = StoreDir::new();
    let holder = "http://127.0.0.1:4000".to_owned();
    let first = open_sqlite_store(StoreOptions { holder, ..folder.options(OpenMode::Driver) });
    let error = folder.open(OpenMode::Driver).unwrap_err();
    let StoreError::AlreadyDriven { holder, .. } = &error else {
        panic!("{error}");
    };
    let pid = std::process::id();
    assert_eq!(*holder, format!("pid {pid}, http://127.0.0.1:4000"));
    drop(first);
    folder.drive();
}

#[tokio::test]
async fn is_driven_is_known_at_once() {
    let folder = StoreDir::new();
    let outsider = folder.open(OpenMode::Outsider).unwrap();
    assert!(!outsider.has_process_driving_runs().await.unwrap());
    let driver = folder.drive();
    assert!(driver.has_process_driving_runs().await.unwrap());
    assert!(outsider.has_process_driving_runs().await.unwrap());
    drop(driver);
    assert!(!outsider.has_process_driving_runs().await.unwrap());
    // Checking the lock does not keep it.
    folder.drive();
}

#[tokio::test]
async fn a_released_lock_lets_another_process_drive_until_it_ends() {
    let folder = StoreDir::new();
    let first = folder.drive();
    first.release_driver_lock();
    assert!(!first.has_process_driving_runs().await.unwrap());
    let error = first.claim_runs(claim_request(WorkerId::from_bits(1))).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDriver { .. }), "{error}");
    let second = folder.fixture(folder.drive());
    let claimed_run = second.open_and_claim(|_| {}).await;
    let error = first.acquire_driver_lock().await.unwrap_err();
    assert!(matches!(error, StoreError::AlreadyDriven { .. }), "{error}");
    assert!(!first.is_driver_process());
    let run = claimed_run.run;
    drop((second, claimed_run));
    first.acquire_driver_lock().await.unwrap();
    assert!(first.is_driver_process());
    // The run that the second driver held can be claimed again.
    let row = first.get_run(run).await.unwrap().unwrap();
    assert_eq!((row.worker, row.reason.as_deref()), (None, Some("worker")));
    folder.open(OpenMode::Driver).unwrap_err();
}

#[test]
fn deleting_the_store_file_stops_its_driver() {
    let folder = StoreDir::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let options = folder.options(OpenMode::Driver);
    let file = options.url.trim_start_matches("sqlite:").to_owned();
    let store = open_sqlite_store(StoreOptions {
        on_fatal: Some(std::sync::Arc::new(move |reason: &str| {
            sender.send(reason.to_owned()).unwrap();
        })),
        ..options
    });
    let store = store.unwrap();
    let _watch = store.watch_for_changes();
    std::fs::remove_file(file).unwrap();
    let reason = receiver.recv_timeout(std::time::Duration::from_secs(20));
    assert!(reason.unwrap().contains("moved or deleted"));
}

#[tokio::test]
async fn nothing_is_acknowledged_once_the_file_is_gone_or_replaced() {
    for replaced in [false, true] {
        let folder = StoreDir::new();
        let (sender, receiver) = std::sync::mpsc::channel();
        let store = open_sqlite_store(StoreOptions {
            on_fatal: Some(std::sync::Arc::new(move |reason: &str| {
                sender.send(reason.to_owned()).unwrap();
            })),
            ..folder.options(OpenMode::Driver)
        });
        let fixture = folder.fixture(store.unwrap());
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.append_ok(events_batch([progress(1)])).await;
        let other_file = folder.dir.path().join("other.db");
        std::fs::copy(folder.file(), &other_file).unwrap();
        match replaced {
            true => std::fs::rename(other_file, folder.file()).unwrap(),
            false => std::fs::remove_file(folder.file()).unwrap(),
        }
        for _ in 0..2 {
            let append = AppendRequest {
                run: claimed_run.run,
                author: claimed_run.author(),
                batch: events_batch([progress(2)]),
            };
            let error = fixture.harness.store.append_to_journal(append).await.unwrap_err();
            assert!(matches!(error, StoreError::Closed { .. }), "{error}");
            assert!(error.to_string().contains("moved or deleted"), "{error}");
        }
        // The process is notified once, by the writer or by the watcher.
        assert!(receiver.try_recv().unwrap().contains("moved or deleted"));
    }
}

#[tokio::test]
async fn leases_of_an_earlier_boot_are_released() {
    let folder = StoreDir::new();
    let store = folder.drive();
    assert_eq!(store.boot_count(), 1);
    let fixture = folder.fixture(store);
    let claimed_run = fixture.open_and_claim(|_| {}).await;
    let (run, worker) = (claimed_run.run, claimed_run.worker);
    drop((fixture, claimed_run));

    let store = folder.drive();
    assert_eq!(store.boot_count(), 2);
    let fixture = folder.fixture(store);
    fixture.assert_status(run, Status::Running, "worker").await;
    // Worker ids are new at every boot: the old worker is dead.
    assert_eq!(fixture.heartbeat(worker).await.liveness, WorkerLiveness::Dead);
    assert_eq!(fixture.claim(worker).await, []);
    let reclaimed = fixture.claim_one(fixture.worker().await).await;
    assert_eq!((reclaimed.run, reclaimed.epoch.0), (run, 2));
    assert_eq!(fixture.kinds(run).await, ["run.created", "run.claimed", "run.claimed"]);
}

#[tokio::test]
async fn an_outsider_can_submit_append_close_and_read() {
    let folder = StoreDir::new();
    let driver = folder.fixture(folder.drive());
    let outsider = folder.fixture(folder.open(OpenMode::Outsider).unwrap());
    let run = outsider.open(|_| {}).await;
    assert_appended(&outsider.append_outside(run, events_batch([cancel_requested()])).await);
    assert_eq!(driver.kinds(run).await, ["run.created", "run.cancel_requested"]);
    assert_appended(&outsider.append_as_closer(run, Seq(2), cancel_batch()).await);
    driver.assert_status(run, Status::Cancelled, "").await;
    assert_eq!(driver.claim(driver.worker().await).await, []);
}

#[tokio::test]
async fn an_outsider_can_not_claim_runs() {
    let folder = StoreDir::new();
    let driver = folder.fixture(folder.drive());
    let claimed_run = driver.open_and_claim(|_| {}).await;
    let outsider = folder.open(OpenMode::Outsider).unwrap();
    let prune =
        PruneRequest { runs_older_than: Millis::ZERO, blobs_older_than: Millis::ZERO, limit: 1 };
    let append = longhaul_core::port::store::AppendRequest {
        run: claimed_run.run,
        author: claimed_run.author(),
        batch: events_batch([progress(1)]),
    };
    assert!(matches!(claimed_run.author(), JournalAuthor::Driver { .. }));
    let errors = [
        outsider.claim_runs(claim_request(claimed_run.worker)).await.err(),
        outsider.heartbeat(heartbeat(claimed_run.worker)).await.err(),
        outsider.prune_old_data(prune).await.err(),
        outsider.append_to_journal(append).await.err(),
        outsider.repair_inconsistent_rows().await.err(),
        outsider.due_timers(1).await.err(),
    ];
    for error in errors {
        assert!(matches!(error, Some(StoreError::NotDriver { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn a_watch_reports_commits_of_this_and_other_processes() {
    let folder = StoreDir::new();
    let driver = folder.fixture(folder.drive());
    let mut watch = driver.harness.store.watch_for_changes();
    driver.open(|_| {}).await;
    watch.wait_for_change().await.unwrap();
    let outsider = folder.fixture(folder.open(OpenMode::Outsider).unwrap());
    let mut watch = driver.harness.store.watch_for_changes();
    let run = outsider.open(|_| {}).await;
    // Polled every 20 ms; a notification may be for an earlier commit than the expected one.
    let worker = driver.worker().await;
    let mut claimed = run_ids(&driver.claim(worker).await);
    while !claimed.contains(&run) {
        watch.wait_for_change().await.unwrap();
        claimed = run_ids(&driver.claim(worker).await);
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_store() {
    let folder = StoreDir::new();
    let store = folder.drive();
    let mut watch = store.watch_for_changes();
    drop(store);
    let ended = watch.wait_for_change().await;
    assert!(matches!(ended, Err(StoreError::Closed { .. })), "{ended:?}");
}

#[tokio::test]
async fn a_claim_without_work_does_not_notify_watchers() {
    let clock = longhaul_testkit::clock::SimClock::new();
    let options =
        StoreOptions::new("sqlite::memory:", OpenMode::Driver, std::sync::Arc::new(clock.clone()));
    let store = open_sqlite_store(options).unwrap();
    let fixture = longhaul_testkit::conformance::store::fixture::StoreFixture::new(
        longhaul_testkit::conformance::harness::Harness::new(store, clock),
    );
    let worker = fixture.worker().await;
    let mut watch = fixture.harness.store.watch_for_changes();
    assert_eq!(fixture.claim(worker).await, []);
    fixture.heartbeat(worker).await;
    fixture.assert_consistent().await;
    let notified = tokio::select! {
        biased;
        _ = watch.wait_for_change() => true,
        () = std::future::ready(()) => false,
    };
    assert!(!notified, "a worker that claims after each notification would never be idle");
}

#[test]
fn a_store_can_be_created_concurrently() {
    let folder = StoreDir::new();
    std::thread::scope(|scope| {
        let open = || folder.open(OpenMode::Outsider).map(drop).unwrap();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn parent_folders_are_created() {
    let folder = StoreDir::new();
    let file = folder.dir.path().join("a/b/longhaul.db");
    drop(
        open_sqlite_store(super::harness::options(&file, OpenMode::Driver, &folder.clock)).unwrap(),
    );
    assert!(file.is_file() && file.with_file_name("driver.lock").is_file());
}

/// A clock that advances by a second with every call.
#[derive(Debug, Default)]
struct FastClock(std::sync::atomic::AtomicI64);

#[async_trait::async_trait]
impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        let seconds = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Timestamp::from_micros(seconds * 1_000_000)
    }

    async fn sleep(&self, _: Millis) {}
}

#[tokio::test]
async fn a_slow_query_times_out() {
    let folder = StoreDir::new();
    let fast_clock = std::sync::Arc::new(FastClock::default());
    let store =
        open_sqlite_store(StoreOptions { clock: fast_clock, ..folder.options(OpenMode::Driver) });
    let fixture = folder.fixture(store.unwrap());
    let runs = (0..3_000).map(|_| fixture.new_run(|_| {})).collect();
    fixture.open_runs(runs).await;
    let rows = async |limit| {
        let filter = RunFilter { limit, ..RunFilter::default() };
        fixture.harness.store.list_runs(filter).await.map(|rows| rows.len())
    };
    let error = rows(usize::MAX).await.unwrap_err();
    assert!(matches!(error, StoreError::Database { .. }), "{error}");
    assert_eq!(rows(10).await.unwrap(), 10, "the next read works again");
}

#[tokio::test]
async fn a_request_is_repeatable_at_once_after_its_server_died() {
    let folder = StoreDir::new();
    let new_request = |key: &str| IdempotencyRequest {
        key: IdempotencyKey { principal: "key:ops".to_owned(), key: key.to_owned() },
        body_hash: Hash::digest(b"body"),
        ttl: Millis::from_secs(86_400),
        lease: Millis::from_secs(60),
    };
    let fixture = folder.fixture(folder.drive());
    let run = fixture.open(|_| {}).await;
    for key in ["before", "after"] {
        let state = fixture.harness.auth.begin_idempotent_request(new_request(key)).await.unwrap();
        assert_eq!(state, IdempotentRequestState::Acquired);
    }
    let mut batch = events_batch([cancel_requested()]);
    batch.changes.push(RowChange::MarkRequestApplied(new_request("after").key));
    let AppendResult::Committed { seq, .. } = fixture.append_outside(run, batch).await else {
        panic!("the run accepts the append");
    };
    drop(fixture);

    let fixture = folder.fixture(folder.drive());
    let begin = async |key: &str| {
        fixture.harness.auth.begin_idempotent_request(new_request(key)).await.unwrap()
    };
    assert_eq!(begin("before").await, IdempotentRequestState::Acquired);
    let applied = IdempotentRequestState::Applied(IdempotentRequestEffect::Events { run, seq });
    assert_eq!(begin("after").await, applied);
    assert_eq!(begin("after").await, IdempotentRequestState::InProgress);
}
