//! The lock that makes one process the driver of a folder's store.
//!
//! Never: a lock that outlives its process. The kernel frees it, whatever happens.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use longhaul_core::port::store::StoreError;

use crate::sqlite::error::io_error;
use crate::sqlite::location::{parent_dir, private_file_options, resolve};

/// The file's name, beside the database.
const LOCK_FILE_NAME: &str = "driver.lock";
/// So often is the lock tried for, with a pause between.
const LOCK_ATTEMPTS_MAX: u32 = 5;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(4);
/// So much is read of what the holder wrote down.
const HOLDER_BYTES_MAX: u64 = 1_024;

/// Held while this process drives.
#[derive(Debug)]
pub(crate) struct DriverLock {
    file: File,
}

impl Drop for DriverLock {
    fn drop(&mut self) {
        // Closing the file would not be enough: a program that is being started
        // at this moment holds a copy of it until it has begun.
        _ = self.file.unlock();
    }
}

impl DriverLock {
    /// Takes the lock of a folder and writes down who has it.
    pub(crate) fn acquire(folder: &Path, at: &str, holder: &str) -> Result<Self, StoreError> {
        let mut file = open_lock_file(folder).map_err(|error| io_error(error, at))?;
        match try_lock(&file) {
            Ok(()) => {
                write_holder(&mut file, holder).map_err(|error| io_error(error, at))?;
                Ok(Self { file })
            }
            Err(TryLockError::WouldBlock) => {
                Err(StoreError::AlreadyDriven { at: at.to_owned(), holder: read_holder(&mut file) })
            }
            Err(TryLockError::Error(error)) => Err(io_error(error, at)),
        }
    }
}

/// Whether a process drives the store in this file. Nothing is written.
pub fn is_driven(file: &Path) -> Result<bool, StoreError> {
    Ok(current_driver(file)?.is_some())
}

/// Who drives the store in this file, as they wrote themselves down; none:
/// nobody does. Nothing is written.
pub fn current_driver(file: &Path) -> Result<Option<String>, StoreError> {
    let at = file.to_string_lossy();
    let found = resolve(file).map_err(|error| io_error(error, &at))?;
    let mut lock = match File::open(parent_dir(&found).join(LOCK_FILE_NAME)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(error, &at)),
    };
    match lock.try_lock_shared() {
        Ok(()) => {
            _ = lock.unlock();
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => Ok(Some(read_holder(&mut lock))),
        Err(TryLockError::Error(error)) => Err(io_error(error, &at)),
    }
}

/// Tries for the lock: whoever only looks whether it is taken holds it for a
/// moment, and that is no driver.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries < LOCK_ATTEMPTS_MAX => {
                thread::sleep(LOCK_RETRY_DELAY)
            }
            tried => return tried,
        }
    }
}

/// A folder may come from a stranger: a link in the place of the lock is not
/// followed, or we would write over whatever it leads to.
fn open_lock_file(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK_FILE_NAME);
    if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
        let path = path.display();
        return Err(io::Error::other(format!("`{path}` is no regular file: remove it")));
    }
    let mut options = private_file_options();
    options.create(true).truncate(false).read(true).write(true);
    options.open(path)
}

fn write_holder(file: &mut File, holder: &str) -> io::Result<()> {
    let pid = std::process::id();
    let line = match holder {
        "" => format!("pid {pid}\n"),
        _ => format!("pid {pid}, {holder}\n"),
    };
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(line.as_bytes())
}

/// Who has it, as it wrote itself down; it may not have come to that yet.
fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    match text.trim() {
        "" => "another process".to_owned(),
        holder => holder.to_owned(),
    }
}
