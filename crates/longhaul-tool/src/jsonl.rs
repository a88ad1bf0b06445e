//! A file of JSON lines that several processes add to, each line whole and on
//! the disk before anybody goes on.
//!
//! Never: changes a line that stands, follows a link, or stumbles over a last
//! line that a crash has torn.

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

use crate::jsonl::index::Index;
use crate::location::Location;
use crate::openat::{is_regular, lock, open_file};
use crate::safe_dir::FsError;

/// A line that is longer was not written by us, and is passed over.
const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How often a file is opened again that was moved away while the lock was waited for.
const OPEN_TRIES: u32 = 10;
/// Maximum number of bytes at the end of the file that are read line by line
/// instead of being in the index.
const TAIL_BYTES_MAX: u64 = 64 * 1024;

/// Where the file is.
#[derive(Debug, Clone)]
pub(crate) struct JsonLinesFile(Arc<Location>);

impl JsonLinesFile {
    pub(crate) fn new(location: Location) -> Self {
        Self(Arc::new(location))
    }

    /// The path, for messages.
    pub(crate) fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Opens the file while nobody else does; made where it is missing.
    pub(crate) fn lock(&self) -> Result<LockedJsonLines, FsError> {
        let (folder, name) = self.0.make_parent()?;
        let is_new = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
        let held = open_locked(folder, name, OFlags::CREATE)?;
        if is_new {
            sys::fsync(&held.folder)?;
        }
        Ok(held)
    }

    /// Opens the file while nobody else does, if it is there.
    pub(crate) fn lock_existing(&self) -> Result<Option<LockedJsonLines>, FsError> {
        let (folder, name) = match self.0.open_parent() {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        match open_locked(folder, name, OFlags::empty()) {
            Err(FsError::NotFound) => Ok(None),
            held => held.map(Some),
        }
    }
}

/// Opens the file `name` in `folder`, and locks it.
fn open_locked(folder: OwnedFd, name: &OsStr, more: OFlags) -> Result<LockedJsonLines, FsError> {
    let flags = OFlags::RDWR | OFlags::APPEND | more;
    for _ in 0..OPEN_TRIES {
        let (handle, open) = open_file(&folder, name, flags, Mode::from_raw_mode(0o600))?;
        if !is_regular(&open) {
            return Err(FsError::NotRegular);
        }
        let file = File::from(handle);
        let is_locked = lock(&file)?;
        // Somebody may have moved or removed it while the lock was waited for.
        let named = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_same = |named: sys::Stat| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino);
        if named.is_ok_and(is_same) {
            return Ok(LockedJsonLines {
                file,
                folder,
                index: is_locked.then(|| index_name(name)),
            });
        }
    }
    Err(FsError::Busy)
}

/// The name of a file's index. It is closed to agents.
fn index_name(name: &OsStr) -> OsString {
    format!(".longhaul-{}.index", name.to_string_lossy()).into()
}

/// The open file. The lock ends with it, so with a crash too.
#[derive(Debug)]
pub(crate) struct LockedJsonLines {
    file: File,
    /// The folder of the file and of its index.
    folder: OwnedFd,
    /// Name of the index; `None` without a lock, under which alone it is used.
    index: Option<OsString>,
}

/// The lines of one key, in the file's order.
#[derive(Debug, Default)]
pub(crate) struct KeyMatches {
    /// The lines.
    pub(crate) lines: Vec<Value>,
    /// Number of bytes of the file that were read to find them.
    bytes_read: u64,
}

#[derive(Deserialize)]
struct KeyField<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
}

impl LockedJsonLines {
    /// The first line, if it is JSON.
    pub(crate) fn first_line(&self) -> Result<Option<Value>, FsError> {
        Ok(serde_json::from_slice(&self.line_at(0)?).ok())
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn is_empty(&self) -> Result<bool, FsError> {
        Ok(self.file.metadata()?.len() == 0)
    }

    /// Every line that has this key; what is no JSON is passed over. However long the
    /// file is, little of it is read.
    pub(crate) fn find_key(&self, key: &str) -> Result<KeyMatches, FsError> {
        let length = self.file.metadata()?.len();
        let mut found = KeyMatches::default();
        let Some(index) = self.index.as_ref().filter(|_| length > TAIL_BYTES_MAX) else {
            self.scan(0, key, &mut found)?;
            return Ok(found);
        };
        if let Err(why) = self.find_indexed(index, key, &mut found) {
            debug!(index = %index.display(), %why, "index not usable; the whole file is read");
            found = KeyMatches::default();
            self.scan(0, key, &mut found)?;
        }
        trace!(bytes = found.bytes_read, "looked for a key");
        Ok(found)
    }

    fn find_indexed(&self, index: &OsStr, key: &str, found: &mut KeyMatches) -> io::Result<()> {
        let mut index = Index::open((&self.folder, index), &self.file)?;
        if self.file.metadata()?.len() - index.covered() > TAIL_BYTES_MAX {
            let mut whole = index.covered();
            found.bytes_read += self.for_each_line(index.covered(), |offset, line| {
                if let Ok(KeyField { key }) = serde_json::from_slice(line) {
                    index.add(&key, offset)?;
                }
                if line.ends_with(b"\n") {
                    whole = offset + line.len() as u64;
                }
                Ok(())
            })?;
            index.cover(whole)?;
        }
        for offset in index.find(key)? {
            let line = self.line_at(offset)?;
            found.bytes_read += line.len() as u64;
            found.lines.extend(parse_if_key(&line, key));
        }
        self.scan(index.covered(), key, found)
    }

    /// Reads the lines from an offset on that have this key.
    fn scan(&self, from: u64, key: &str, found: &mut KeyMatches) -> io::Result<()> {
        let lines = &mut found.lines;
        found.bytes_read += self.for_each_line(from, |_, line| {
            lines.extend(parse_if_key(line, key));
            Ok(())
        })?;
        Ok(())
    }

    fn line_at(&self, offset: u64) -> io::Result<Vec<u8>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))?;
        let mut line = Vec::new();
        BufReader::new(file.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
        Ok(line)
    }

    /// Shows each line from an offset on, with where it begins; returns how many bytes
    /// were read.
    fn for_each_line(
        &self,
        from: u64,
        mut seen: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let (mut line, mut offset) = (Vec::new(), from);
        loop {
            line.clear();
            let count = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(offset - from);
            }
            seen(offset, &line)?;
            offset += count as u64;
        }
    }

    /// Adds a line, on the disk when this returns.
    pub(crate) fn append(&self, value: &Value) -> Result<(), FsError> {
        let length = self.file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            self.file.read_exact_at(&mut last, length - 1)?;
        }
        // What a crash has torn stays a line of its own, which nobody can read.
        let start = if last == *b"\n" { "" } else { "\n" };
        let added = self.write_line(&format!("{start}{value}\n"));
        if added.is_err() {
            // A full disk: nothing is better than half a line.
            _ = self.file.set_len(length);
        }
        Ok(added?)
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}

/// The line as JSON, if it has this key.
fn parse_if_key(line: &[u8], key: &str) -> Option<Value> {
    // Most lines have another key, and need not be read as JSON.
    let text = std::str::from_utf8(line).ok().filter(|text| text.contains(key))?;
    let value: Value = serde_json::from_str(text).ok()?;
    (value["key"] == key).then_some(value)
}

#[cfg(test)]
mod tests;
