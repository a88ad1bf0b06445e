//! Opens a store: looks before it touches, takes the lock, brings the tables up
//! to date, frees what a dead driver held.
//!
//! Never: changes a file that is not ours, or waits for another driver to die.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::port::store::StoreError;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::options::{OpenMode, StoreOptions};
use crate::sqlite::change_watch::{ChangeNotifier, WatchTarget};
use crate::sqlite::connect;
use crate::sqlite::error::{CommitError, io_error, sql_error};
use crate::sqlite::handle::{ReadPath, SqliteStore};
use crate::sqlite::location::{
    FileKind, OpenedFile, StoreLocation, create_file, create_private_dir, inspect_header,
    parent_dir, reject_network_fs, resolve,
};
use crate::sqlite::lock::DriverLock;
use crate::sqlite::reader::ReaderPool;
use crate::sqlite::schema;
use crate::sqlite::takeover::take_over;
use crate::sqlite::writer::{Writer, WriterHandle};

/// So many threads read.
const READER_THREADS: usize = 2;
/// So often the first process to come tries to make the file while others do too.
const OPEN_ATTEMPTS_MAX: u32 = 10;

/// Opens a store, and makes it when it is not there.
pub fn open(options: StoreOptions) -> Result<SqliteStore, StoreError> {
    if let Err(version) = connect::check_sqlite_version() {
        return Err(StoreError::Database {
            at: options.url,
            source: format!("SQLite {version} can damage its log: 3.51.3 or newer is needed")
                .into(),
        });
    }
    match StoreLocation::parse(&options.url)? {
        StoreLocation::Memory => open_memory(&options),
        StoreLocation::File(path) => open_file(&path, &options),
    }
}

fn open_memory(options: &StoreOptions) -> Result<SqliteStore, StoreError> {
    let at: Arc<str> = options.url.as_str().into();
    let conn = connect::memory().map_err(|error| sql_error(error, &at))?;
    let migrations = schema::migrations(options);
    schema::migrate(&conn, &at, options.clock.now(), &migrations)?;
    let ground = OpenResources { at, conn, lock: None, file: None, readers: None };
    start_threads(ground, options)
}

fn open_file(path: &Path, options: &StoreOptions) -> Result<SqliteStore, StoreError> {
    let at: Arc<str> = path.to_string_lossy().into();
    let path = &resolve(path).map_err(|error| io_error(error, &at))?;
    let found = inspect_header(path, &at)?;
    let may_look = options.mode == OpenMode::Outsider && found != FileKind::Missing;
    match open_writable(path, options, &at, found) {
        // Whoever only wants to look can do so on a disk that takes nothing more.
        Err(StoreError::DiskFull { .. }) if may_look => {
            let full = CommitError::DiskFull;
            open_read_only(path, options, &at, full)
                .map_err(|_| CommitError::DiskFull.to_store_error(&at))
        }
        Err(StoreError::ReadOnly { why, .. }) if may_look => {
            let still = CommitError::ReadOnly(why.clone());
            open_read_only(path, options, &at, still)
                .map_err(|_| CommitError::ReadOnly(why).to_store_error(&at))
        }
        opened => opened,
    }
}

fn open_writable(
    path: &Path,
    options: &StoreOptions,
    at: &Arc<str>,
    found: FileKind,
) -> Result<SqliteStore, StoreError> {
    let home = parent_dir(path);
    create_private_dir(home).map_err(|error| io_error(error, at))?;
    reject_network_fs(home, at)?;
    let lock = match options.mode {
        OpenMode::Driver => Some(DriverLock::acquire(home, at, &options.holder)?),
        OpenMode::Outsider => None,
    };
    if found != FileKind::Missing {
        // Look with a connection that can't write, before one that would: a file
        // of another program or of a newer build is left as it is.
        let conn =
            connect::reader(path, options.busy_timeout).map_err(|error| sql_error(error, at))?;
        schema::read_version(&conn, at, &schema::migrations(options))?;
    }
    create_file(path).map_err(|error| io_error(error, at))?;
    let conn = open_writer(path, options, at)?;
    migrate_if_needed(&conn, at, (home, options))?;
    let reader =
        || connect::reader(path, options.busy_timeout).map_err(|error| sql_error(error, at));
    let readers: Vec<Connection> =
        (0..READER_THREADS).map(|_| reader()).collect::<Result<_, _>>()?;
    let (lookout, file) = (reader()?, OpenedFile::new(path));
    let post = WatchTarget::new(lookout, file.clone(), options.on_fatal.clone());
    let ground = OpenResources {
        at: Arc::clone(at),
        conn,
        lock,
        file: Some(file),
        readers: Some((readers, post)),
    };
    start_threads(ground, options)
}

/// A store that is only looked at: every write says why it can't be.
fn open_read_only(
    path: &Path,
    options: &StoreOptions,
    at: &Arc<str>,
    why: CommitError,
) -> Result<SqliteStore, StoreError> {
    let reader = || {
        connect::fallback_reader(path, options.busy_timeout).map_err(|error| sql_error(error, at))
    };
    let migrations = schema::migrations(options);
    let found = schema::read_version(&reader()?, at, &migrations)?;
    let known = schema::current_version(&migrations);
    let readers: Vec<Connection> =
        (0..READER_THREADS).map(|_| reader()).collect::<Result<_, _>>()?;
    let (bell, _) = watch::channel(0);
    let post = WatchTarget::new(reader()?, OpenedFile::new(path), None);
    Ok(SqliteStore {
        read_path: ReadPath::Readers(ReaderPool::start(readers, at, &options.clock)?),
        changes: ChangeNotifier::new(Arc::clone(at), bell, Some(post)),
        outdated_schema: (found < known).then(|| outdated_error(&why, found, known)),
        writer: WriterHandle::unavailable(Arc::clone(at), why),
        at: Arc::clone(at),
        mode: options.mode,
        boot: 0,
        clock: Arc::clone(&options.clock),
    })
}

/// Why an older file keeps its tables. What they hold can be looked at all the
/// same; whoever asks for what they lack is told.
fn outdated_error(why: &CommitError, found: u32, known: u32) -> CommitError {
    match why {
        CommitError::ReadOnly(why) => CommitError::ReadOnly(format!(
            "it has schema {found} and is to be brought to {known} first ({why})"
        )),
        other @ (CommitError::DiskFull
        | CommitError::Busy
        | CommitError::Corrupt(_)
        | CommitError::Closed(_)
        | CommitError::Other(_)) => other.clone(),
    }
}

/// Several processes may make the same file at once; giving it its log wants it
/// alone for a moment, and not every refusal of that waits by itself.
fn open_writer(path: &Path, options: &StoreOptions, at: &str) -> Result<Connection, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match connect::writer(path, options.busy_timeout) {
            Ok(conn) => {
                if let Some(pages) =
                    options.fault_injector.as_ref().and_then(|faults| faults.max_pages())
                {
                    conn.pragma_update(None, "max_page_count", pages)
                        .map_err(|error| sql_error(error, at))?;
                }
                return Ok(conn);
            }
            Err(error)
                if tries < OPEN_ATTEMPTS_MAX
                    && matches!(CommitError::from_sql(&error), CommitError::Busy) =>
            {
                std::thread::yield_now();
            }
            Err(error) => return Err(sql_error(error, at)),
        }
    }
}

/// Makes or changes the tables where they are not those of this build. Only a
/// driver changes tables that stand: an older driver must not lose its ground
/// because a newer program looked in.
fn migrate_if_needed(
    conn: &Connection,
    at: &str,
    (home, options): (&Path, &StoreOptions),
) -> Result<(), StoreError> {
    let migrations = schema::migrations(options);
    let found = schema::read_version(conn, at, &migrations)?;
    if found == schema::current_version(&migrations) {
        return Ok(());
    }
    let alone = match options.mode {
        OpenMode::Outsider if found > 0 => Some(DriverLock::acquire(home, at, &options.holder)?),
        OpenMode::Outsider | OpenMode::Driver => None,
    };
    schema::migrate(conn, at, options.clock.now(), &migrations)?;
    drop(alone);
    // The mark that says whose file this is stands in its first bytes from now on.
    let moved = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
    moved.map_err(|error| sql_error(error, at))
}

/// What is open before any thread runs.
struct OpenResources {
    at: Arc<str>,
    conn: Connection,
    lock: Option<DriverLock>,
    /// The file; `None` for a store in memory.
    file: Option<OpenedFile>,
    /// The readers' connections and the lookout's post, where others may see the file.
    readers: Option<(Vec<Connection>, WatchTarget)>,
}

fn start_threads(ground: OpenResources, options: &StoreOptions) -> Result<SqliteStore, StoreError> {
    let at = ground.at;
    let boot = match options.mode {
        OpenMode::Driver => take_over(&ground.conn).map_err(|error| sql_error(error, &at))?,
        OpenMode::Outsider => 0,
    };
    let (bell, _) = watch::channel(0);
    let (reads, lookout) = match ground.readers {
        Some((readers, lookout)) => {
            let readers = ReaderPool::start(readers, &at, &options.clock)?;
            (ReadPath::Readers(readers), Some(lookout))
        }
        None => (ReadPath::ByWriter, None),
    };
    let writer = Writer {
        conn: ground.conn,
        at: Arc::clone(&at),
        clock: Arc::clone(&options.clock),
        busy_timeout: options.busy_timeout,
        change_sender: bell.clone(),
        commits: Arc::default(),
        on_fatal: options.on_fatal.clone(),
        fault_injector: options.fault_injector.clone(),
        lock: ground.lock,
        file: ground.file,
    };
    Ok(SqliteStore {
        read_path: reads,
        changes: ChangeNotifier::new(Arc::clone(&at), bell, lookout),
        writer: writer.start()?,
        at,
        mode: options.mode,
        boot,
        clock: Arc::clone(&options.clock),
        outdated_schema: None,
    })
}
