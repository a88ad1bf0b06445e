//! The store itself: tables behind one lock, and a clock.
//!
//! Never: holds the lock over an await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use longhaul_core::event::entry::Entry;
use longhaul_core::id::RunId;
use longhaul_core::port::store::{StoreError, Watch};
use longhaul_core::time::{Clock, Timestamp};

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::{BrokenRule, Rollback, Tx};
use crate::mem_store::view::{HeadView, LaneView};

/// A store in memory. Clones are handles of the same store.
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
    /// An empty store that reads the time from `clock`.
    pub fn new(clock: impl Clock + 'static) -> Self {
        Self::build(clock, None)
    }

    /// A store with one of its rules broken, for checking the checkers.
    pub fn with_broken_rule(clock: impl Clock + 'static, broken: BrokenRule) -> Self {
        Self::build(clock, Some(broken))
    }

    fn build(clock: impl Clock + 'static, broken: Option<BrokenRule>) -> Self {
        Self {
            shared: Arc::new(Shared {
                tables: Mutex::default(),
                clock: Arc::new(clock),
                broken_rule: broken,
                changes: watch::Sender::new(0),
            }),
        }
    }

    /// Every journal that is kept, whole, in the order of the runs' ids.
    pub fn journals(&self) -> Result<Vec<(RunId, Vec<Entry>)>, StoreError> {
        self.tables().journals()
    }

    /// Every head, in the order of the runs' ids.
    pub fn heads(&self) -> Vec<HeadView> {
        self.tables().head_views()
    }

    /// Every lane with its members, in the order of the lanes' names.
    pub fn lane_members(&self) -> Vec<LaneView> {
        self.tables().lane_views()
    }

    /// Looks, without changing anything.
    pub(crate) fn read_tx<T>(&self, look: impl FnOnce(&Tx<'_>) -> T) -> T {
        let mut tables = self.tables();
        look(&self.tx(&mut tables))
    }

    /// One transaction: what it says to be undone never was.
    pub(crate) fn write_tx<T>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, Rollback<T>>,
    ) -> Result<T, StoreError> {
        let mut tables = self.tables();
        let done = work(&mut self.tx(&mut tables));
        let touched = match done {
            Ok(_) => tables.commit(),
            Err(_) => {
                tables.rollback();
                false
            }
        };
        drop(tables);
        if touched {
            self.shared.changes.send_modify(|count| *count += 1);
        }
        match done {
            Ok(said) | Err(Rollback::Answer(said)) => Ok(said),
            Err(Rollback::Error(fault)) => Err(fault),
        }
    }

    /// Tells of every transaction from now on.
    pub(crate) fn watch_changes(&self) -> Box<dyn Watch> {
        Box::new(MemWatch { changes: self.shared.changes.subscribe() })
    }

    pub(crate) fn time(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn tx<'a>(&self, tables: &'a mut Tables) -> Tx<'a> {
        Tx { tables, now: self.time(), broken_rule: self.shared.broken_rule }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A test that panicked inside has failed already; the others go on.
        let lock = self.shared.tables.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the transactions of one store.
#[derive(Debug)]
struct MemWatch {
    changes: watch::Receiver<u64>,
}

#[async_trait]
impl Watch for MemWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        let gone = |_| StoreError::Closed {
            at: "memory".to_owned(),
            why: "every handle is gone".to_owned(),
        };
        self.changes.changed().await.map_err(gone)
    }
}
