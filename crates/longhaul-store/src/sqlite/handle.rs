//! The store handle, which passes reads to the reader threads and writes to the writer thread.

use std::sync::Arc;

use longhaul_core::port::store::StoreError;
use longhaul_core::time::Clock;

use crate::options::OpenMode;
use crate::sqlite::change_watch::ChangeNotifier;
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{CommandError, CommitError};
use crate::sqlite::reader::ReaderPool;
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
    pub(crate) at: Arc<str>,
    pub(crate) mode: OpenMode,
    pub(crate) boot: i64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Error for accessing tables that the file lacks, because an older build created the file and
    /// it could only be opened read-only. `None` means that all tables exist.
    pub(crate) outdated_schema: Option<CommitError>,
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
    pub fn location(&self) -> &str {
        &self.at
    }

    /// Returns the number of times that this store was opened as driver, including this time.
    pub const fn boot_count(&self) -> i64 {
        self.boot
    }

    /// Returns the number of commits by which this process has changed runs since it opened the
    /// store.
    pub fn commit_count(&self) -> u64 {
        self.writer.commit_count()
    }

    /// Returns an error unless this process is the driver of the store. `verb` names the refused
    /// action.
    pub(crate) fn require_driver_mode(&self, verb: &'static str) -> Result<(), StoreError> {
        match self.mode {
            OpenMode::Driver => Ok(()),
            OpenMode::Outsider => Err(StoreError::NotDriver { at: self.at.to_string(), verb }),
        }
    }

    /// Returns an error if the file lacks tables that this build uses.
    pub(crate) fn require_current_schema(&self) -> Result<(), StoreError> {
        match &self.outdated_schema {
            None => Ok(()),
            Some(why) => Err(why.to_store_error(&self.at)),
        }
    }

    /// Runs a command on the writer thread. Returns after the commit is on disk.
    pub(crate) async fn run_command<T, F>(&self, command: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<CommandOutcome<T>, CommandError> + Send + 'static,
    {
        self.writer.run_command(command).await
    }

    /// Runs a query on one consistent snapshot of the store.
    pub(crate) async fn run_query<T, E, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        E: Into<CommandError>,
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
