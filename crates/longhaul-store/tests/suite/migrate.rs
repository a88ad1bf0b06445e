//! Files of older builds are migrated with all their data, or opened read-only.

use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::port::auth::AuthStore as _;
use longhaul_core::port::records::{GlobalSeq, RecordStore as _};
use longhaul_core::port::store::{Store as _, StoreError};
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_store::options::{FaultInjector, Migration};
use longhaul_store::{OpenMode, SqliteStore, StoreOptions, open_sqlite_store};
use longhaul_testkit::conformance::store::batches::{
    events_batch, gate_spec, progress, raise_gate_batch,
};

use super::api_keys::new_key;
use super::harness::{StoreDir, connect, options};

/// A migration that no build has: it makes every file of this build an older one.
const LATER: Migration = (
    "later",
    "CREATE TABLE later (run BLOB NOT NULL) STRICT;
     INSERT INTO later (run) SELECT id FROM run;",
);

/// Opens a store as a newer build would, with one migration more.
#[derive(Debug, Default)]
struct NewerBuild {
    /// The file may not grow.
    is_full: bool,
}

impl FaultInjector for NewerBuild {
    fn max_database_pages(&self) -> Option<u32> {
        self.is_full.then_some(1)
    }

    fn extra_test_migrations(&self) -> &'static [Migration] {
        &[LATER]
    }
}

pub(crate) fn newer_build(options: StoreOptions) -> StoreOptions {
    StoreOptions { fault_injector: Some(Arc::new(NewerBuild::default())), ..options }
}

/// A folder with a file of this build, and a run in it that is driven and has raised a
/// gate.
struct OldStore {
    folder: StoreDir,
    run: RunId,
}

impl OldStore {
    async fn new() -> Self {
        let folder = StoreDir::new();
        let fixture = folder.fixture(folder.drive());
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.append_ok(raise_gate_batch(gate_spec(fixture.ids.gate()))).await;
        claimed_run.append_ok(events_batch([progress(7)])).await;
        let run = claimed_run.run;
        drop((fixture, claimed_run));
        Self { folder, run }
    }

    fn open(&self, mode: OpenMode) -> Result<SqliteStore, StoreError> {
        open_sqlite_store(newer_build(self.folder.options(mode)))
    }

    /// Returns the applied migrations and the file's schema version.
    fn schema(&self) -> (Vec<(i64, String)>, i64) {
        let conn = connect(&self.folder.file());
        let mut steps =
            conn.prepare("SELECT version, name FROM migration ORDER BY version").unwrap();
        let steps = steps.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let version = conn.pragma_query_value(None, "user_version", |row| row.get(0));
        (steps.collect::<Result<_, _>>().unwrap(), version.unwrap())
    }

    /// The runs that the later migration has seen.
    fn rows_of_later(&self) -> Vec<RunId> {
        let conn = connect(&self.folder.file());
        let mut runs = conn.prepare("SELECT run FROM later").unwrap();
        let runs = runs.query_map((), |row| row.get(0).map(RunId::from_bytes));
        runs.unwrap().collect::<Result<_, _>>().unwrap()
    }
}

/// The migration of this build, and those of the newer one.
const OLD_NAMES: [&str; 1] = ["init"];
const NEW_NAMES: [&str; 2] = ["init", "later"];

fn steps(names: &[&str]) -> (Vec<(i64, String)>, i64) {
    let steps: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let version = steps.len().try_into().unwrap();
    ((1..).zip(steps).collect(), version)
}

#[tokio::test]
async fn an_older_file_is_migrated_with_its_content() {
    for role in [OpenMode::Driver, OpenMode::Outsider] {
        let old = OldStore::new().await;
        assert_eq!(old.schema(), steps(&OLD_NAMES));
        let fixture = old.folder.fixture(old.open(role).unwrap());
        assert_eq!(old.schema(), steps(&NEW_NAMES));
        let expected = ["run.created", "run.claimed", "gate.raised", "progress.reported"];
        assert_eq!(fixture.kinds(old.run).await, expected);
        let tail = fixture.harness.records.read_all_journals(GlobalSeq(0), 9).await.unwrap();
        let kinds: Vec<_> = tail.entries.iter().map(|(_, entry)| entry.event.kind()).collect();
        assert_eq!(kinds, expected);
        assert_eq!(fixture.row(old.run).await.status, Status::Running);
        assert_eq!(old.rows_of_later(), [old.run]);
        assert!(fixture.harness.auth.add_api_key(new_key("ops")).await.unwrap());
        drop(fixture);

        // The migration is applied only once, and a driver can continue the run.
        let fixture = old.folder.fixture(old.open(OpenMode::Driver).unwrap());
        assert_eq!(old.schema(), steps(&NEW_NAMES));
        assert_eq!(old.rows_of_later(), [old.run]);
        assert_eq!(fixture.harness.auth.list_api_keys().await.unwrap().len(), 1);
        let mut claimed_run = fixture.claim_one(fixture.worker().await).await;
        assert_eq!(claimed_run.run, old.run);
        claimed_run.append_ok(events_batch([progress(8)])).await;
        fixture.assert_consistent().await;
    }
}

/// An outsider of a newer build must not change the schema under an older driver.
#[tokio::test]
async fn an_outsider_does_not_migrate_a_driven_file() {
    let old = OldStore::new().await;
    // The lock belongs to the directory, so a driver of another file in it also holds the lock.
    let other_file = old.folder.dir.path().join("beside.db");
    let driver =
        open_sqlite_store(options(&other_file, OpenMode::Driver, &old.folder.clock)).unwrap();
    let error = old.open(OpenMode::Outsider).unwrap_err();
    assert!(matches!(error, StoreError::AlreadyDriven { .. }), "{error}");
    assert_eq!(old.schema(), steps(&OLD_NAMES));
    drop(driver);
    old.open(OpenMode::Outsider).unwrap();
    assert_eq!(old.schema(), steps(&NEW_NAMES));
}

#[tokio::test]
async fn an_older_file_on_a_full_disk_is_read_unmigrated() {
    let old = OldStore::new().await;
    let open_on_full_disk = |role| {
        open_sqlite_store(StoreOptions {
            fault_injector: Some(Arc::new(NewerBuild { is_full: true })),
            ..old.folder.options(role)
        })
    };
    let is_full = |error: &StoreError| matches!(error, StoreError::DiskFull { .. });
    let error = open_on_full_disk(OpenMode::Driver).unwrap_err();
    assert!(is_full(&error), "{error}");

    let observer = open_on_full_disk(OpenMode::Outsider).unwrap();
    assert!(observer.get_run(old.run).await.unwrap().is_some());
    assert_eq!(observer.last_global_seq().await.unwrap(), GlobalSeq(4));
    // Tables that the older build did not have can't be read, and reads fail instead of returning
    // nothing.
    let hash = Hash::digest(b"ops");
    let errors = [
        observer.list_api_keys().await.err(),
        observer.find_api_key(hash).await.err(),
        observer.record_api_key_use(hash).await.err(),
        observer.add_api_key(new_key("ops")).await.err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert!(is_full(&error), "{error}");
    }
    drop(observer);
    assert_eq!(old.schema(), steps(&OLD_NAMES));
    old.open(OpenMode::Driver).unwrap();
    assert_eq!(old.schema(), steps(&NEW_NAMES));
}
