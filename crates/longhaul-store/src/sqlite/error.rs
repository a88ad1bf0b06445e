//! Error types of the store, and their conversion to [`StoreError`].

use std::io;

use longhaul_core::event::codec::EventCodecError;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{AppendRefusalReason, StoreError};
use rusqlite::{ErrorCode, ffi};

/// Why a single command of the writer thread failed.
#[derive(Debug)]
pub(crate) enum WriteCommandError {
    /// SQLite returned an error.
    Sql(rusqlite::Error),
    /// An event can't be encoded or decoded by this build.
    InvalidEvent {
        /// Run whose journal contains the event.
        run: RunId,
        /// Sequence number of the event.
        seq: Seq,
        /// Why the event can't be encoded or decoded.
        source: EventCodecError,
    },
    /// Rows are inconsistent with each other. The text describes the inconsistency.
    InconsistentRows(String),
}

impl From<rusqlite::Error> for WriteCommandError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl WriteCommandError {
    /// Converts the error for the caller of this command. `location` is the location of the store.
    pub(crate) fn into_store_error(self, location: &str) -> StoreError {
        match self {
            Self::Sql(error) => store_error_from_sql(error, location),
            Self::InvalidEvent { run, seq, source } => {
                StoreError::InvalidEvent { run, seq, source }
            }
            Self::InconsistentRows(reason) => CommitError::Corrupt(reason).to_store_error(location),
        }
    }

    /// Converts the error to the error of the whole commit, which the callers of all its commands
    /// get.
    pub(crate) fn to_commit_error(&self) -> CommitError {
        match self {
            Self::Sql(error) => CommitError::from_sql_error(error),
            Self::InvalidEvent { source, .. } => CommitError::Other(source.to_string()),
            Self::InconsistentRows(reason) => CommitError::Corrupt(reason.clone()),
        }
    }
}

/// Why a row change was not applied.
#[derive(Debug)]
pub(crate) enum RowChangeError {
    /// The current rows do not allow the change. The command is rolled back, and the reason is
    /// returned to the caller.
    Refused(AppendRefusalReason),
    /// An error occurred while applying the change.
    Failed(WriteCommandError),
}

impl From<rusqlite::Error> for RowChangeError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(WriteCommandError::Sql(error))
    }
}

impl From<WriteCommandError> for RowChangeError {
    fn from(error: WriteCommandError) -> Self {
        Self::Failed(error)
    }
}

/// Why a whole commit failed. The error can be cloned, because the callers of all commands in the
/// commit get it.
#[derive(Debug, Clone)]
pub(crate) enum CommitError {
    /// The disk that contains the store is full.
    DiskFull,
    /// Another process held the lock of the database for too long.
    Busy,
    /// The database file is not writable.
    ReadOnly(String),
    /// The database file is corrupt.
    Corrupt(String),
    /// The store is closed, for this reason. It may be unknown which writes are on disk.
    Closed(String),
    /// Any other error, with its message.
    Other(String),
}

impl CommitError {
    /// Classifies an SQLite error by its effect on the whole commit.
    pub(crate) fn from_sql_error(error: &rusqlite::Error) -> Self {
        let message = error.to_string();
        if let rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) = error
        {
            return Self::Corrupt(message);
        }
        let Some(code) = error.sqlite_error().copied() else {
            return Self::Other(message);
        };
        let has_code = |codes: &[ErrorCode]| codes.contains(&code.code);
        // The shared-memory file of the write-ahead log could not be extended.
        let is_shm_full = code.extended_code == ffi::SQLITE_IOERR_SHMSIZE;
        if is_shm_full || has_code(&[ErrorCode::DiskFull]) {
            Self::DiskFull
        } else if has_code(&[ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked]) {
            Self::Busy
        } else if has_code(&[
            ErrorCode::ReadOnly,
            ErrorCode::CannotOpen,
            ErrorCode::PermissionDenied,
        ]) {
            Self::ReadOnly(message)
        } else if has_code(&[ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase]) {
            Self::Corrupt(message)
        } else if has_code(&[ErrorCode::OperationInterrupted]) {
            Self::Other("the query timed out: request fewer rows".to_owned())
        } else {
            Self::Other(message)
        }
    }

    /// Converts the error for a caller. `location` is the location of the store.
    pub(crate) fn to_store_error(&self, location: &str) -> StoreError {
        let location = location.to_owned();
        match self.clone() {
            Self::DiskFull => StoreError::DiskFull { location },
            Self::Busy => StoreError::Busy { location },
            Self::ReadOnly(reason) => StoreError::ReadOnly { location, reason },
            Self::Corrupt(reason) => StoreError::Corrupt { location, reason },
            Self::Closed(reason) => StoreError::Closed { location, reason },
            Self::Other(reason) => StoreError::Database { location, source: reason.into() },
        }
    }
}

/// Converts an SQLite error to a store error. `location` is the location of the store.
pub(crate) fn store_error_from_sql(error: rusqlite::Error, location: &str) -> StoreError {
    match CommitError::from_sql_error(&error) {
        CommitError::Other(reason) => StoreError::Database {
            location: location.to_owned(),
            source: if reason == error.to_string() { Box::new(error) } else { reason.into() },
        },
        other @ (CommitError::DiskFull
        | CommitError::Busy
        | CommitError::ReadOnly(_)
        | CommitError::Corrupt(_)
        | CommitError::Closed(_)) => other.to_store_error(location),
    }
}

/// Converts a file system error to a store error. `location` is the location of the store.
pub(crate) fn store_error_from_io(error: io::Error, location: &str) -> StoreError {
    use io::ErrorKind::{
        IsADirectory, NotADirectory, PermissionDenied, ReadOnlyFilesystem, StorageFull,
    };
    let kind = error.kind();
    if kind == StorageFull {
        return CommitError::DiskFull.to_store_error(location);
    }
    let unwritable = [PermissionDenied, ReadOnlyFilesystem, NotADirectory, IsADirectory];
    if unwritable.contains(&kind) {
        return CommitError::ReadOnly(error.to_string()).to_store_error(location);
    }
    StoreError::Database { location: location.to_owned(), source: Box::new(error) }
}
