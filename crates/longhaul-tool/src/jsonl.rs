//! A JSON lines file that several processes append to.
//!
//! Invariant: a line is written completely and synced to disk before the append returns. Existing
//! lines are not changed, symbolic links are not followed, and a last line that a crash left
//! incomplete is tolerated.

mod index;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;
use tracing::{debug, trace};

use crate::jsonl::index::LineKeyIndex;
use crate::location::FileLocation;
use crate::openat::{is_regular_file, lock_handle_if_supported, open_file};
use crate::safe_dir::FsError;

/// Maximum length of a line in bytes. A longer line was not written by us and is skipped.
const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum number of attempts to open a JSON lines file that other processes move away meanwhile.
const OPEN_TRIES: u32 = 10;
/// Maximum number of bytes at the end of the JSON lines file that are not indexed yet and are read
/// line by line.
const TAIL_BYTES_MAX: u64 = 64 * 1024;

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
    pub(crate) fn lock_or_create_file(&self) -> Result<LockedJsonLines, FsError> {
        let (folder, name) = self.0.create_and_open_parent_with_file_name()?;
        let is_new = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
        let locked_file = open_and_lock_json_lines(folder, name, OFlags::CREATE)?;
        if is_new {
            sys::fsync(&locked_file.folder)?;
        }
        Ok(locked_file)
    }

    /// Opens and locks the file. `None` if the file does not exist.
    pub(crate) fn lock_existing_file(&self) -> Result<Option<LockedJsonLines>, FsError> {
        let (folder, name) = match self.0.open_parent_with_file_name() {
            Err(Errno::NOENT) => return Ok(None),
            result => result?,
        };
        match open_and_lock_json_lines(folder, name, OFlags::empty()) {
            Err(FsError::NotFound) => Ok(None),
            result => result.map(Some),
        }
    }
}

/// Opens the file `name` in `folder`, and locks it. `extra_flags` are added to the open flags.
fn open_and_lock_json_lines(
    folder: OwnedFd,
    name: &OsStr,
    extra_flags: OFlags,
) -> Result<LockedJsonLines, FsError> {
    let flags = OFlags::RDWR | OFlags::APPEND | extra_flags;
    for _ in 0..OPEN_TRIES {
        let (handle, file_stat) = open_file(&folder, name, flags, Mode::from_raw_mode(0o600))?;
        if !is_regular_file(&file_stat) {
            return Err(FsError::NotRegular);
        }
        let file = File::from(handle);
        let is_locked = lock_handle_if_supported(&file)?;
        // Another process may have moved or removed the file while we waited for the lock.
        let path_stat = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_same = |path_stat: sys::Stat| {
            (path_stat.st_dev, path_stat.st_ino) == (file_stat.st_dev, file_stat.st_ino)
        };
        if path_stat.is_ok_and(is_same) {
            return Ok(LockedJsonLines {
                file,
                folder,
                index: is_locked.then(|| index_file_name(name)),
            });
        }
    }
    Err(FsError::Busy)
}

/// Returns the name of the index file for a JSON lines file. Agents can't access a file with that
/// name.
fn index_file_name(name: &OsStr) -> OsString {
    format!(".longhaul-{}.index", name.to_string_lossy()).into()
}

/// An open and locked JSON lines file. Dropping it releases the lock, and so does a crash.
#[derive(Debug)]
pub(crate) struct LockedJsonLines {
    file: File,
    /// Directory that contains the file and its index.
    folder: OwnedFd,
    /// Name of the index file. `None` without a lock, because the index is used only under the
    /// lock.
    index: Option<OsString>,
}

/// The lines with one key, in file order.
#[derive(Debug, Default)]
pub(crate) struct LinesWithKey {
    /// The parsed lines.
    pub(crate) lines: Vec<Value>,
    /// Number of bytes of the file that were read to find the lines.
    bytes_read: u64,
}

/// The `key` field of a JSON line, which is read before the whole line is parsed.
#[derive(Deserialize)]
struct LineKeyField<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
}

impl LockedJsonLines {
    /// Returns the first line of the file. `None` if that line is not JSON.
    pub(crate) fn first_line_json(&self) -> Result<Option<Value>, FsError> {
        Ok(serde_json::from_slice(&self.read_line_at(0)?).ok())
    }

    /// Returns whether the file is empty.
    pub(crate) fn is_empty(&self) -> Result<bool, FsError> {
        Ok(self.file.metadata()?.len() == 0)
    }

    /// Returns every line that has this key, skipping lines that are not JSON. The index limits how
    /// much is read, however long the file is.
    pub(crate) fn find_lines_by_key(&self, key: &str) -> Result<LinesWithKey, FsError> {
        let length = self.file.metadata()?.len();
        let mut matches = LinesWithKey::default();
        let Some(index) = self.index.as_ref().filter(|_| length > TAIL_BYTES_MAX) else {
            self.scan_lines_for_key(0, key, &mut matches)?;
            return Ok(matches);
        };
        if let Err(error) = self.find_indexed_lines(index, key, &mut matches) {
            debug!(index = %index.display(), %error, "index is not usable; reading the whole file");
            matches = LinesWithKey::default();
            self.scan_lines_for_key(0, key, &mut matches)?;
        }
        trace!(bytes = matches.bytes_read, "key lookup");
        Ok(matches)
    }

    fn find_indexed_lines(
        &self,
        index: &OsStr,
        key: &str,
        matches: &mut LinesWithKey,
    ) -> io::Result<()> {
        let mut index = LineKeyIndex::open((&self.folder, index), &self.file)?;
        if self.file.metadata()?.len() - index.indexed_byte_count() > TAIL_BYTES_MAX {
            let mut indexed_bytes = index.indexed_byte_count();
            matches.bytes_read +=
                self.for_each_line(index.indexed_byte_count(), |offset, line| {
                    if let Ok(LineKeyField { key }) = serde_json::from_slice(line) {
                        index.add_line_offset(&key, offset)?;
                    }
                    if line.ends_with(b"\n") {
                        indexed_bytes = offset + line.len() as u64;
                    }
                    Ok(())
                })?;
            index.set_indexed_byte_count(indexed_bytes)?;
        }
        for offset in index.find_line_offsets(key)? {
            let line = self.read_line_at(offset)?;
            matches.bytes_read += line.len() as u64;
            matches.lines.extend(parse_line_with_key(&line, key));
        }
        self.scan_lines_for_key(index.indexed_byte_count(), key, matches)
    }

    /// Reads the lines with this key from byte `start_offset` on, and adds them to `matches`.
    fn scan_lines_for_key(
        &self,
        start_offset: u64,
        key: &str,
        matches: &mut LinesWithKey,
    ) -> io::Result<()> {
        let lines = &mut matches.lines;
        matches.bytes_read += self.for_each_line(start_offset, |_, line| {
            lines.extend(parse_line_with_key(line, key));
            Ok(())
        })?;
        Ok(())
    }

    fn read_line_at(&self, offset: u64) -> io::Result<Vec<u8>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))?;
        let mut line = Vec::new();
        BufReader::new(file.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
        Ok(line)
    }

    /// Calls a closure with each line from an offset on, and with the offset where the line starts.
    /// Returns the number of bytes read.
    fn for_each_line(
        &self,
        start_offset: u64,
        mut on_line: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(start_offset))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let (mut line, mut offset) = (Vec::new(), start_offset);
        loop {
            line.clear();
            let count = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(offset - start_offset);
            }
            on_line(offset, &line)?;
            offset += count as u64;
        }
    }

    /// Appends a value as one line and syncs it to disk.
    pub(crate) fn append_json_line(&self, value: &Value) -> Result<(), FsError> {
        let length = self.file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            self.file.read_exact_at(&mut last, length - 1)?;
        }
        // An incomplete line after a crash stays on a line of its own and is skipped.
        let separator = if last == *b"\n" { "" } else { "\n" };
        let result = self.write_line(&format!("{separator}{value}\n"));
        if result.is_err() {
            // For example on a full disk: no line is better than half a line.
            _ = self.file.set_len(length);
        }
        Ok(result?)
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}

/// Parses a line of the file if its `key` field has this value. `None` means that it has not, or
/// that the line is not JSON.
fn parse_line_with_key(line: &[u8], key: &str) -> Option<Value> {
    // Most lines have another key and need not be parsed.
    let text = std::str::from_utf8(line).ok().filter(|text| text.contains(key))?;
    let value: Value = serde_json::from_str(text).ok()?;
    (value["key"] == key).then_some(value)
}

#[cfg(test)]
mod tests;
