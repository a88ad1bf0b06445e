//! Test harness of this crate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_core::port::store::StoreError;
use longhaul_store::{OpenMode, SqliteStore, StoreOptions, open_sqlite_store};
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::conformance::store::fixture::StoreFixture;
use longhaul_testkit::ids::SeededIds;
use tempfile::TempDir;

/// Number of rounds of a race on a file. Each round costs a sync.
const FILE_ROUNDS: usize = 200;

/// A temporary directory for one store, and the store's clock.
#[derive(Debug)]
pub(crate) struct StoreDir {
    pub(crate) dir: TempDir,
    pub(crate) clock: SimClock,
}

impl StoreDir {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: SimClock::new() }
    }

    /// Returns the path of the database.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("longhaul.db")
    }

    pub(crate) fn options(&self, role: OpenMode) -> StoreOptions {
        options(&self.file(), role, &self.clock)
    }

    pub(crate) fn open(&self, role: OpenMode) -> Result<SqliteStore, StoreError> {
        open_sqlite_store(self.options(role))
    }

    pub(crate) fn drive(&self) -> SqliteStore {
        self.open(OpenMode::Driver).unwrap()
    }

    /// Creates a test fixture for this directory's store, with unique ids.
    pub(crate) fn fixture(&self, store: SqliteStore) -> StoreFixture {
        static NEXT_ID: AtomicU32 = AtomicU32::new(100);
        let ids = SeededIds::new(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let at = Harness::new(store, self.clock.clone());
        StoreFixture { harness: at, ids }
    }
}

/// Returns default options for a file.
pub(crate) fn options(file: &Path, role: OpenMode, clock: &SimClock) -> StoreOptions {
    let url = format!("sqlite:{}", file.display());
    StoreOptions::new(url, role, Arc::new(clock.clone()))
}

/// Creates a new store in a file, for the conformance suite.
pub(crate) async fn in_file() -> Harness {
    let folder = StoreDir::new();
    let harness = Harness::new(folder.drive(), folder.clock.clone());
    harness.with_rounds(FILE_ROUNDS).with_guard(folder)
}

/// Creates a new store in memory, for the conformance suite.
pub(crate) async fn in_memory() -> Harness {
    let clock = SimClock::new();
    let options = StoreOptions::new("sqlite::memory:", OpenMode::Driver, Arc::new(clock.clone()));
    Harness::new(open_sqlite_store(options).unwrap(), clock)
}

/// Opens the database directly, bypassing the store, to inspect or damage it.
#[expect(clippy::disallowed_methods, reason = "tests inspect the file directly")]
pub(crate) fn connect(file: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(file).unwrap()
}
