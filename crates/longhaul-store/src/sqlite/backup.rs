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
use crate::sqlite::fault::{Fault, Lost, io_error, sql_error};
use crate::sqlite::lock::DriverLock;
use crate::sqlite::place::{Found, folder, inspect, private, resolve};
use crate::sqlite::schema;

/// Number of pages that are copied between two reports of progress.
const PAGES: i32 = 1_024;
/// How long another process that holds the file is waited for.
const BUSY: Duration = Duration::from_secs(5);
/// Maximum number of names that are tried for a store that is kept.
const KEPT_MAX: u32 = 1_000;
/// What SQLite keeps beside a database. It belongs to the file that had the name when
/// it was written: beside another one it would be replayed into that.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

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
    let temp = Temp::new(to)?;
    copy((from, connect::looker), &temp.0, progress)?;
    let report = check(&temp.0, journals)?;
    if let Some(problem) = report.damaged_pages() {
        let why = format!("the copy is not whole: {}", problem.what);
        return Err(Lost::Corrupt(why).error(&from.to_string_lossy()));
    }
    temp.name(to)?;
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
    let lock = DriverLock::take(folder(&store), &at, "longhaul db restore")?;
    let temp = Temp::new(&store)?;
    copy((from, connect::inspector), &temp.0, &mut |_| ())?;
    let report = check(&temp.0, journals)?;
    if let Some(problem) = report.damaged_pages() {
        return Err(Lost::Corrupt(problem.what.clone()).error(&from.to_string_lossy()));
    }
    let kept = set_aside(&store).map_err(failed)?;
    temp.name(&store)?;
    drop(lock);
    Ok((report, kept))
}

/// A new file beside the one that it becomes, removed unless it becomes that.
struct Temp(PathBuf);

impl Temp {
    fn new(to: &Path) -> Result<Self, StoreError> {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let temp = to.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        _ = fs::remove_file(&temp);
        let made = private().write(true).create_new(true).open(&temp);
        made.map_err(|error| io_error(error, &to.to_string_lossy()))?;
        Ok(Self(temp))
    }

    /// Syncs the file and gives it its name. What is beside the file that had this name
    /// is removed before.
    fn name(&self, to: &Path) -> Result<(), StoreError> {
        let name = || {
            File::open(&self.0)?.sync_all()?;
            for beside in BESIDE {
                unless_missing(fs::remove_file(suffixed(to, beside)))?;
            }
            File::open(folder(to))?.sync_all()?;
            fs::rename(&self.0, to)?;
            File::open(folder(to))?.sync_all()
        };
        name().map_err(|error: io::Error| io_error(error, &to.to_string_lossy()))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
        for beside in BESIDE {
            _ = fs::remove_file(suffixed(&self.0, beside));
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
    if inspect(&from, &at)? == Found::Nothing {
        return Err(Lost::Corrupt("there is no store".to_owned()).error(&at));
    }
    let source = open(&from, BUSY).map_err(|error| sql_error(error, &at))?;
    schema::found(&source, &at)?;
    let written = to.to_string_lossy();
    let mut target = connect::copy(to).map_err(|error| sql_error(error, &written))?;
    // The open snapshot keeps commits of others from starting the copy over.
    let copied = snapshot(&source, |tx| {
        tx.conn
            .query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
        steps(tx.conn, &mut target, progress)
    });
    copied.map_err(|fault| fault.into_error(&at))
}

fn steps(
    source: &Connection,
    target: &mut Connection,
    progress: &mut dyn FnMut(f64),
) -> Result<(), Fault> {
    let backup = Backup::new(source, target)?;
    loop {
        let step = backup.step(PAGES)?;
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
fn set_aside(store: &Path) -> io::Result<Option<PathBuf>> {
    if !store.try_exists()? {
        return Ok(None);
    }
    // A store that is whole is kept as one file; a damaged one as it is.
    if let Ok(conn) = connect::writer(store, BUSY) {
        _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
    }
    let free = (1..=KEPT_MAX)
        .map(|number| suffixed(store, &format!(".replaced-{number}")))
        .find(|kept| !kept.exists());
    let kept = free.ok_or(io::ErrorKind::AlreadyExists)?;
    for beside in BESIDE.into_iter().chain([""]) {
        let (old, new) = (suffixed(store, beside), suffixed(&kept, beside));
        // Some file systems have no second names.
        let linked = fs::hard_link(&old, &new).or_else(|_| fs::rename(&old, &new));
        unless_missing(linked)?;
    }
    File::open(folder(store))?.sync_all()?;
    Ok(Some(kept))
}

/// The result, where a file that is not there is no error.
fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The path with this at the end of its name.
fn suffixed(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
