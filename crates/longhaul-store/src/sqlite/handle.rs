//! A store in the hands of its users: where reads and writes go.
//!
//! Never: touches a connection itself.

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

/// A journal and a queue in one SQLite file, or in memory.
///
/// Dropping it finishes what waits, closes the file and frees the lock.
// The order matters: whoever closes last moves the log into the file, and that
// must be the writer.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) read_path: ReadPath,
    pub(crate) changes: ChangeNotifier,
    pub(crate) writer: WriterHandle,
    pub(crate) at: Arc<str>,
    pub(crate) mode: OpenMode,
    pub(crate) boot: i64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Why it lacks tables of this build: a file that could only be looked at keeps
    /// those of the build that made it.
    pub(crate) outdated_schema: Option<CommitError>,
}

/// Who reads.
#[derive(Debug)]
pub(crate) enum ReadPath {
    /// Threads of their own, beside the writer.
    Readers(ReaderPool),
    /// The writer: nobody else sees what is in its memory.
    ByWriter,
}

impl SqliteStore {
    /// Where it is, as errors say it.
    pub fn at(&self) -> &str {
        &self.at
    }

    /// How often this store was opened to be driven, this time included.
    pub const fn boot(&self) -> i64 {
        self.boot
    }

    /// How many commits of this process changed runs since the store was opened.
    pub fn commits(&self) -> u64 {
        self.writer.commits()
    }

    /// Refuses what only a driver may do.
    pub(crate) fn require_driver(&self, verb: &'static str) -> Result<(), StoreError> {
        match self.mode {
            OpenMode::Driver => Ok(()),
            OpenMode::Outsider => Err(StoreError::NotDriver { at: self.at.to_string(), verb }),
        }
    }

    /// Refuses what stands in tables that an older build did not make.
    pub(crate) fn require_current_schema(&self) -> Result<(), StoreError> {
        match &self.outdated_schema {
            None => Ok(()),
            Some(why) => Err(why.to_store_error(&self.at)),
        }
    }

    /// Writes, and returns when it is on the disk.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<CommandOutcome<T>, CommandError> + Send + 'static,
    {
        self.writer.write(work).await
    }

    /// Looks at one moment of the store.
    pub(crate) async fn read_with<T, E, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        E: Into<CommandError>,
        F: Fn(&Tx<'_>) -> Result<T, E> + Send + 'static,
    {
        let look = move |tx: &Tx<'_>| look(tx).map_err(Into::into);
        match &self.read_path {
            ReadPath::Readers(readers) => readers.read(look).await,
            ReadPath::ByWriter => {
                self.writer.write(move |tx| look(tx).map(CommandOutcome::Silent)).await
            }
        }
    }
}
