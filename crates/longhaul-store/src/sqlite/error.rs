//! What can go wrong below, and what the caller is told of it.
//!
//! Never: a rule. Whether to go on after a fault is the writer's business.

use std::io;

use longhaul_core::event::codec::EventCodecError;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{Refused, StoreError};
use rusqlite::{ErrorCode, ffi};

/// A fault inside one command.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The database's own.
    Sql(rusqlite::Error),
    /// A fact that this build can't read or write.
    InvalidEvent {
        /// Whose journal.
        run: RunId,
        /// Which place.
        seq: Seq,
        /// Why.
        source: EventCodecError,
    },
    /// Rows that don't fit together.
    InconsistentRows(String),
}

impl From<rusqlite::Error> for CommandError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl CommandError {
    /// What the caller of this one command is told.
    pub(crate) fn into_store_error(self, at: &str) -> StoreError {
        match self {
            Self::Sql(error) => sql_error(error, at),
            Self::InvalidEvent { run, seq, source } => {
                StoreError::InvalidEvent { run, seq, source }
            }
            Self::InconsistentRows(why) => CommitError::Corrupt(why).to_store_error(at),
        }
    }

    /// What everybody in the same commit is told.
    pub(crate) fn to_commit_error(&self) -> CommitError {
        match self {
            Self::Sql(error) => CommitError::from_sql(error),
            Self::InvalidEvent { source, .. } => CommitError::Other(source.to_string()),
            Self::InconsistentRows(why) => CommitError::Corrupt(why.clone()),
        }
    }
}

/// Why a change of rows does not happen.
#[derive(Debug)]
pub(crate) enum ChangeError {
    /// A row says no: the command is undone and its caller told.
    Refused(Refused),
    /// Something broke.
    Failed(CommandError),
}

impl From<rusqlite::Error> for ChangeError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(CommandError::Sql(error))
    }
}

impl From<CommandError> for ChangeError {
    fn from(fault: CommandError) -> Self {
        Self::Failed(fault)
    }
}

/// Why a whole commit is lost: told to many, so it can be told again.
#[derive(Debug, Clone)]
pub(crate) enum CommitError {
    /// No room.
    DiskFull,
    /// Somebody else held the file for too long.
    Busy,
    /// It may not be written.
    ReadOnly(String),
    /// It is damaged.
    Corrupt(String),
    /// After this nothing is known.
    Closed(String),
    /// Anything else.
    Other(String),
}

impl CommitError {
    /// The kind of loss that an error of the database means.
    pub(crate) fn from_sql(error: &rusqlite::Error) -> Self {
        let why = error.to_string();
        if let rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) = error
        {
            return Self::Corrupt(why);
        }
        let Some(code) = error.sqlite_error().copied() else {
            return Self::Other(why);
        };
        let is = |codes: &[ErrorCode]| codes.contains(&code.code);
        // The shared memory beside the log could not be made longer.
        let no_room = code.extended_code == ffi::SQLITE_IOERR_SHMSIZE;
        if no_room || is(&[ErrorCode::DiskFull]) {
            Self::DiskFull
        } else if is(&[ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked]) {
            Self::Busy
        } else if is(&[ErrorCode::ReadOnly, ErrorCode::CannotOpen, ErrorCode::PermissionDenied]) {
            Self::ReadOnly(why)
        } else if is(&[ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase]) {
            Self::Corrupt(why)
        } else if is(&[ErrorCode::OperationInterrupted]) {
            Self::Other("a look took too long: ask for less at once".to_owned())
        } else {
            Self::Other(why)
        }
    }

    /// The error that a caller is given.
    pub(crate) fn to_store_error(&self, at: &str) -> StoreError {
        let at = at.to_owned();
        match self.clone() {
            Self::DiskFull => StoreError::DiskFull { at },
            Self::Busy => StoreError::Busy { at },
            Self::ReadOnly(why) => StoreError::ReadOnly { at, why },
            Self::Corrupt(why) => StoreError::Corrupt { at, why },
            Self::Closed(why) => StoreError::Closed { at, why },
            Self::Other(why) => StoreError::Database { at, source: why.into() },
        }
    }
}

/// An error of the database as the port says it.
pub(crate) fn sql_error(error: rusqlite::Error, at: &str) -> StoreError {
    match CommitError::from_sql(&error) {
        CommitError::Other(why) => StoreError::Database {
            at: at.to_owned(),
            source: if why == error.to_string() { Box::new(error) } else { why.into() },
        },
        lost @ (CommitError::DiskFull
        | CommitError::Busy
        | CommitError::ReadOnly(_)
        | CommitError::Corrupt(_)
        | CommitError::Closed(_)) => lost.to_store_error(at),
    }
}

/// An error of the file system as the port says it.
pub(crate) fn io_error(error: io::Error, at: &str) -> StoreError {
    use io::ErrorKind::{
        IsADirectory, NotADirectory, PermissionDenied, ReadOnlyFilesystem, StorageFull,
    };
    let kind = error.kind();
    if kind == StorageFull {
        return CommitError::DiskFull.to_store_error(at);
    }
    let no_place = [PermissionDenied, ReadOnlyFilesystem, NotADirectory, IsADirectory];
    if no_place.contains(&kind) {
        return CommitError::ReadOnly(error.to_string()).to_store_error(at);
    }
    StoreError::Database { at: at.to_owned(), source: Box::new(error) }
}
