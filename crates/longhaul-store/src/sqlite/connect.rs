//! The one place where a database is opened, and how each connection is set up.
//!
//! Never: a weaker promise than that a commit is on the disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Result};

/// The oldest SQLite without the fault that two writers could damage a log.
const VERSION_MIN: i32 = 3_051_003;
const STATEMENTS_MAX: usize = 256;

/// Whether the SQLite in this build is one that can be trusted; else its version.
pub(crate) fn check_sqlite_version() -> std::result::Result<(), &'static str> {
    if rusqlite::version_number() >= VERSION_MIN { Ok(()) } else { Err(rusqlite::version()) }
}

/// The connection that writes. Makes the file when it is not there.
pub(crate) fn writer(path: &Path, busy: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = open(path, flags, busy)?;
    set_up_writer(&conn)?;
    Ok(conn)
}

/// A database that nobody else sees.
pub(crate) fn memory() -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_MEMORY;
    let conn = open(Path::new(":memory:"), flags, Duration::ZERO)?;
    set_up_writer(&conn)?;
    Ok(conn)
}

/// A connection that can't write.
pub(crate) fn reader(path: &Path, busy: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = open(path, flags, busy)?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024;")?;
    Ok(conn)
}

/// A connection that can't write, on a disk that takes nothing more. Where there
/// is no log, the file alone is all there is, and nothing need be made beside it.
pub(crate) fn fallback_reader(path: &Path, busy: Duration) -> Result<Connection> {
    let tried = reader(path, busy).and_then(|conn| {
        conn.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
        Ok(conn)
    });
    let has_log = std::fs::metadata(wal_path(path)).is_ok_and(|log| log.len() > 0);
    if tried.is_ok() || has_log {
        return tried;
    }
    immutable(path, busy)
}

/// A connection that can't write and leaves nothing beside the file. Without a log
/// no process has the file open.
pub(crate) fn inspection_reader(path: &Path, busy: Duration) -> Result<Connection> {
    match wal_path(path).exists() {
        true => reader(path, busy),
        false => immutable(path, busy),
    }
}

/// A connection to a new file that becomes a copy, which is synced at its end.
pub(crate) fn backup_target(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = open(path, flags, Duration::ZERO)?;
    conn.execute_batch("PRAGMA synchronous = OFF;")?;
    Ok(conn)
}

fn immutable(path: &Path, busy: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let address = format!("file:{}?immutable=1", encoded(path));
    open(Path::new(&address), flags, busy)
}

fn wal_path(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}-wal", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// A path as it stands in an address.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let bytes = path.to_string_lossy().into_owned().into_bytes();
    let letters = bytes.into_iter().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    letters.collect()
}

fn open(path: &Path, flags: OpenFlags, busy: Duration) -> Result<Connection> {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that opens a database")]
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(busy)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Else some statements are planned anew for other values, each time.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    Ok(conn)
}

fn set_up_writer(conn: &Connection) -> Result<()> {
    // The first two count only while the database is empty, and only before it
    // gets its log. The next is remembered in the file, the others are not.
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
