//! Options for opening a store, and hooks that report or inject failures.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::time::Clock;

/// Mode in which a process opens a store: as driver, which executes runs, or as outsider, which
/// only reads the store and sends commands to runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// The process claims runs, fires timers and releases runs of dead workers. Only one process at
    /// a time can be the driver.
    Driver,
    /// The process reads the store, submits, steers and cancels runs, and answers gates.
    Outsider,
}

/// Hook that is called once after a commit that failed with an unknown result. The process must
/// exit, because anything it does next could depend on data that was never written.
pub type FatalHook = Arc<dyn Fn(&str) + Send + Sync>;

/// Options for opening a store: URL, mode, clock, timeout and hooks.
#[derive(Clone)]
pub struct StoreOptions {
    /// URL of the store: `sqlite:PATH` or `sqlite::memory:`.
    pub url: String,
    /// Mode in which this process opens the store: as driver or as outsider.
    pub mode: OpenMode,
    /// Clock from which the store takes all times that it writes.
    pub clock: Arc<dyn Clock>,
    /// Description of this process. Another process that tries to open the store as driver gets it
    /// in the error, together with this process's id.
    pub holder: String,
    /// How long a write waits for other processes that are writing.
    pub busy_timeout: Duration,
    /// Hook that is called after a commit with an unknown result. `None` means that nothing is
    /// called.
    pub on_fatal: Option<FatalHook>,
    /// Source of injected failures, for tests. `None` means that no failures are injected.
    pub fault_injector: Option<Arc<dyn FaultInjector>>,
}

impl StoreOptions {
    /// Creates options with defaults: a busy timeout of five seconds, no hook and no injected
    /// failures.
    pub fn new(url: impl Into<String>, mode: OpenMode, clock: Arc<dyn Clock>) -> Self {
        Self {
            url: url.into(),
            mode,
            clock,
            holder: String::new(),
            busy_timeout: Duration::from_secs(5),
            on_fatal: None,
            fault_injector: None,
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("url", &self.url)
            .field("mode", &self.mode)
            .field("holder", &self.holder)
            .field("busy_timeout", &self.busy_timeout)
            .finish_non_exhaustive()
    }
}

/// Source of failures that tests inject into a store.
pub trait FaultInjector: Send + Sync + fmt::Debug {
    /// Called before every commit. Returns the failure to inject, or `None` for a normal commit.
    fn next_commit_fault(&self) -> Option<CommitFault> {
        None
    }

    /// Returns the maximum number of pages of the database file, to simulate a full disk. `None`
    /// means no limit.
    fn max_database_pages(&self) -> Option<u32> {
        None
    }

    /// Returns migrations to apply after those of this build, to simulate a newer build.
    fn extra_test_migrations(&self) -> &'static [Migration] {
        &[]
    }
}

/// A database migration: its name and its SQL statements.
pub type Migration = (&'static str, &'static str);

/// A failure of a commit, injected by a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// The disk is full and nothing was committed.
    Full,
    /// Another process holds the lock of the database and nothing was committed.
    Busy,
    /// Syncing the file failed and the committed data is lost.
    SyncFailedLost,
    /// Syncing the file failed, but the committed data was stored.
    SyncFailedStored,
}
