//! The file lock that makes one process the driver of a store. The kernel releases the lock when
//! the process ends, however it ends.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use longhaul_core::port::store::StoreError;

use crate::sqlite::error::store_error_from_io;
use crate::sqlite::location::{parent_dir, private_file_options, resolve_symlinks};

/// Name of the lock file, in the directory of the database.
const LOCK_FILE_NAME: &str = "driver.lock";
/// Maximum number of attempts to acquire the driver lock (the right to execute the runs of a
/// store), with a delay between them.
const LOCK_ATTEMPTS_MAX: u32 = 5;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(4);
/// Maximum number of bytes that are read of the description of the lock's holder.
const HOLDER_BYTES_MAX: u64 = 1_024;

/// The driver lock of a store, held while this process is the store's driver (executes its runs).
#[derive(Debug)]
pub(crate) struct DriverProcessLock {
    file: File,
}

impl Drop for DriverProcessLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being spawned holds a copy of
        // the file descriptor until its exec.
        _ = self.file.unlock();
    }
}

impl DriverProcessLock {
    /// Acquires the driver lock (the right to execute the runs of a store) in a directory, and
    /// writes the holder's description into the lock file.
    pub(crate) fn acquire(folder: &Path, location: &str, holder: &str) -> Result<Self, StoreError> {
        let mut file =
            open_lock_file(folder).map_err(|error| store_error_from_io(error, location))?;
        match try_lock(&file) {
            Ok(()) => {
                write_lock_holder(&mut file, holder)
                    .map_err(|error| store_error_from_io(error, location))?;
                Ok(Self { file })
            }
            Err(TryLockError::WouldBlock) => Err(StoreError::AlreadyDriven {
                location: location.to_owned(),
                holder: read_lock_holder(&mut file),
            }),
            Err(TryLockError::Error(error)) => Err(store_error_from_io(error, location)),
        }
    }
}

/// The driver lock of an open store, which this process can release and acquire again while the
/// store stays open.
#[derive(Debug)]
pub(crate) struct ReacquirableDriverLock {
    folder: PathBuf,
    location: Arc<str>,
    /// Description of this process. Another process that can't get the lock shows it in its error.
    holder: String,
    /// The driver lock of the store. `None` means that this process does not hold it.
    lock: Mutex<Option<DriverProcessLock>>,
}

impl ReacquirableDriverLock {
    /// Creates the slot for the driver lock of the store in this directory, without acquiring the
    /// lock.
    pub(crate) fn new_unheld(folder: &Path, location: &Arc<str>, holder: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            location: Arc::clone(location),
            holder: holder.to_owned(),
            lock: Mutex::new(None),
        }
    }

    /// Acquires the driver lock of the store. Does nothing if this process already holds it.
    pub(crate) fn acquire(&self) -> Result<(), StoreError> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            *lock = Some(DriverProcessLock::acquire(&self.folder, &self.location, &self.holder)?);
        }
        Ok(())
    }

    /// Releases the driver lock of the store. Does nothing if this process does not hold it.
    pub(crate) fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Returns whether this process holds the driver lock of the store.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Returns whether some process is the driver of the store in this file, and so executes its runs.
/// Writes nothing.
pub fn store_has_driver_process(file: &Path) -> Result<bool, StoreError> {
    Ok(driver_process_description(file)?.is_some())
}

/// Returns the description of the process that is the driver of the store in this file. `None`
/// means that the store has no driver now. Writes nothing.
pub fn driver_process_description(file: &Path) -> Result<Option<String>, StoreError> {
    let at = file.to_string_lossy();
    let database_path = resolve_symlinks(file).map_err(|error| store_error_from_io(error, &at))?;
    let mut lock = match File::open(parent_dir(&database_path).join(LOCK_FILE_NAME)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(store_error_from_io(error, &at)),
    };
    match lock.try_lock_shared() {
        Ok(()) => {
            _ = lock.unlock();
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => Ok(Some(read_lock_holder(&mut lock))),
        Err(TryLockError::Error(error)) => Err(store_error_from_io(error, &at)),
    }
}

/// Tries several times to acquire the lock, because a process that only checks the lock also holds
/// it for a moment.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if attempts < LOCK_ATTEMPTS_MAX => {
                thread::sleep(LOCK_RETRY_DELAY)
            }
            result => return result,
        }
    }
}

/// Opens the lock file. The directory may be untrusted, so a symbolic link in place of the lock
/// file is not followed: its target would be overwritten.
fn open_lock_file(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK_FILE_NAME);
    if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        let path = path.display();
        return Err(io::Error::other(format!("`{path}` is not a regular file; remove it")));
    }
    let mut options = private_file_options();
    options.create(true).truncate(false).read(true).write(true);
    options.open(path)
}

fn write_lock_holder(file: &mut File, holder: &str) -> io::Result<()> {
    let pid = std::process::id();
    let line = match holder {
        "" => format!("pid {pid}\n"),
        _ => format!("pid {pid}, {holder}\n"),
    };
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(line.as_bytes())
}

/// Reads the holder's description from the lock file. Returns a general description if the holder
/// has not written its own yet.
fn read_lock_holder(file: &mut File) -> String {
    let mut text = String::new();
    _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    match text.trim() {
        "" => "another process".to_owned(),
        holder => holder.to_owned(),
    }
}
