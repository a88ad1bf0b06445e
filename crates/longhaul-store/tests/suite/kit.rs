//! Short words for the tests of this crate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_core::port::store::StoreError;
use longhaul_store::{Options, Role, SqliteStore, open};
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::conformance::store::kit::World;
use longhaul_testkit::ids::Ids;
use tempfile::TempDir;

/// How many rounds a race is run over a file: each costs a sync.
const FILE_ROUNDS: usize = 200;

/// A folder for one store, gone at the end, and the clock of that store.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) dir: TempDir,
    pub(crate) clock: SimClock,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: SimClock::new(),
        }
    }

    /// Where the database is.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("longhaul.db")
    }

    pub(crate) fn options(&self, role: Role) -> Options {
        options(&self.file(), role, &self.clock)
    }

    pub(crate) fn open(&self, role: Role) -> Result<SqliteStore, StoreError> {
        open(self.options(role))
    }

    pub(crate) fn drive(&self) -> SqliteStore {
        self.open(Role::Driver).unwrap()
    }

    /// A world around this folder's store, with ids that no other world has.
    pub(crate) fn world(&self, store: SqliteStore) -> World {
        static WORLDS: AtomicU32 = AtomicU32::new(100);
        let ids = Ids::new(WORLDS.fetch_add(1, Ordering::Relaxed));
        let at = Harness::new(store, self.clock.clone());
        World { at, ids }
    }
}

/// The usual options for a file.
pub(crate) fn options(file: &Path, role: Role, clock: &SimClock) -> Options {
    let url = format!("sqlite:{}", file.display());
    Options::new(url, role, Arc::new(clock.clone()))
}

/// A fresh store in a file, for the conformance suite.
pub(crate) async fn in_file() -> Harness {
    let folder = Folder::new();
    let harness = Harness::new(folder.drive(), folder.clock.clone());
    harness.rounds(FILE_ROUNDS).guarded_by(folder)
}

/// A fresh store in memory, for the conformance suite.
pub(crate) async fn in_memory() -> Harness {
    let clock = SimClock::new();
    let options = Options::new("sqlite::memory:", Role::Driver, Arc::new(clock.clone()));
    Harness::new(open(options).unwrap(), clock)
}

/// A connection past the store, to look or to damage.
#[expect(
    clippy::disallowed_methods,
    reason = "a test looks at the file from outside"
)]
pub(crate) fn connect(file: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(file).unwrap()
}
