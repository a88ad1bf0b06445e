//! How a store is opened, and the hooks that let others watch it fail.
//!
//! Never: reads a file or a variable; everything is handed in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::time::Clock;

/// What a process does with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// It claims, sweeps and reaps. One process at a time may.
    Driver,
    /// It reads, submits, answers, steers and cancels.
    Outsider,
}

/// Called once when a commit failed so that nothing is known any more. The
/// program must end: what it would do next might rest on what was never written.
pub type FatalHook = Arc<dyn Fn(&str) + Send + Sync>;

/// How a store is opened.
#[derive(Clone)]
pub struct StoreOptions {
    /// `sqlite:PATH` or `sqlite::memory:`.
    pub url: String,
    /// What this process does with it.
    pub mode: OpenMode,
    /// The store's time.
    pub clock: Arc<dyn Clock>,
    /// What a second driver is told about this one, beside its process id.
    pub holder: String,
    /// How long to wait while another process writes.
    pub busy_timeout: Duration,
    /// Called when nothing is known any more.
    pub on_fatal: Option<FatalHook>,
    /// Faults to be met on purpose, in tests.
    pub fault_injector: Option<Arc<dyn FaultInjector>>,
}

impl StoreOptions {
    /// The usual: wait five seconds for other writers, meet no fault on purpose.
    pub fn new(url: impl Into<String>, role: OpenMode, clock: Arc<dyn Clock>) -> Self {
        Self {
            url: url.into(),
            mode: role,
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

/// Faults that a test wants met.
pub trait FaultInjector: Send + Sync + fmt::Debug {
    /// Asked before every commit.
    fn at_commit(&self) -> Option<CommitFault> {
        None
    }

    /// The file may have so many pages.
    fn max_pages(&self) -> Option<u32> {
        None
    }

    /// Migrations to apply after those of this build, as a newer build would have them.
    fn added_migrations(&self) -> &'static [Migration] {
        &[]
    }
}

/// Name and SQL statements of a migration.
pub type Migration = (&'static str, &'static str);

/// A commit that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// The disk is full: it did not happen.
    Full,
    /// Somebody else holds the file: it did not happen.
    Busy,
    /// The sync failed, and what was written is lost.
    SyncFailedLost,
    /// The sync failed, but what was written stands all the same.
    SyncFailedStored,
}
