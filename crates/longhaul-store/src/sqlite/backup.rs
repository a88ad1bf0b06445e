//! Copies a store that may be in use, and restores a store from a copy.
//!
//! Invariant: a file appears under its final name only when it is complete, checked and on disk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::port::store::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::sqlite::check::{JournalChecker, StoreCheckReport, check_store, query_in_snapshot};
use crate::sqlite::connect;
use crate::sqlite::error::{
    CommitError, WriteCommandError, store_error_from_io, store_error_from_sql,
};
use crate::sqlite::location::{
    StoreFileKind, parent_dir, private_file_options, read_store_file_kind, resolve_symlinks,
};
use crate::sqlite::lock::DriverProcessLock;
use crate::sqlite::schema;

/// Number of pages copied between two progress reports.
const PAGES_PER_STEP: i32 = 1_024;
/// How long to wait for another process that holds a lock on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of file names that are tried for keeping the store that a restore replaces.
const REPLACED_NAMES_MAX: u32 = 1_000;
/// Suffixes of the files that SQLite keeps beside a database. They belong to the database file that
/// they were written for; beside any other database file, SQLite would replay them into that file.
const SQLITE_FILE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Copies the store `from` to `to` as one consistent snapshot, checks the copy and renames it to
/// its final name. Other processes may read and write meanwhile. An existing file `to` is replaced.
/// Problems in rows and journals are copied and reported; corrupt pages are an error. `progress` is
/// called with the copied share, from 0 to 1.
pub fn back_up_store(
    from: &Path,
    to: &Path,
    journals: &mut dyn JournalChecker,
    progress: &mut dyn FnMut(f64),
) -> Result<StoreCheckReport, StoreError> {
    let temp = TempFile::create_next_to(to)?;
    copy_store_snapshot((from, connect::open_reader_with_immutable_fallback), &temp.0, progress)?;
    let report = check_store(&temp.0, journals)?;
    if let Some(problem) = report.find_database_page_problem() {
        let reason = format!("the copy is corrupt: {}", problem.message);
        return Err(CommitError::Corrupt(reason).to_store_error(&from.to_string_lossy()));
    }
    temp.persist(to)?;
    Ok(report)
}

/// Replaces the store `store` with a copy of `from`. Fails if a process holds the driver lock of
/// the store. Returns the report of checking the copy, and the new path of the replaced store, or
/// `None` if there was no store to replace.
pub fn restore_store(
    from: &Path,
    store: &Path,
    journals: &mut dyn JournalChecker,
) -> Result<(StoreCheckReport, Option<PathBuf>), StoreError> {
    let at = store.to_string_lossy();
    let failed = |error| store_error_from_io(error, &at);
    let store = resolve_symlinks(store).map_err(failed)?;
    let lock = DriverProcessLock::acquire(parent_dir(&store), &at, "longhaul db restore")?;
    let temp = TempFile::create_next_to(&store)?;
    copy_store_snapshot((from, connect::open_reader_without_side_files), &temp.0, &mut |_| ())?;
    let report = check_store(&temp.0, journals)?;
    if let Some(problem) = report.find_database_page_problem() {
        return Err(
            CommitError::Corrupt(problem.message.clone()).to_store_error(&from.to_string_lossy())
        );
    }
    let previous = keep_previous_store_under_other_name(&store).map_err(failed)?;
    temp.persist(&store)?;
    drop(lock);
    Ok((report, previous))
}

/// A temporary file next to its final path. The file is deleted on drop unless it was renamed.
struct TempFile(PathBuf);

impl TempFile {
    fn create_next_to(final_path: &Path) -> Result<Self, StoreError> {
        let name = final_path.file_name().unwrap_or_default().to_string_lossy();
        let temp = final_path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        _ = fs::remove_file(&temp);
        let result = private_file_options().write(true).create_new(true).open(&temp);
        result.map_err(|error| store_error_from_io(error, &final_path.to_string_lossy()))?;
        Ok(Self(temp))
    }

    /// Syncs the temporary file and renames it to its final path. The SQLite files that belong to
    /// the replaced file are deleted first.
    fn persist(&self, final_path: &Path) -> Result<(), StoreError> {
        let name = || {
            File::open(&self.0)?.sync_all()?;
            for suffix in SQLITE_FILE_SUFFIXES {
                ignore_missing_file_error(fs::remove_file(path_with_suffix(final_path, suffix)))?;
            }
            File::open(parent_dir(final_path))?.sync_all()?;
            fs::rename(&self.0, final_path)?;
            File::open(parent_dir(final_path))?.sync_all()
        };
        name().map_err(|error: io::Error| store_error_from_io(error, &final_path.to_string_lossy()))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
        for suffix in SQLITE_FILE_SUFFIXES {
            _ = fs::remove_file(path_with_suffix(&self.0, suffix));
        }
    }
}

type Connect = fn(&Path, Duration) -> rusqlite::Result<Connection>;

/// Copies all pages of one consistent snapshot into an empty file.
fn copy_store_snapshot(
    (from, open): (&Path, Connect),
    to: &Path,
    progress: &mut dyn FnMut(f64),
) -> Result<(), StoreError> {
    let at = from.to_string_lossy();
    let from = resolve_symlinks(from).map_err(|error| store_error_from_io(error, &at))?;
    if read_store_file_kind(&from, &at)? == StoreFileKind::Missing {
        return Err(CommitError::Corrupt("no store found".to_owned()).to_store_error(&at));
    }
    let source = open(&from, BUSY_TIMEOUT).map_err(|error| store_error_from_sql(error, &at))?;
    schema::read_schema_version(&source, &at, schema::MIGRATIONS)?;
    let target_path = to.to_string_lossy();
    let mut target = connect::open_backup_target_connection(to)
        .map_err(|error| store_error_from_sql(error, &target_path))?;
    // The open snapshot keeps commits of other processes from restarting the copy.
    let copied = query_in_snapshot(&source, |tx| {
        tx.conn.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
        copy_database_pages(tx.conn, &mut target, progress)
    });
    copied.map_err(|error| error.into_store_error(&at))
}

fn copy_database_pages(
    source: &Connection,
    target: &mut Connection,
    progress: &mut dyn FnMut(f64),
) -> Result<(), WriteCommandError> {
    let backup = Backup::new(source, target)?;
    loop {
        let step = backup.step(PAGES_PER_STEP)?;
        let status = backup.progress();
        progress(1.0 - f64::from(status.remaining) / f64::from(status.pagecount.max(1)));
        if step == StepResult::Done {
            return Ok(());
        }
        if step != StepResult::More {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Keeps the store that a restore is about to replace: gives its files a second name and returns
/// that path. `None` means that there is no store. The store keeps its own name until another file
/// replaces it.
fn keep_previous_store_under_other_name(store_path: &Path) -> io::Result<Option<PathBuf>> {
    if !store_path.try_exists()? {
        return Ok(None);
    }
    // A healthy store is kept as one file, a corrupt one as it is.
    if let Ok(conn) = connect::open_writer_connection(store_path, BUSY_TIMEOUT) {
        _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
    }
    let unused_path = (1..=REPLACED_NAMES_MAX)
        .map(|number| path_with_suffix(store_path, &format!(".replaced-{number}")))
        .find(|previous| !previous.exists());
    let previous = unused_path.ok_or(io::ErrorKind::AlreadyExists)?;
    for suffix in SQLITE_FILE_SUFFIXES.into_iter().chain([""]) {
        let (old, new) =
            (path_with_suffix(store_path, suffix), path_with_suffix(&previous, suffix));
        // Some file systems have no hard links.
        let result = fs::hard_link(&old, &new).or_else(|_| fs::rename(&old, &new));
        ignore_missing_file_error(result)?;
    }
    File::open(parent_dir(store_path))?.sync_all()?;
    Ok(Some(previous))
}

/// Treats the error that a file does not exist as success.
fn ignore_missing_file_error(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Returns the path with a suffix added to its file name.
fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
