//! A JSON lines file that several processes append to, whose lines are found by their key.
//!
//! Invariant: a line is written completely and synced to disk before the append returns. Existing
//! lines are not changed, symbolic links are not followed, and a last line that a crash left
//! incomplete is tolerated.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use memchr::memmem::Finder;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::location::{FileLocation, is_regular_file, lock_handle_if_supported, open_file};
use crate::safe_dir::FsError;

/// Maximum length of a line in bytes. A longer line was not written by us and is skipped.
const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Size of the buffer for reading a file.
const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum number of attempts to open a JSON lines file that other processes move away meanwhile.
const OPEN_TRIES: u32 = 10;

/// A JSON lines file by its location; it is opened for each access.
#[derive(Debug, Clone)]
pub(crate) struct JsonLinesFile(Arc<FileLocation>);

impl JsonLinesFile {
    pub(crate) fn new(location: FileLocation) -> Self {
        Self(Arc::new(location))
    }

    /// Returns the path of the file, for messages.
    pub(crate) fn display_path(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Opens and locks the file, creating it if it is missing.
    pub(crate) fn lock_or_create(&self) -> Result<LockedJsonLines, FsError> {
        self.0.create_and_open_parent_with_file_name()?;
        self.lock(OFlags::CREATE)
    }

    /// Opens and locks the file. `None` if the file does not exist.
    pub(crate) fn lock_existing(&self) -> Result<Option<LockedJsonLines>, FsError> {
        match self.lock(OFlags::empty()) {
            Err(FsError::NotFound) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Opens and locks the file. `extra_flags` are added to the open flags.
    fn lock(&self, extra_flags: OFlags) -> Result<LockedJsonLines, FsError> {
        let (folder, name) = self.0.open_parent_with_file_name()?;
        let flags = OFlags::RDWR | OFlags::APPEND | extra_flags;
        for _ in 0..OPEN_TRIES {
            let (handle, stat) = open_file(&folder, name, flags, Mode::from_raw_mode(0o600))?;
            if !is_regular_file(&stat) {
                return Err(FsError::NotRegular);
            }
            lock_handle_if_supported(&handle)?;
            // Another process may have moved or removed the file while we waited for the lock.
            match sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(now) if (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino) => {}
                Ok(_) | Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if stat.st_size == 0 {
                // The name of a new file must survive a crash together with its first line.
                sys::fsync(&folder)?;
            }
            return Ok(LockedJsonLines(File::from(handle)));
        }
        Err(FsError::Busy)
    }
}

/// An open and locked JSON lines file. Dropping it releases the lock, and so does a crash.
#[derive(Debug)]
pub(crate) struct LockedJsonLines(File);

impl LockedJsonLines {
    /// Returns the first line of the file. `None` if the file is empty or that line is not JSON.
    pub(crate) fn first_line(&self) -> Result<Option<Value>, FsError> {
        let mut first = None;
        self.for_each_line(|line| {
            first = serde_json::from_slice(line).ok();
            false
        })?;
        Ok(first)
    }

    /// Returns whether the file is empty.
    pub(crate) fn is_empty(&self) -> Result<bool, FsError> {
        Ok(self.0.metadata()?.len() == 0)
    }

    /// Returns every line that has this key, in file order, skipping lines that are not JSON. The
    /// whole file is read, but only lines that contain the key are parsed.
    pub(crate) fn lines_with_key(&self, key: &str) -> Result<Vec<Value>, FsError> {
        let (finder, mut found) = (Finder::new(key), Vec::new());
        self.for_each_line(|line| {
            if finder.find(line).is_some() {
                let value: Option<Value> = serde_json::from_slice(line).ok();
                found.extend(value.filter(|value| value["key"] == key));
            }
            true
        })?;
        Ok(found)
    }

    /// Calls a closure with each line, until it returns `false`.
    fn for_each_line(&self, mut on_line: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        let mut file = &self.0;
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if count == 0 || !on_line(&line) {
                return Ok(());
            }
        }
    }

    /// Appends a value as one line and syncs it to disk.
    pub(crate) fn append(&self, value: &Value) -> Result<(), FsError> {
        let length = self.0.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            self.0.read_exact_at(&mut last, length - 1)?;
        }
        // An incomplete line after a crash stays on a line of its own and is skipped.
        let separator = if last == *b"\n" { "" } else { "\n" };
        let mut file = &self.0;
        let line = format!("{separator}{value}\n");
        let result = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        if result.is_err() {
            // For example on a full disk: no line is better than half a line.
            _ = self.0.set_len(length);
        }
        Ok(result?)
    }
}

#[cfg(test)]
mod tests;
