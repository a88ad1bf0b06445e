//! Opens and configures all database connections.
//!
//! Invariant: every commit of the writer is synced to disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Result};

/// Oldest SQLite version without the bug that lets two writers corrupt the write-ahead log.
const VERSION_MIN: i32 = 3_051_003;
const STATEMENTS_MAX: usize = 256;

/// Checks that the linked SQLite library is recent enough. If it is too old, the error is its
/// version.
pub(crate) fn check_sqlite_version() -> std::result::Result<(), &'static str> {
    if rusqlite::version_number() >= VERSION_MIN { Ok(()) } else { Err(rusqlite::version()) }
}

/// Opens the connection of the writer thread. Creates the file if it does not exist.
pub(crate) fn open_writer_connection(path: &Path, busy_timeout: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = open_connection(path, flags, busy_timeout)?;
    set_up_writer_connection(&conn)?;
    Ok(conn)
}

/// Opens an in-memory database that no other connection can see.
pub(crate) fn open_in_memory_connection() -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_MEMORY;
    let conn = open_connection(Path::new(":memory:"), flags, Duration::ZERO)?;
    set_up_writer_connection(&conn)?;
    Ok(conn)
}

/// Opens a read-only connection to a database file.
pub(crate) fn open_reader_connection(path: &Path, busy_timeout: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = open_connection(path, flags, busy_timeout)?;
    conn.execute_batch("PRAGMA query_only = ON;")?;
    Ok(conn)
}

/// Limits the page cache of a read-only connection to 1 MB. This reads the schema, which takes
/// about a millisecond.
pub(crate) fn limit_reader_cache(conn: &Connection) -> Result<()> {
    conn.execute_batch("PRAGMA cache_size = -1024;")
}

/// Opens a read-only connection, even on a full or read-only disk. If there is no write-ahead log,
/// the database file is complete by itself, so it can be opened without creating files beside it.
pub(crate) fn open_reader_with_immutable_fallback(
    path: &Path,
    busy_timeout: Duration,
) -> Result<Connection> {
    let result = open_reader_connection(path, busy_timeout).and_then(|conn| {
        conn.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
        Ok(conn)
    });
    let has_log = std::fs::metadata(wal_path(path)).is_ok_and(|log| log.len() > 0);
    if result.is_ok() || has_log {
        return result;
    }
    open_immutable_connection(path, busy_timeout)
}

/// Opens a read-only connection that creates no files beside the database. Without a write-ahead
/// log no process has the database open, so the file is opened as immutable.
pub(crate) fn open_reader_without_side_files(
    path: &Path,
    busy_timeout: Duration,
) -> Result<Connection> {
    match wal_path(path).exists() {
        true => open_reader_connection(path, busy_timeout),
        false => open_immutable_connection(path, busy_timeout),
    }
}

/// Opens a new file as the target of a copy. The file is synced only after the copy is complete.
pub(crate) fn open_backup_target_connection(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = open_connection(path, flags, Duration::ZERO)?;
    conn.execute_batch("PRAGMA synchronous = OFF;")?;
    Ok(conn)
}

fn open_immutable_connection(path: &Path, busy_timeout: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?immutable=1", percent_encode_path(path));
    open_connection(Path::new(&uri), flags, busy_timeout)
}

fn wal_path(database_path: &Path) -> PathBuf {
    database_path.with_file_name(format!(
        "{}-wal",
        database_path.file_name().unwrap_or_default().to_string_lossy()
    ))
}

/// Returns the path percent-encoded for a `file:` URL.
fn percent_encode_path(path: &Path) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let bytes = path.to_string_lossy().into_owned().into_bytes();
    let parts = bytes.into_iter().map(|byte| match is_unreserved(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    parts.collect()
}

fn open_connection(path: &Path, flags: OpenFlags, busy_timeout: Duration) -> Result<Connection> {
    #[expect(clippy::disallowed_methods, reason = "all databases are opened here")]
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Otherwise some statements are planned again for every set of parameters.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    Ok(conn)
}

fn set_up_writer_connection(conn: &Connection) -> Result<()> {
    // An empty file has nothing to roll back to. A journal file that a killed process leaves could
    // not be rolled back by the read-only connection that inspects a store first.
    if conn.pragma_query_value(None, "page_count", |row| row.get::<_, u32>(0))? == 0 {
        conn.execute_batch("PRAGMA journal_mode = MEMORY;")?;
    }
    // The first two settings only take effect while the database is empty and has no log yet. The
    // third one is stored in the file, the others apply to this connection.
    conn.execute_batch(
        "PRAGMA page_size = 8192;
         PRAGMA auto_vacuum = INCREMENTAL;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA foreign_keys = OFF;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -8192;
         PRAGMA wal_autocheckpoint = 1000;
         PRAGMA journal_size_limit = 67108864;",
    )
}
