//! The in-memory store: tables behind one lock, and a clock. The lock is never held across an
//! await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;
use longhaul_core::port::store::{StoreError, StoreWatcher};
use longhaul_core::time::{Clock, Timestamp};

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::{BrokenRule, Rollback, Tx};
use crate::mem_store::view::{HeadView, LaneView};

/// An in-memory store. Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub struct MemStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tables: Mutex<Tables>,
    clock: Arc<dyn Clock>,
    broken_rule: Option<BrokenRule>,
    changes: watch::Sender<u64>,
}

impl MemStore {
    /// Creates an empty store that reads the time from `clock`.
    pub fn new(clock: impl Clock + 'static) -> Self {
        Self::build(clock, None)
    }

    /// Creates a store that violates one of its rules, to test the checks.
    pub fn with_broken_rule(clock: impl Clock + 'static, broken_rule: BrokenRule) -> Self {
        Self::build(clock, Some(broken_rule))
    }

    fn build(clock: impl Clock + 'static, broken_rule: Option<BrokenRule>) -> Self {
        Self {
            shared: Arc::new(Shared {
                tables: Mutex::default(),
                clock: Arc::new(clock),
                broken_rule,
                changes: watch::Sender::new(0),
            }),
        }
    }

    /// Returns all journals, ordered by run id.
    pub fn journals(&self) -> Result<Vec<(RunId, Vec<JournalEntry>)>, StoreError> {
        self.tables().journals()
    }

    /// Returns all heads, ordered by run id.
    pub fn heads(&self) -> Vec<HeadView> {
        self.tables().head_views()
    }

    /// Returns all lanes with their members, ordered by name.
    pub fn lane_members(&self) -> Vec<LaneView> {
        self.tables().lane_views()
    }

    /// Runs a read-only transaction.
    pub(crate) fn read_tx<T>(&self, f: impl FnOnce(&Tx<'_>) -> T) -> T {
        let mut tables = self.tables();
        f(&self.tx(&mut tables))
    }

    /// Runs a transaction, which is rolled back if it returns an error.
    pub(crate) fn write_tx<T>(
        &self,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, Rollback<T>>,
    ) -> Result<T, StoreError> {
        let mut tables = self.tables();
        let result = f(&mut self.tx(&mut tables));
        let changed = match result {
            Ok(_) => tables.commit(),
            Err(_) => {
                tables.rollback();
                false
            }
        };
        drop(tables);
        if changed {
            self.shared.changes.send_modify(|count| *count += 1);
        }
        match result {
            Ok(value) | Err(Rollback::Answer(value)) => Ok(value),
            Err(Rollback::Error(error)) => Err(error),
        }
    }

    /// Returns a watch that signals every later transaction.
    pub(crate) fn watch_changes(&self) -> Box<dyn StoreWatcher> {
        Box::new(MemWatch { changes: self.shared.changes.subscribe() })
    }

    pub(crate) fn time(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn tx<'a>(&self, tables: &'a mut Tables) -> Tx<'a> {
        Tx { tables, now: self.time(), broken_rule: self.shared.broken_rule }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A test that panicked while holding the lock has failed already; the others continue.
        let lock = self.shared.tables.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signals the transactions of one store.
#[derive(Debug)]
struct MemWatch {
    changes: watch::Receiver<u64>,
}

#[async_trait]
impl StoreWatcher for MemWatch {
    async fn wait_for_change(&mut self) -> Result<(), StoreError> {
        let closed = |_| StoreError::Closed {
            location: "memory".to_owned(),
            reason: "all handles of the store are dropped".to_owned(),
        };
        self.changes.changed().await.map_err(closed)
    }
}
