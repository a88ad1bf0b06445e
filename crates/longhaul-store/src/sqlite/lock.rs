//! The lock that makes one process the driver of a folder's store.
//!
//! Never: a lock that outlives its process. The kernel frees it, whatever happens.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use longhaul_core::port::store::StoreError;

use crate::sqlite::fault::io_error;

/// The file's name, beside the database.
const NAME: &str = "driver.lock";
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
    pub(crate) fn take(folder: &Path, at: &str, holder: &str) -> Result<Self, StoreError> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(folder.join(NAME))
            .map_err(|error| io_error(error, at))?;
        match file.try_lock() {
            Ok(()) => {
                write_down(&mut file, holder).map_err(|error| io_error(error, at))?;
                Ok(Self { file })
            }
            Err(TryLockError::WouldBlock) => Err(StoreError::Driven {
                at: at.to_owned(),
                holder: who(&mut file),
            }),
            Err(TryLockError::Error(error)) => Err(io_error(error, at)),
        }
    }
}

fn write_down(file: &mut File, holder: &str) -> std::io::Result<()> {
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
fn who(file: &mut File) -> String {
    let mut text = String::new();
    _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    match text.trim() {
        "" => "another process".to_owned(),
        holder => holder.to_owned(),
    }
}
