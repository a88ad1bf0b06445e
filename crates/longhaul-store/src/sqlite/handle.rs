//! The store handle, which passes reads to the reader threads and writes to the writer thread.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::port::store::StoreError;
use longhaul_core::time::Clock;

use crate::sqlite::change_watch::ChangeNotifier;
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{CommitError, WriteCommandError};
use crate::sqlite::lock::ReacquirableDriverLock;
use crate::sqlite::reader::ReaderPool;
use crate::sqlite::repair::ConsistencyCheckCursor;
use crate::sqlite::takeover::release_runs_and_increment_boot_count;
use crate::sqlite::tx::Tx;
use crate::sqlite::writer::WriterHandle;

/// A store in one SQLite file or in memory.
///
/// Dropping the store completes queued commands, closes the file and releases the driver lock.
// The field order matters: the last connection to close moves the log into the database file, and
// that must be the writer.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) read_path: QueryExecutor,
    pub(crate) changes: ChangeNotifier,
    pub(crate) writer: WriterHandle,
    pub(crate) location: Arc<str>,
    /// Driver lock, held by the process that executes the runs. `None` means a store in memory, or
    /// one that can only be read.
    pub(crate) driver_lock: Option<Arc<ReacquirableDriverLock>>,
    /// Whether this process is always the driver (the process that executes the runs), because the
    /// store is in memory and no other process can open it.
    pub(crate) is_always_driver: bool,
    pub(crate) boot: i64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Error for accessing tables that the file lacks, because an older build created the file and
    /// it could only be opened read-only. `None` means that all tables exist.
    pub(crate) outdated_schema: Option<CommitError>,
    /// Position after which the next search for inconsistent rows continues.
    pub(crate) consistency_check_cursor: Mutex<ConsistencyCheckCursor>,
}

/// Where the store executes queries.
#[derive(Debug)]
pub(crate) enum QueryExecutor {
    /// Queries run on separate reader threads.
    Readers(ReaderPool),
    /// Queries run on the writer thread, because no other connection can see an in-memory database.
    ByWriter,
}

impl SqliteStore {
    /// Returns the location of the store, as used in error messages.
    pub fn store_location(&self) -> &str {
        &self.location
    }

    /// Returns the number of times that this store was opened as driver (to execute its runs),
    /// including this time.
    pub const fn boot_count(&self) -> i64 {
        self.boot
    }

    /// Returns whether this process is the store's driver, the only process that may execute its
    /// runs.
    pub fn is_driver_process(&self) -> bool {
        self.is_always_driver || self.driver_lock.as_ref().is_some_and(|lock| lock.is_held())
    }

    /// Releases the driver lock, so that another process can become the store's driver. This
    /// process can still read the store and send commands to runs. All its workers must have ended
    /// before. Does nothing for a store in memory.
    pub fn release_driver_lock(&self) {
        if let Some(lock) = &self.driver_lock {
            lock.release();
        }
    }

    /// Makes this process the store's driver and releases the runs that a previous driver had
    /// claimed. Does nothing if this process is the driver already.
    ///
    /// # Errors
    /// [`StoreError::AlreadyDriven`]: another process is the driver. Other errors: the store can't
    /// be written to.
    pub async fn acquire_driver_lock(&self) -> Result<(), StoreError> {
        if self.is_driver_process() {
            return Ok(());
        }
        if let Some(lock) = &self.driver_lock {
            lock.acquire()?;
        }
        let released = self
            .run_command(|tx| {
                Ok(CommandOutcome::Changed(release_runs_and_increment_boot_count(tx.conn)?))
            })
            .await;
        if released.is_err() {
            self.release_driver_lock();
        }
        released.map(|_| ())
    }

    /// Returns an error unless this process is the driver of the store (the process that executes
    /// its runs). `action` names the refused action.
    pub(crate) fn require_driver_process(&self, action: &'static str) -> Result<(), StoreError> {
        match self.is_driver_process() {
            true => Ok(()),
            false => {
                Err(StoreError::NotDriver { location: self.location.to_string(), verb: action })
            }
        }
    }

    /// Returns the position after which the next search for inconsistent rows continues.
    pub(crate) fn consistency_check_cursor(&self) -> ConsistencyCheckCursor {
        self.consistency_check_cursor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the position after which the next search for inconsistent rows continues.
    pub(crate) fn set_consistency_check_cursor(&self, cursor: ConsistencyCheckCursor) {
        *self.consistency_check_cursor.lock().unwrap_or_else(PoisonError::into_inner) = cursor;
    }

    /// Returns an error if the file lacks tables that this build uses.
    pub(crate) fn require_current_schema(&self) -> Result<(), StoreError> {
        match &self.outdated_schema {
            None => Ok(()),
            Some(error) => Err(error.to_store_error(&self.location)),
        }
    }

    /// Runs a command on the writer thread. Returns after the commit is on disk.
    pub(crate) async fn run_command<T, F>(&self, command: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<CommandOutcome<T>, WriteCommandError> + Send + 'static,
    {
        self.writer.run_command(command).await
    }

    /// Runs a query on one consistent snapshot of the store.
    pub(crate) async fn run_query<T, E, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        E: Into<WriteCommandError>,
        F: Fn(&Tx<'_>) -> Result<T, E> + Send + 'static,
    {
        let query = move |tx: &Tx<'_>| query(tx).map_err(Into::into);
        match &self.read_path {
            QueryExecutor::Readers(readers) => readers.run_query(query).await,
            QueryExecutor::ByWriter => {
                self.writer.run_command(move |tx| query(tx).map(CommandOutcome::Silent)).await
            }
        }
    }
}
