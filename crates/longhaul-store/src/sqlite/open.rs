//! Opens a store: inspects the file, acquires the driver lock, migrates the schema and releases the
//! runs that a previous driver had claimed.
//!
//! Invariant: a file that is not a Longhaul store is never changed.

use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_core::port::store::StoreError;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::options::{OpenMode, StoreOptions};
use crate::sqlite::change_watch::{ChangeNotifier, WatchedFile};
use crate::sqlite::connect;
use crate::sqlite::error::{CommitError, store_error_from_io, store_error_from_sql};
use crate::sqlite::handle::{QueryExecutor, SqliteStore};
use crate::sqlite::location::{
    OpenedDatabaseFile, StoreFileKind, StoreLocation, create_database_file, create_private_dir,
    parent_dir, read_store_file_kind, reject_network_fs, resolve_symlinks,
};
use crate::sqlite::lock::{DriverProcessLock, ReacquirableDriverLock};
use crate::sqlite::reader::ReaderPool;
use crate::sqlite::schema;
use crate::sqlite::takeover::take_over_store_and_increment_boot_count;
use crate::sqlite::writer::{Writer, WriterHandle};

/// Number of threads that run queries.
const READER_THREADS: usize = 2;
/// Maximum number of attempts to open the file while other processes create it.
const OPEN_ATTEMPTS_MAX: u32 = 10;

/// Opens a store. Creates the store if it does not exist.
pub fn open_sqlite_store(options: StoreOptions) -> Result<SqliteStore, StoreError> {
    if let Err(version) = connect::check_sqlite_version() {
        return Err(StoreError::Database {
            location: options.url,
            source: format!(
                "SQLite {version} can corrupt its write-ahead log: 3.51.3 or newer is required"
            )
            .into(),
        });
    }
    match StoreLocation::parse_store_url(&options.url)? {
        StoreLocation::Memory => open_in_memory_store(&options),
        StoreLocation::File(path) => open_file_store(&path, &options),
    }
}

fn open_in_memory_store(options: &StoreOptions) -> Result<SqliteStore, StoreError> {
    let location: Arc<str> = options.url.as_str().into();
    let conn = connect::open_in_memory_connection()
        .map_err(|error| store_error_from_sql(error, &location))?;
    let migrations = schema::migrations_for_options(options);
    schema::migrate_schema(&conn, &location, options.clock.now(), &migrations)?;
    let resources = StoreResources { location, conn, driver_lock: None, file: None, readers: None };
    start_store_threads(resources, options)
}

fn open_file_store(path: &Path, options: &StoreOptions) -> Result<SqliteStore, StoreError> {
    let location: Arc<str> = path.to_string_lossy().into();
    let path = &resolve_symlinks(path).map_err(|error| store_error_from_io(error, &location))?;
    let file_kind = read_store_file_kind(path, &location)?;
    let may_read = options.mode == OpenMode::Outsider && file_kind != StoreFileKind::Missing;
    match open_writable_store(path, options, &location, file_kind) {
        // An outsider can still read a store on a disk that is full or read-only.
        Err(StoreError::DiskFull { .. }) if may_read => {
            let full = CommitError::DiskFull;
            open_read_only_store(path, options, &location, full)
                .map_err(|_| CommitError::DiskFull.to_store_error(&location))
        }
        Err(StoreError::ReadOnly { reason, .. }) if may_read => {
            let error = CommitError::ReadOnly(reason.clone());
            open_read_only_store(path, options, &location, error)
                .map_err(|_| CommitError::ReadOnly(reason).to_store_error(&location))
        }
        result => result,
    }
}

fn open_writable_store(
    path: &Path,
    options: &StoreOptions,
    location: &Arc<str>,
    file_kind: StoreFileKind,
) -> Result<SqliteStore, StoreError> {
    let dir = parent_dir(path);
    create_private_dir(dir).map_err(|error| store_error_from_io(error, location))?;
    reject_network_fs(dir, location)?;
    let driver_lock = ReacquirableDriverLock::new_unheld(dir, location, &options.holder);
    if options.mode == OpenMode::Driver {
        driver_lock.acquire()?;
    }
    if file_kind != StoreFileKind::Missing {
        // Inspect the file with a read-only connection first, so that a file of another program or
        // of a newer build is not changed.
        let conn = connect::open_reader_connection(path, options.busy_timeout)
            .map_err(|error| store_error_from_sql(error, location))?;
        schema::read_schema_version(&conn, location, &schema::migrations_for_options(options))?;
    }
    create_database_file(path).map_err(|error| store_error_from_io(error, location))?;
    let conn = open_writer_with_retries(path, options, location)?;
    migrate_schema_if_needed(&conn, location, (dir, options))?;
    let reader = || {
        connect::open_reader_connection(path, options.busy_timeout)
            .map_err(|error| store_error_from_sql(error, location))
    };
    let readers: Vec<Connection> =
        (0..READER_THREADS).map(|_| reader()).collect::<Result<_, _>>()?;
    let (watch_conn, file) = (reader()?, OpenedDatabaseFile::new(path));
    let watch_target = WatchedFile::new(watch_conn, file.clone(), options.on_fatal.clone());
    let resources = StoreResources {
        location: Arc::clone(location),
        conn,
        driver_lock: Some(Arc::new(driver_lock)),
        file: Some(file),
        readers: Some((readers, watch_target)),
    };
    start_store_threads(resources, options)
}

/// Opens a store read-only. Every write fails with the error `write_error`.
fn open_read_only_store(
    path: &Path,
    options: &StoreOptions,
    location: &Arc<str>,
    write_error: CommitError,
) -> Result<SqliteStore, StoreError> {
    let reader = || {
        connect::open_reader_with_immutable_fallback(path, options.busy_timeout)
            .map_err(|error| store_error_from_sql(error, location))
    };
    let migrations = schema::migrations_for_options(options);
    let version = schema::read_schema_version(&reader()?, location, &migrations)?;
    let current = schema::current_schema_version(&migrations);
    let readers: Vec<Connection> =
        (0..READER_THREADS).map(|_| reader()).collect::<Result<_, _>>()?;
    let (sender, _) = watch::channel(0);
    let watch_target = WatchedFile::new(reader()?, OpenedDatabaseFile::new(path), None);
    Ok(SqliteStore {
        read_path: QueryExecutor::Readers(ReaderPool::start_reader_threads(
            readers,
            location,
            &options.clock,
        )?),
        changes: ChangeNotifier::new(Arc::clone(location), sender, Some(watch_target)),
        outdated_schema: (version < current)
            .then(|| outdated_schema_error(&write_error, version, current)),
        consistency_check_cursor: Mutex::default(),
        writer: WriterHandle::new_for_unwritable_store(Arc::clone(location), write_error),
        location: Arc::clone(location),
        driver_lock: None,
        is_always_driver: false,
        boot: 0,
        clock: Arc::clone(&options.clock),
    })
}

/// Returns the error for accessing tables that are missing in an outdated, read-only file. The
/// tables that exist can still be read.
fn outdated_schema_error(
    write_error: &CommitError,
    found_version: u32,
    current_version: u32,
) -> CommitError {
    match write_error {
        CommitError::ReadOnly(write_error) => CommitError::ReadOnly(format!(
            "the schema must first be migrated from version {found_version} to {current_version} ({write_error})"
        )),
        other @ (CommitError::DiskFull
        | CommitError::Busy
        | CommitError::Corrupt(_)
        | CommitError::Closed(_)
        | CommitError::Other(_)) => other.clone(),
    }
}

/// Opens the connection of the writer thread, with retries. Several processes may create the same
/// file at the same time; switching to the write-ahead log needs exclusive access, and SQLite's
/// busy timeout does not cover all failures of that switch.
fn open_writer_with_retries(
    path: &Path,
    options: &StoreOptions,
    location: &str,
) -> Result<Connection, StoreError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match connect::open_writer_connection(path, options.busy_timeout) {
            Ok(conn) => {
                if let Some(pages) =
                    options.fault_injector.as_ref().and_then(|faults| faults.max_database_pages())
                {
                    conn.pragma_update(None, "max_page_count", pages)
                        .map_err(|error| store_error_from_sql(error, location))?;
                }
                return Ok(conn);
            }
            Err(error)
                if attempts < OPEN_ATTEMPTS_MAX
                    && matches!(CommitError::from_sql_error(&error), CommitError::Busy) =>
            {
                std::thread::yield_now();
            }
            Err(error) => return Err(store_error_from_sql(error, location)),
        }
    }
}

/// Creates or migrates the tables if they are not those of this build. Existing tables are migrated
/// only with the driver lock, so that a newer program can't change the schema under an older
/// driver.
fn migrate_schema_if_needed(
    conn: &Connection,
    location: &str,
    (dir, options): (&Path, &StoreOptions),
) -> Result<(), StoreError> {
    let migrations = schema::migrations_for_options(options);
    let version = schema::read_schema_version(conn, location, &migrations)?;
    if version == schema::current_schema_version(&migrations) {
        return Ok(());
    }
    let driver_lock = match options.mode {
        OpenMode::Outsider if version > 0 => {
            Some(DriverProcessLock::acquire(dir, location, &options.holder)?)
        }
        OpenMode::Outsider | OpenMode::Driver => None,
    };
    schema::migrate_schema(conn, location, options.clock.now(), &migrations)?;
    drop(driver_lock);
    // Moves the application id from the log into the file header, where `read_store_file_kind`
    // reads it.
    let result = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
    result.map_err(|error| store_error_from_sql(error, location))
}

/// Connections, lock and file of a store, which are opened before any thread starts.
struct StoreResources {
    location: Arc<str>,
    conn: Connection,
    /// The driver lock, held by the process that executes the runs. `None` means a store in memory.
    driver_lock: Option<Arc<ReacquirableDriverLock>>,
    /// The database file. `None` means a store in memory.
    file: Option<OpenedDatabaseFile>,
    /// Connections of the reader threads and the file that the watcher thread watches. `None` means
    /// a store in memory.
    readers: Option<(Vec<Connection>, WatchedFile)>,
}

fn start_store_threads(
    resources: StoreResources,
    options: &StoreOptions,
) -> Result<SqliteStore, StoreError> {
    let location = resources.location;
    let boot = match options.mode {
        OpenMode::Driver => take_over_store_and_increment_boot_count(&resources.conn)
            .map_err(|error| store_error_from_sql(error, &location))?,
        OpenMode::Outsider => 0,
    };
    let (sender, _) = watch::channel(0);
    let (read_path, watcher) = match resources.readers {
        Some((readers, watcher)) => {
            let readers = ReaderPool::start_reader_threads(readers, &location, &options.clock)?;
            (QueryExecutor::Readers(readers), Some(watcher))
        }
        None => (QueryExecutor::ByWriter, None),
    };
    let writer = Writer {
        conn: resources.conn,
        location: Arc::clone(&location),
        clock: Arc::clone(&options.clock),
        busy_timeout: options.busy_timeout,
        change_sender: sender.clone(),
        on_fatal: options.on_fatal.clone(),
        fault_injector: options.fault_injector.clone(),
        driver_lock: resources.driver_lock.clone(),
        file: resources.file,
    };
    Ok(SqliteStore {
        read_path,
        changes: ChangeNotifier::new(Arc::clone(&location), sender, watcher),
        writer: writer.start_writer_thread()?,
        location,
        is_always_driver: resources.driver_lock.is_none() && options.mode == OpenMode::Driver,
        driver_lock: resources.driver_lock,
        boot,
        clock: Arc::clone(&options.clock),
        outdated_schema: None,
        consistency_check_cursor: Mutex::default(),
    })
}
