//! How a store is opened, and the hooks that let others watch it fail.
//!
//! Never: reads a file or a variable; everything is handed in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::time::Clock;

/// What a process does with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It claims, sweeps and reaps. One process at a time may.
    Driver,
    /// It reads, submits, answers, steers and cancels.
    Outsider,
}

/// Called once when a commit failed so that nothing is known any more. The
/// program must end: what it would do next might rest on what was never written.
pub type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// `sqlite:PATH` or `sqlite::memory:`.
    pub url: String,
    /// What this process does with it.
    pub role: Role,
    /// The store's time.
    pub clock: Arc<dyn Clock>,
    /// What a second driver is told about this one, beside its process id.
    pub holder: String,
    /// How long to wait while another process writes.
    pub busy: Duration,
    /// Called when nothing is known any more.
    pub fatal: Option<Fatal>,
    /// Faults to be met on purpose, in tests.
    pub faults: Option<Arc<dyn Faults>>,
}

impl Options {
    /// The usual: wait five seconds for other writers, meet no fault on purpose.
    pub fn new(url: impl Into<String>, role: Role, clock: Arc<dyn Clock>) -> Self {
        Self {
            url: url.into(),
            role,
            clock,
            holder: String::new(),
            busy: Duration::from_secs(5),
            fatal: None,
            faults: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("url", &self.url)
            .field("role", &self.role)
            .field("holder", &self.holder)
            .field("busy", &self.busy)
            .finish_non_exhaustive()
    }
}

/// Faults that a test wants met.
pub trait Faults: Send + Sync + fmt::Debug {
    /// Asked before every commit.
    fn at_commit(&self) -> Option<CommitFault> {
        None
    }

    /// The file may have so many pages.
    fn pages_max(&self) -> Option<u32> {
        None
    }
}

/// A commit that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// The disk is full: it did not happen.
    Full,
    /// Somebody else holds the file: it did not happen.
    Busy,
    /// The sync failed, and what was written is lost.
    SyncLost,
    /// The sync failed, but what was written stands all the same.
    SyncStands,
}
