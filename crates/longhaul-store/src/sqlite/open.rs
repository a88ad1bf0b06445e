//! Opens a store: looks before it touches, takes the lock, brings the tables up
//! to date, frees what a dead driver held.
//!
//! Never: changes a file that is not ours, or waits for another driver to die.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::port::store::StoreError;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::options::{Options, Role};
use crate::sqlite::boot::take_over;
use crate::sqlite::connect;
use crate::sqlite::fault::{Lost, io_error, sql_error};
use crate::sqlite::handle::{Reads, SqliteStore};
use crate::sqlite::lock::DriverLock;
use crate::sqlite::place::{
    Found, OpenFile, Place, folder, inspect, make_file, make_folder, refuse_network, resolve,
};
use crate::sqlite::reader::Readers;
use crate::sqlite::schema;
use crate::sqlite::watch::{Changes, Post};
use crate::sqlite::writer::{Writer, WriterHandle};

/// So many threads read.
const READERS: usize = 2;
/// So often the first process to come tries to make the file while others do too.
const TRIES_MAX: u32 = 10;

/// Opens a store, and makes it when it is not there.
pub fn open(options: Options) -> Result<SqliteStore, StoreError> {
    if let Err(version) = connect::trusted_version() {
        return Err(StoreError::Database {
            at: options.url,
            source: format!("SQLite {version} can damage its log: 3.51.3 or newer is needed")
                .into(),
        });
    }
    match Place::parse(&options.url)? {
        Place::Memory => open_memory(&options),
        Place::File(path) => open_file(&path, &options),
    }
}

fn open_memory(options: &Options) -> Result<SqliteStore, StoreError> {
    let at: Arc<str> = options.url.as_str().into();
    let conn = connect::memory().map_err(|error| sql_error(error, &at))?;
    schema::migrate(&conn, &at, options.clock.now())?;
    let ground = Ground {
        at,
        conn,
        lock: None,
        file: None,
        apart: None,
    };
    start(ground, options)
}

fn open_file(path: &Path, options: &Options) -> Result<SqliteStore, StoreError> {
    let at: Arc<str> = path.to_string_lossy().into();
    let path = &resolve(path).map_err(|error| io_error(error, &at))?;
    let found = inspect(path, &at)?;
    let may_look = options.role == Role::Outsider && found != Found::Nothing;
    match open_to_write(path, options, &at, found) {
        // Whoever only wants to look can do so on a disk that takes nothing more.
        Err(StoreError::Full { .. }) if may_look => {
            let full = Lost::Full;
            open_to_look(path, options, &at, full).map_err(|_| Lost::Full.error(&at))
        }
        Err(StoreError::ReadOnly { why, .. }) if may_look => {
            let still = Lost::ReadOnly(why.clone());
            open_to_look(path, options, &at, still).map_err(|_| Lost::ReadOnly(why).error(&at))
        }
        opened => opened,
    }
}

fn open_to_write(
    path: &Path,
    options: &Options,
    at: &Arc<str>,
    found: Found,
) -> Result<SqliteStore, StoreError> {
    let home = folder(path);
    make_folder(home).map_err(|error| io_error(error, at))?;
    refuse_network(home, at)?;
    let lock = match options.role {
        Role::Driver => Some(DriverLock::take(home, at, &options.holder)?),
        Role::Outsider => None,
    };
    if found != Found::Nothing {
        // Look with a connection that can't write, before one that would: a file
        // of another program or of a newer build is left as it is.
        let conn = connect::reader(path, options.busy).map_err(|error| sql_error(error, at))?;
        schema::found(&conn, at)?;
    }
    make_file(path).map_err(|error| io_error(error, at))?;
    let conn = writer(path, options, at)?;
    bring_up(&conn, at, (home, options))?;
    let reader = || connect::reader(path, options.busy).map_err(|error| sql_error(error, at));
    let readers: Vec<Connection> = (0..READERS).map(|_| reader()).collect::<Result<_, _>>()?;
    let (lookout, file) = (reader()?, OpenFile::new(path));
    let post = Post::new(lookout, file.clone(), options.fatal.clone());
    let ground = Ground {
        at: Arc::clone(at),
        conn,
        lock,
        file: Some(file),
        apart: Some((readers, post)),
    };
    start(ground, options)
}

/// A store that is only looked at: every write says why it can't be.
fn open_to_look(
    path: &Path,
    options: &Options,
    at: &Arc<str>,
    why: Lost,
) -> Result<SqliteStore, StoreError> {
    let reader = || connect::looker(path, options.busy).map_err(|error| sql_error(error, at));
    let found = schema::found(&reader()?, at)?;
    let readers: Vec<Connection> = (0..READERS).map(|_| reader()).collect::<Result<_, _>>()?;
    let (bell, _) = watch::channel(0);
    let post = Post::new(reader()?, OpenFile::new(path), None);
    Ok(SqliteStore {
        reads: Reads::Apart(Readers::start(readers, at, &options.clock)?),
        changes: Changes::new(Arc::clone(at), bell, Some(post)),
        behind: (found < schema::known()).then(|| stays_behind(&why, found)),
        writer: WriterHandle::shut(Arc::clone(at), why),
        at: Arc::clone(at),
        role: options.role,
        boot: 0,
        clock: Arc::clone(&options.clock),
    })
}

/// Why an older file keeps its tables. What they hold can be looked at all the
/// same; whoever asks for what they lack is told.
fn stays_behind(why: &Lost, found: u32) -> Lost {
    match why {
        Lost::ReadOnly(why) => {
            let known = schema::known();
            Lost::ReadOnly(format!(
                "it has schema {found} and is to be brought to {known} first ({why})"
            ))
        }
        other @ (Lost::Full | Lost::Busy | Lost::Corrupt(_) | Lost::Closed(_) | Lost::Other(_)) => {
            other.clone()
        }
    }
}

/// Several processes may make the same file at once; giving it its log wants it
/// alone for a moment, and not every refusal of that waits by itself.
fn writer(path: &Path, options: &Options, at: &str) -> Result<Connection, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match connect::writer(path, options.busy) {
            Ok(conn) => {
                if let Some(pages) = options
                    .faults
                    .as_ref()
                    .and_then(|faults| faults.pages_max())
                {
                    conn.pragma_update(None, "max_page_count", pages)
                        .map_err(|error| sql_error(error, at))?;
                }
                return Ok(conn);
            }
            Err(error) if tries < TRIES_MAX && matches!(Lost::by(&error), Lost::Busy) => {
                std::thread::yield_now();
            }
            Err(error) => return Err(sql_error(error, at)),
        }
    }
}

/// Makes or changes the tables where they are not those of this build. Only a
/// driver changes tables that stand: an older driver must not lose its ground
/// because a newer program looked in.
fn bring_up(
    conn: &Connection,
    at: &str,
    (home, options): (&Path, &Options),
) -> Result<(), StoreError> {
    let found = schema::found(conn, at)?;
    if found == schema::known() {
        return Ok(());
    }
    let alone = match options.role {
        Role::Outsider if found > 0 => Some(DriverLock::take(home, at, &options.holder)?),
        Role::Outsider | Role::Driver => None,
    };
    schema::migrate(conn, at, options.clock.now())?;
    drop(alone);
    // The mark that says whose file this is stands in its first bytes from now on.
    let moved = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
    moved.map_err(|error| sql_error(error, at))
}

/// What is open before any thread runs.
struct Ground {
    at: Arc<str>,
    conn: Connection,
    lock: Option<DriverLock>,
    /// The file; `None` for a store in memory.
    file: Option<OpenFile>,
    /// The readers' connections and the lookout's post, where others may see the file.
    apart: Option<(Vec<Connection>, Post)>,
}

fn start(ground: Ground, options: &Options) -> Result<SqliteStore, StoreError> {
    let at = ground.at;
    let boot = match options.role {
        Role::Driver => take_over(&ground.conn).map_err(|error| sql_error(error, &at))?,
        Role::Outsider => 0,
    };
    let (bell, _) = watch::channel(0);
    let (reads, lookout) = match ground.apart {
        Some((readers, lookout)) => {
            let readers = Readers::start(readers, &at, &options.clock)?;
            (Reads::Apart(readers), Some(lookout))
        }
        None => (Reads::ByWriter, None),
    };
    let writer = Writer {
        conn: ground.conn,
        at: Arc::clone(&at),
        clock: Arc::clone(&options.clock),
        busy: options.busy,
        changes: bell.clone(),
        commits: Arc::default(),
        fatal: options.fatal.clone(),
        faults: options.faults.clone(),
        lock: ground.lock,
        file: ground.file,
    };
    Ok(SqliteStore {
        reads,
        changes: Changes::new(Arc::clone(&at), bell, lookout),
        writer: writer.start()?,
        at,
        role: options.role,
        boot,
        clock: Arc::clone(&options.clock),
        behind: None,
    })
}
