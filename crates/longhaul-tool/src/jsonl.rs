//! A file of JSON lines that several processes add to, each line whole and on
//! the disk before anybody goes on.
//!
//! Never: changes a line that stands, follows a link, or stumbles over a last
//! line that a crash has torn.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{self as sys, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::location::Location;
use crate::place::Trouble;

/// A line that is longer was not written by us, and is passed over.
const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// So often is the lock tried for, with a pause between: half a minute in all.
const LOCK_TRIES: u32 = 6_000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Where the file is.
#[derive(Debug, Clone)]
pub(crate) struct Jsonl(Arc<Location>);

impl Jsonl {
    pub(crate) fn new(location: Location) -> Self {
        Self(Arc::new(location))
    }

    /// The path, for messages.
    pub(crate) fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Opens the file while nobody else does; made where it is missing.
    pub(crate) fn hold(&self) -> Result<Held, Trouble> {
        let (folder, name) = self.0.make_parent()?;
        let is_new = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
        let held = open((&folder, name), OFlags::CREATE)?;
        if is_new {
            sys::fsync(&folder)?;
        }
        Ok(held)
    }

    /// Opens the file while nobody else does, if it is there.
    pub(crate) fn hold_if_there(&self) -> Result<Option<Held>, Trouble> {
        let (folder, name) = match self.0.open_parent() {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        match open((&folder, name), OFlags::empty()) {
            Err(Trouble::Missing) => Ok(None),
            held => held.map(Some),
        }
    }
}

/// Opens the file `name` in `folder`, and locks it.
fn open((folder, name): (&OwnedFd, &OsStr), more: OFlags) -> Result<Held, Trouble> {
    // Without NONBLOCK a pipe of that name would hold us until somebody writes.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(0o600);
    let handle = sys::openat(folder, name, flags | OFlags::CLOEXEC | more, mode)?;
    let kind = FileType::from_raw_mode(sys::fstat(&handle)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(Trouble::Strange);
    }
    let held = Held(File::from(handle));
    held.lock()?;
    Ok(held)
}

/// The open file. The lock ends with it, so with a crash too.
#[derive(Debug)]
pub(crate) struct Held(File);

impl Held {
    /// Not waited for in the system: whoever never lets go must not hold a thread
    /// of ours. Where the file system has no locks, one process is still alone.
    fn lock(&self) -> Result<(), Trouble> {
        for _ in 0..LOCK_TRIES {
            match sys::flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
                Ok(()) | Err(_) => return Ok(()),
            }
        }
        Err(Trouble::Busy)
    }

    /// The first line, if it is JSON.
    pub(crate) fn first(&self) -> Result<Option<Value>, Trouble> {
        let mut file = &self.0;
        file.seek(SeekFrom::Start(0))?;
        let mut line = Vec::new();
        BufReader::new(file.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
        Ok(serde_json::from_slice(&line).ok())
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn is_empty(&self) -> Result<bool, Trouble> {
        Ok(self.0.metadata()?.len() == 0)
    }

    /// Shows every line that has this key; what is no JSON is passed over.
    pub(crate) fn each(&self, key: &str, mut seen: impl FnMut(&Value)) -> Result<(), Trouble> {
        let mut file = &self.0;
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = (&mut reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(());
            }
            // Most lines are not meant, and need not be read as JSON.
            let Ok(text) = std::str::from_utf8(&line) else {
                continue;
            };
            if !text.contains(key) {
                continue;
            }
            let Ok(value) = serde_json::from_str::<Value>(text) else {
                continue;
            };
            if value["key"] == key {
                seen(&value);
            }
        }
    }

    /// Adds a line, on the disk when this returns.
    pub(crate) fn add(&self, value: &Value) -> Result<(), Trouble> {
        let length = self.0.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            self.0.read_exact_at(&mut last, length - 1)?;
        }
        // What a crash has torn stays a line of its own, which nobody can read.
        let start = if last == *b"\n" { "" } else { "\n" };
        let added = self.put(&format!("{start}{value}\n"));
        if added.is_err() {
            // A full disk: nothing is better than half a line.
            _ = self.0.set_len(length);
        }
        Ok(added?)
    }

    fn put(&self, line: &str) -> io::Result<()> {
        let mut file = &self.0;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}
