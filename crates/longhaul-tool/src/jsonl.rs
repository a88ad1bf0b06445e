//! A file of JSON lines that several processes add to, each line whole and on
//! the disk before anybody goes on.
//!
//! Never: changes a line that stands, follows a link, or stumbles over a last
//! line that a crash has torn.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::raw::Hash;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use crate::handle::{is_regular, lock, open_file};
use crate::location::Location;
use crate::place::Trouble;

/// A line that is longer was not written by us, and is passed over.
const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How often a file is opened again that was moved away while the lock was waited for.
const OPEN_TRIES: u32 = 10;
/// Maximum number of bytes at the end of the file that are read line by line
/// instead of being in the index.
const TAIL_BYTES_MAX: u64 = 64 * 1024;
/// Bytes before the end of the indexed part by which a file is known again.
const CHECK_BYTES: u64 = 256;

/// Where the file is, and what this process has indexed of it. Clones share both.
#[derive(Debug, Clone)]
pub(crate) struct Jsonl {
    location: Arc<Location>,
    index: Arc<Mutex<Index>>,
}

impl Jsonl {
    pub(crate) fn new(location: Location) -> Self {
        Self {
            location: Arc::new(location),
            index: Arc::default(),
        }
    }

    /// The path, for messages.
    pub(crate) fn path(&self) -> String {
        self.location.path().display().to_string()
    }

    /// Number of bytes of lines that all lookups through this value and its clones have read.
    #[cfg(test)]
    pub(crate) fn bytes_read(&self) -> u64 {
        self.index.lock().unwrap().bytes_read
    }

    /// Opens the file while nobody else does; made where it is missing.
    pub(crate) fn hold(&self) -> Result<Held, Trouble> {
        let (folder, name) = self.location.make_parent()?;
        let is_new = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
        let held = self.open(&folder, name, OFlags::CREATE)?;
        if is_new {
            sys::fsync(&folder)?;
        }
        Ok(held)
    }

    /// Opens the file while nobody else does, if it is there.
    pub(crate) fn hold_if_there(&self) -> Result<Option<Held>, Trouble> {
        let (folder, name) = match self.location.open_parent() {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        match self.open(&folder, name, OFlags::empty()) {
            Err(Trouble::Missing) => Ok(None),
            held => held.map(Some),
        }
    }

    fn open(&self, folder: &OwnedFd, name: &OsStr, more: OFlags) -> Result<Held, Trouble> {
        let file = open(folder, name, more)?;
        let index = Arc::clone(&self.index);
        Ok(Held { file, index })
    }
}

/// Opens the file `name` in `folder`, and locks it.
fn open(folder: &OwnedFd, name: &OsStr, more: OFlags) -> Result<File, Trouble> {
    let flags = OFlags::RDWR | OFlags::APPEND | more;
    for _ in 0..OPEN_TRIES {
        let (handle, open) = open_file(folder, name, flags, Mode::from_raw_mode(0o600))?;
        if !is_regular(&open) {
            return Err(Trouble::Strange);
        }
        let file = File::from(handle);
        lock(&file)?;
        // Somebody may have moved or removed it while the lock was waited for.
        let named = sys::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_same = |named: sys::Stat| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino);
        if named.is_ok_and(is_same) {
            return Ok(file);
        }
    }
    Err(Trouble::Busy)
}

/// The open file. The lock ends with it, so with a crash too.
#[derive(Debug)]
pub(crate) struct Held {
    file: File,
    index: Arc<Mutex<Index>>,
}

/// Where the lines of each key begin. It is kept in memory and is made again for a file that was
/// replaced, truncated or edited.
///
/// Until a second key is looked up, it has only the lines of the first: a process that sends one
/// message searches the file once and keeps next to nothing. From then on it has every line, and
/// takes about 30 bytes of memory for each as long as the process runs, without an upper limit:
/// 30 MB for a file of a million lines.
#[derive(Debug, Default)]
struct Index {
    /// The key whose lines alone are here.
    only_key: Option<String>,
    /// Device and inode of the file.
    file: (u64, u64),
    /// Number of bytes of the file, from its start, whose lines are here.
    covered: u64,
    /// Hash of the bytes before `covered`.
    check: Option<Hash>,
    hasher: RandomState,
    /// Hashes of keys, each with the offset of a line.
    offsets: BTreeSet<(u64, u64)>,
    /// Number of bytes of lines that all lookups of this process have read.
    bytes_read: u64,
}

impl Index {
    /// Forgets everything unless it describes this file as it is now, and may have the key.
    fn refresh(&mut self, file: &File, key: &str) -> io::Result<()> {
        let is_first = self.check.is_none();
        let found = file.metadata()?;
        let now = (found.dev(), found.ino());
        let is_same = self.file == now
            && self.only_key.as_deref().is_none_or(|only| only == key)
            && self.covered <= found.len()
            && self.check == Some(check(file, self.covered)?);
        if !is_same {
            *self = Self {
                only_key: is_first.then(|| key.to_owned()),
                file: now,
                check: Some(check(file, 0)?),
                bytes_read: self.bytes_read,
                ..Self::default()
            };
        }
        Ok(())
    }

    /// Takes in the line at an offset, if it is to be here.
    fn add(&mut self, line: &[u8], offset: u64) {
        // While one key matters, most lines need not be read as JSON.
        let only_key = self.only_key.as_deref();
        if only_key.is_some_and(|only| keyed(line, only).is_none()) {
            return;
        }
        if let Ok(Keyed { key }) = serde_json::from_slice(line) {
            self.offsets.insert((self.hasher.hash_one(&*key), offset));
        }
    }

    /// Where lines with this key may begin, in the file's order.
    fn find(&self, key: &str) -> impl Iterator<Item = u64> {
        let hash = self.hasher.hash_one(key);
        let found = self.offsets.range((hash, 0)..=(hash, u64::MAX));
        found.map(|(_, offset)| *offset)
    }
}

/// Hash of the bytes before `covered`.
fn check(file: &File, covered: u64) -> io::Result<Hash> {
    let start = covered.saturating_sub(CHECK_BYTES);
    let mut bytes = vec![0; usize::try_from(covered - start).unwrap_or_default()];
    file.read_exact_at(&mut bytes, start)?;
    Ok(Hash::of(&bytes))
}

#[derive(Deserialize)]
struct Keyed<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
}

impl Held {
    /// The first line, if it is JSON.
    pub(crate) fn first(&self) -> Result<Option<Value>, Trouble> {
        Ok(serde_json::from_slice(&self.line_at(0)?).ok())
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn is_empty(&self) -> Result<bool, Trouble> {
        Ok(self.file.metadata()?.len() == 0)
    }

    /// Every line that has this key, in the file's order; what is no JSON is passed over.
    ///
    /// The whole file is read at the first lookup of a process, at the first one of a second
    /// key, and after the file was replaced or edited. Every other lookup reads the lines of the
    /// key and what the index lacks: what was appended since the lookup before, and up to
    /// [`TAIL_BYTES_MAX`] bytes before that.
    pub(crate) fn find(&self, key: &str) -> Result<Vec<Value>, Trouble> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.refresh(&self.file, key)?;
        if self.file.metadata()?.len() - index.covered > TAIL_BYTES_MAX {
            self.cover(&mut index)?;
        }
        let mut found = Vec::new();
        let mut bytes_read = 0;
        for offset in index.find(key) {
            let line = self.line_at(offset)?;
            bytes_read += line.len() as u64;
            found.extend(keyed(&line, key));
        }
        bytes_read += self.lines(index.covered, |_, line| found.extend(keyed(line, key)))?;
        index.bytes_read += bytes_read;
        Ok(found)
    }

    /// Takes the whole lines that are new into the index.
    fn cover(&self, index: &mut Index) -> io::Result<()> {
        let mut covered = index.covered;
        let bytes_read = self.lines(covered, |offset, line| {
            // A last line that is not ended is searched with the tail, and may change.
            if line.ends_with(b"\n") {
                index.add(line, offset);
                covered = offset + line.len() as u64;
            }
        })?;
        index.bytes_read += bytes_read;
        index.check = Some(check(&self.file, covered)?);
        index.covered = covered;
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
    fn lines(&self, from: u64, mut seen: impl FnMut(u64, &[u8])) -> io::Result<u64> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let (mut line, mut offset) = (Vec::new(), from);
        loop {
            line.clear();
            let count = (&mut reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(offset - from);
            }
            seen(offset, &line);
            offset += count as u64;
        }
    }

    /// Adds a line, on the disk when this returns.
    pub(crate) fn add(&self, value: &Value) -> Result<(), Trouble> {
        let length = self.file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            self.file.read_exact_at(&mut last, length - 1)?;
        }
        // What a crash has torn stays a line of its own, which nobody can read.
        let start = if last == *b"\n" { "" } else { "\n" };
        let added = self.put(&format!("{start}{value}\n"));
        if added.is_err() {
            // A full disk: nothing is better than half a line.
            _ = self.file.set_len(length);
        }
        Ok(added?)
    }

    fn put(&self, line: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}

/// The line as JSON, if it has this key.
fn keyed(line: &[u8], key: &str) -> Option<Value> {
    // Most lines have another key, and need not be read as JSON.
    let text = std::str::from_utf8(line)
        .ok()
        .filter(|text| text.contains(key))?;
    let value: Value = serde_json::from_str(text).ok()?;
    (value["key"] == key).then_some(value)
}

#[cfg(test)]
mod tests;
