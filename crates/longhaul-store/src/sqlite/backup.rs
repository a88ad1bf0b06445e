//! Copies a store that may be in use, and puts a copy in a store's place.
//!
//! Invariant: a file under its final name is whole, checked and on disk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::port::store::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::sqlite::check::{CheckReport, JournalCheck, check, snapshot};
use crate::sqlite::connect;
use crate::sqlite::error::{CommandError, CommitError, io_error, sql_error};
use crate::sqlite::location::{
    FileKind, inspect_header, parent_dir, private_file_options, resolve,
};
use crate::sqlite::lock::DriverLock;
use crate::sqlite::schema;

/// Number of pages that are copied between two reports of progress.
const PAGES_PER_STEP: i32 = 1_024;
/// How long another process that holds the file is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of names that are tried for a store that is kept.
const REPLACED_NAMES_MAX: u32 = 1_000;
/// What SQLite keeps beside a database. It belongs to the file that had the name when
/// it was written: beside another one it would be replayed into that.
const SQLITE_FILE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Copies the store in `from` to `to` as it is at one moment, checks the copy and gives
/// it its name. Others may read and write meanwhile. What has this name is replaced.
/// Problems in rows and journals are copied and reported; damaged pages are an error.
/// `progress` gets the share that is copied, from 0 to 1.
pub fn backup(
    from: &Path,
    to: &Path,
    journals: &mut dyn JournalCheck,
    progress: &mut dyn FnMut(f64),
) -> Result<CheckReport, StoreError> {
    let temp = TempFile::new(to)?;
    copy((from, connect::fallback_reader), &temp.0, progress)?;
    let report = check(&temp.0, journals)?;
    if let Some(problem) = report.damaged_pages() {
        let why = format!("the copy is not whole: {}", problem.message);
        return Err(CommitError::Corrupt(why).to_store_error(&from.to_string_lossy()));
    }
    temp.persist(to)?;
    Ok(report)
}

/// Puts a copy of the store in `from` in the place of the one in `store`, which nobody
/// may drive. Returns where the store is that was there before, if there was one.
pub fn restore(
    from: &Path,
    store: &Path,
    journals: &mut dyn JournalCheck,
) -> Result<(CheckReport, Option<PathBuf>), StoreError> {
    let at = store.to_string_lossy();
    let failed = |error| io_error(error, &at);
    let store = resolve(store).map_err(failed)?;
    let lock = DriverLock::acquire(parent_dir(&store), &at, "longhaul db restore")?;
    let temp = TempFile::new(&store)?;
    copy((from, connect::inspection_reader), &temp.0, &mut |_| ())?;
    let report = check(&temp.0, journals)?;
    if let Some(problem) = report.damaged_pages() {
        return Err(
            CommitError::Corrupt(problem.message.clone()).to_store_error(&from.to_string_lossy())
        );
    }
    let kept = keep_previous(&store).map_err(failed)?;
    temp.persist(&store)?;
    drop(lock);
    Ok((report, kept))
}

/// A new file beside the one that it becomes, removed unless it becomes that.
struct TempFile(PathBuf);

impl TempFile {
    fn new(to: &Path) -> Result<Self, StoreError> {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let temp = to.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        _ = fs::remove_file(&temp);
        let made = private_file_options().write(true).create_new(true).open(&temp);
        made.map_err(|error| io_error(error, &to.to_string_lossy()))?;
        Ok(Self(temp))
    }

    /// Syncs the file and gives it its name. What is beside the file that had this name
    /// is removed before.
    fn persist(&self, to: &Path) -> Result<(), StoreError> {
        let name = || {
            File::open(&self.0)?.sync_all()?;
            for beside in SQLITE_FILE_SUFFIXES {
                ignore_missing(fs::remove_file(with_suffix(to, beside)))?;
            }
            File::open(parent_dir(to))?.sync_all()?;
            fs::rename(&self.0, to)?;
            File::open(parent_dir(to))?.sync_all()
        };
        name().map_err(|error: io::Error| io_error(error, &to.to_string_lossy()))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
        for beside in SQLITE_FILE_SUFFIXES {
            _ = fs::remove_file(with_suffix(&self.0, beside));
        }
    }
}

type Connect = fn(&Path, Duration) -> rusqlite::Result<Connection>;

/// Copies all pages as they are at one moment into an empty file.
fn copy(
    (from, open): (&Path, Connect),
    to: &Path,
    progress: &mut dyn FnMut(f64),
) -> Result<(), StoreError> {
    let at = from.to_string_lossy();
    let from = resolve(from).map_err(|error| io_error(error, &at))?;
    if inspect_header(&from, &at)? == FileKind::Missing {
        return Err(CommitError::Corrupt("there is no store".to_owned()).to_store_error(&at));
    }
    let source = open(&from, BUSY_TIMEOUT).map_err(|error| sql_error(error, &at))?;
    schema::read_version(&source, &at, schema::MIGRATIONS)?;
    let written = to.to_string_lossy();
    let mut target = connect::backup_target(to).map_err(|error| sql_error(error, &written))?;
    // The open snapshot keeps commits of others from starting the copy over.
    let copied = snapshot(&source, |tx| {
        tx.conn.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
        copy_pages(tx.conn, &mut target, progress)
    });
    copied.map_err(|fault| fault.into_store_error(&at))
}

fn copy_pages(
    source: &Connection,
    target: &mut Connection,
    progress: &mut dyn FnMut(f64),
) -> Result<(), CommandError> {
    let backup = Backup::new(source, target)?;
    loop {
        let step = backup.step(PAGES_PER_STEP)?;
        let left = backup.progress();
        progress(1.0 - f64::from(left.remaining) / f64::from(left.pagecount.max(1)));
        if step == StepResult::Done {
            return Ok(());
        }
        if step != StepResult::More {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Gives a store a second name, with the log that belongs to it. It has its own name
/// until another file gets that, so that there is a store at every moment.
fn keep_previous(store: &Path) -> io::Result<Option<PathBuf>> {
    if !store.try_exists()? {
        return Ok(None);
    }
    // A store that is whole is kept as one file; a damaged one as it is.
    if let Ok(conn) = connect::writer(store, BUSY_TIMEOUT) {
        _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
    }
    let free = (1..=REPLACED_NAMES_MAX)
        .map(|number| with_suffix(store, &format!(".replaced-{number}")))
        .find(|kept| !kept.exists());
    let kept = free.ok_or(io::ErrorKind::AlreadyExists)?;
    for beside in SQLITE_FILE_SUFFIXES.into_iter().chain([""]) {
        let (old, new) = (with_suffix(store, beside), with_suffix(&kept, beside));
        // Some file systems have no second names.
        let linked = fs::hard_link(&old, &new).or_else(|_| fs::rename(&old, &new));
        ignore_missing(linked)?;
    }
    File::open(parent_dir(store))?.sync_all()?;
    Ok(Some(kept))
}

/// The result, where a file that is not there is no error.
fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The path with this at the end of its name.
fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
